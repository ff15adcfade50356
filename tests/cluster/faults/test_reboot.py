"""A real node reboots: its containers and all that lay in memory are gone, files on its disk speak of another time."""

from typing import Any

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.faults.pods import MOST_OF_A_CARD, living, start
from tests.cluster.installation import NAMESPACE, READY_S, Installation
from tests.cluster.node import NAME
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster


def boot_of(installed: Installation) -> str:
    """The boot that the kubelet tells of."""
    return str(installed.kubectl.get("nodes", NAME, "")["status"]["nodeInfo"]["bootID"])


def ready(installed: Installation) -> set[str]:
    """The ids of the services' containers that are ready; empty while any is not."""
    statuses: list[dict[str, Any]] = []
    for pod in installed.kubectl.list("pods", NAMESPACE):
        statuses += pod["status"].get("containerStatuses", [{"ready": False}])
    return {each["containerID"] for each in statuses} if all(each["ready"] for each in statuses) else set()


def test_nobody_runs_without_a_limit_and_others_get_what_those_of_before_had(installed: Installation):
    """The kubelet gives pods up that it looks at before the agent is back; pods made anew have their memory."""
    old = [start(installed, name, MOST_OF_A_CARD) for name in ("old-0", "old-1")]
    boot, services = boot_of(installed), ready(installed)
    installed.node.reboot()
    for name in ("old-0", "old-1"):
        status = installed.kubectl.wait_phase(name, "Failed", deadline=PATIENCE_S)["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
    wait_for("other services", lambda: ready(installed) and not ready(installed) & services, READY_S)
    installed.await_services()
    assert boot_of(installed) != boot
    for name in ("new-0", "new-1"):
        installed.kubectl.create(client(name, mem=MOST_OF_A_CARD, core="5"))
    for name in ("new-0", "new-1"):
        assert "total 12288" in said(installed, name, "ready")
    audit(installed)
    assert not [process for uid in old for process in living(installed, uid)]
