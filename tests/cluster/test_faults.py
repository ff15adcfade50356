"""What a kubelet, a container runtime and an agent do to each other when one of them dies under running pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.node import KUBELET_DIRECTORY, NAME
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster

CHECKPOINT = f"{KUBELET_DIRECTORY}/device-plugins/kubelet_internal_checkpoint"


@pytest.fixture
def running(installed: Installation) -> dict[str, Any]:
    """A pod that computes."""
    installed.kubectl.apply(client("steady"))
    said(installed, "steady", "ready")
    return container_of(installed, "steady")


def container_of(installed: Installation, name: str) -> dict[str, Any]:
    """The status of a pod's only container."""
    (status,) = installed.kubectl.get("pods", name)["status"]["containerStatuses"]
    return dict(status)


def same(installed: Installation, before: dict[str, Any]) -> bool:
    """Whether the pod's container is the one that it was, and runs."""
    now = container_of(installed, "steady")
    return (now["containerID"], now["restartCount"]) == (before["containerID"], 0) and "running" in now[
        "state"
    ]


def test_a_kubelet_restarts_under_running_pods(installed: Installation, running: dict[str, Any]):
    """They run on, the agent registers again, and the next pod gets its slice."""
    installed.restart_kubelet()
    installed.kubectl.apply(client("later"))
    assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in said(installed, "later", "ready")
    assert same(installed, running)


def test_a_container_runtime_restarts_under_running_pods(installed: Installation, running: dict[str, Any]):
    """Containers outlive it; CDI files are read anew for the next one."""
    installed.node.restart_runtime()
    installed.kubectl.apply(client("later"))
    assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in said(installed, "later", "ready")
    assert same(installed, running)


def test_an_agent_dies_between_admission_and_start(installed: Installation):
    """The kubelet has its ids and asks again when the agent is back: nothing is lost, and nothing granted twice."""
    uid = installed.kubectl.create(client("caught"))["metadata"]["uid"]
    checkpoint = installed.node.box.path(CHECKPOINT)
    wait_for("the kubelet to admit it", lambda: uid in checkpoint.read_text(), PATIENCE_S)
    installed.kill_agent()
    installed.await_agent()
    assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in said(installed, "caught", "ready")


def test_an_agent_dies_under_running_pods(installed: Installation, running: dict[str, Any]):
    """The limits stay while it is away, and the next agent finds all as it was."""
    installed.kill_agent()
    audit(installed)
    installed.await_agent()
    audit(installed)
    assert same(installed, running)


def select(installed: Installation, label: str | None) -> None:
    """Let the agent run on nodes with a label that no node has, or where it did."""
    chosen = {"spec": {"template": {"spec": {"nodeSelector": {"aliquot.dev/nowhere": label}}}}}
    installed.kubectl.patch("daemonsets.apps", "aliquot-agent", chosen, namespace=NAMESPACE)


def is_turned_away(pod: Mapping[str, Any]) -> bool:
    """Whether kube-scheduler has found no node for it."""
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))


def test_a_pod_from_before_there_were_slices_runs(installed: Installation):
    """Soon after its node has come to offer them, with the chart's own settings."""
    select(installed, "true")
    try:
        installed.kubectl.wait_for(
            "nodes",
            NAME,
            lambda node: node["status"]["allocatable"].get("aliquot.dev/gpu", "0") == "0",
            PATIENCE_S,
            namespace="",
        )
        installed.kubectl.apply(client("early"))
        installed.kubectl.wait_for("pods", "early", is_turned_away, PATIENCE_S)
    finally:
        select(installed, None)
    installed.await_services()
    assert "2048 CUDA_ERROR_OUT_OF_MEMORY" in said(installed, "early", "ready")
