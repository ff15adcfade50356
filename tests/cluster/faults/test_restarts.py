"""Kubelet and agent die together on a real node, and its CDI files are lost: who restarts has the same slice."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.cluster.auditor import audit, specs_of
from tests.cluster.faults.pods import LIMIT_HOLDS, card_of, is_second_start, living, start
from tests.cluster.installation import Installation
from tests.cluster.programs import program
from tests.cluster.test_doctor import cluster_report
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


def prepared(name: str) -> dict[str, Any]:
    """A pod whose init container has a slice, too, and ends at once."""
    manifest = client(name, core="5")
    (main,) = manifest["spec"]["containers"]
    manifest["spec"]["initContainers"] = [{**main, "name": "prepare", "command": ["true"]}]
    return manifest


def warnings(installed: Installation, manifest: dict[str, Any]) -> str:
    """What the API server warns of when a manifest is applied with the real kubectl."""
    argv = [str(program("kubectl")), "--kubeconfig", str(installed.plane.kubeconfig), "apply", "-f", "-"]
    return subprocess.run(
        argv, input=yaml.safe_dump(manifest), capture_output=True, text=True, check=True
    ).stderr


@contextmanager
def agent_stopped(installed: Installation) -> Iterator[None]:
    """The agent does not run meanwhile, and registers with no kubelet."""
    agent = str(installed.pid_of("aliquot-plugin"))
    installed.node.box.run("kill", "-STOP", agent)
    try:
        yield
    finally:
        installed.node.box.run("sh", "-c", f"kill -CONT {agent} || true")


def test_a_pod_that_a_kubelet_would_fail_is_named_before(installed: Installation):
    """Its init container with a slice has ended, and no agent runs when the kubelet starts: the kubelet fails it.

    The webhook has warned of it and the doctor names it. A pod without such an init container runs on.
    """
    assert "init container 'prepare' has a slice" in warnings(installed, prepared("prepared"))
    assert not warnings(installed, client("plain", core="5"))
    for name in ("prepared", "plain"):
        said(installed, name, "ready")
    assert "default/prepared" in cluster_report(installed)["kubelet-restarts"]
    assert "default/plain" not in cluster_report(installed)["kubelet-restarts"]
    before = installed.kubectl.get("pods", "plain")["status"]["containerStatuses"]
    with agent_stopped(installed):
        installed.node.restart_kubelet()
        installed.kubectl.wait_phase("prepared", "Failed", deadline=PATIENCE_S)
    assert installed.kubectl.get("pods", "prepared")["status"]["reason"] == "UnexpectedAdmissionError"
    installed.await_services()
    assert installed.kubectl.get("pods", "plain")["status"]["containerStatuses"] == before
    audit(installed)
