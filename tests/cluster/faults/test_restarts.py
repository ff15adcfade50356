"""Kubelet and agent die together on a real node, and its CDI files are lost: who restarts has the same slice."""

import pytest

from tests.cluster.auditor import audit, specs_of
from tests.cluster.faults.pods import LIMIT_HOLDS, card_of, is_second_start, living, start
from tests.cluster.installation import Installation
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster


def end(installed: Installation, uid: str) -> None:
    """SIGKILL a pod's program."""
    for process in living(installed, uid):
        installed.node.box.run("kill", "-KILL", str(process.pid))


def test_a_kubelet_and_its_agent_die_together(installed: Installation):
    """What runs keeps container and limit, starts again with the same slice, and the next pod gets its own."""
    uid = start(installed, "steady")
    card, before = card_of(installed, "steady"), installed.kubectl.get("pods", "steady")["status"]
    installed.kill_agent()
    installed.restart_kubelet()
    installed.await_agent()
    audit(installed)
    now = installed.kubectl.get("pods", "steady")["status"]
    assert now["containerStatuses"] == before["containerStatuses"]
    end(installed, uid)
    installed.kubectl.wait_for("pods", "steady", is_second_start, PATIENCE_S)
    assert LIMIT_HOLDS in said(installed, "steady", "ready")
    assert card_of(installed, "steady") == card
    installed.kubectl.apply(client("later", core="5"))
    assert LIMIT_HOLDS in said(installed, "later", "ready")


def test_specs_that_a_cleaner_has_removed_are_there_again_for_a_restart(installed: Installation):
    """The program is killed: its next start finds the same card and limit."""
    uid = start(installed, "cleaned")
    card, specs = card_of(installed, "cleaned"), specs_of(installed)
    assert specs
    for path in specs:
        path.unlink()
    end(installed, uid)
    installed.kubectl.wait_for("pods", "cleaned", is_second_start, PATIENCE_S)
    assert LIMIT_HOLDS in said(installed, "cleaned", "ready")
    assert card_of(installed, "cleaned") == card
    assert specs_of(installed) == specs
