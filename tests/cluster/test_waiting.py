"""When kube-scheduler tries a waiting pod again, and that nobody gets slices that a kubelet has not."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.integration.extenders import GPU, Extender, create, manifest, patch_status, publish

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NODE = "late"
PATIENCE_S = 120.0
"""Its back-off is ten seconds at most, and its patience with those that nothing wakes is five minutes."""


@pytest.fixture(scope="module", name="plane")
def with_scheduler(control_plane: ControlPlane) -> Iterator[PocketCluster]:
    """The control plane with a node, an extender and a kube-scheduler that is configured as the chart says."""
    program_or_skip("kube-scheduler")
    kubectl = control_plane.kubectl
    control_plane.define(*(ROOT / "deploy/crds").glob("*.yaml"))
    plane = cast("PocketCluster", control_plane)
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    untainted = {"spec": {"taints": None}}
    kubectl.request("PATCH", f"/api/v1/nodes/{NODE}", untainted, media_type="application/merge-patch+json")
    offer(plane, 0)
    extender = Extender(plane)
    extender.start()
    configuration = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
    configuration["extenders"][0]["urlPrefix"] = extender.url
    control_plane.start_scheduler(configuration, "aliquot-scheduler")
    try:
        yield plane
    finally:
        control_plane.processes["aliquot-scheduler"].stop()
        extender.process.stop()
        kubectl.delete("nodes", NODE, "")
        kubectl.delete("gpunodes.aliquot.dev", NODE, "")


@pytest.fixture(autouse=True)
def emptied(plane: PocketCluster) -> Iterator[None]:
    """No pods and no slices are left for the next test."""
    yield
    for pod in plane.kubectl.list("pods", "default"):
        plane.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    offer(plane, 0)


def offer(plane: PocketCluster, slices: int) -> None:
    """The kubelet says how many slices it has."""
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: str(slices)}
    ready = [{"type": "Ready", "status": "True"}]
    patch_status(plane, f"/api/v1/nodes/{NODE}", {"capacity": room, "allocatable": room, "conditions": ready})


def publish_card(plane: PocketCluster) -> None:
    """The agent says which card it has, of ten slices."""
    plane.kubectl.apply({"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": NODE}})
    publish(plane, NODE, [{"uuid": "card", "index": 0, "memoryMiB": 16384}])


def refusal(pod: Mapping[str, Any]) -> str:
    """What kube-scheduler says of a pod that it has found no node for."""
    conditions = pod["status"].get("conditions", ())
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


def await_refusal(plane: PocketCluster, name: str, words: str) -> None:
    """Wait until that is why a pod waits."""
    plane.kubectl.wait_for("pods", name, lambda pod: words in refusal(pod), PATIENCE_S)


def bound(plane: PocketCluster) -> set[str]:
    """The pods that have a node."""
    pods = plane.kubectl.list("pods", "default")
    return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}


def await_bound(plane: PocketCluster, *names: str) -> None:
    """Wait until just these have one."""
    wait_for(f"{names} to be bound", lambda: bound(plane) == set(names), PATIENCE_S)


def test_a_pod_from_before_there_were_slices_runs_soon(plane: PocketCluster):
    """First neither agent nor kubelet offers anything, then the agent alone, then both."""
    create(plane, name="early")
    await_refusal(plane, "early", "0/1 nodes are available")
    publish_card(plane)
    create(plane, name="second")
    await_refusal(plane, "second", "agent is away, its kubelet offers no slice")
    assert not bound(plane)
    offer(plane, 10)
    await_bound(plane, "early", "second")


def test_no_pod_is_placed_beyond_what_the_kubelet_has(plane: PocketCluster):
    """Two slices, of which a pod's init container and its sidecar take turns with what comes after; then one goes."""
    publish_card(plane)
    offer(plane, 2)
    first = manifest(1, "first")
    (main,) = first["spec"]["containers"]
    first["spec"]["initContainers"] = [{**main, "name": "before"}]
    plane.kubectl.create(first)
    create(plane, 1, "other")
    await_bound(plane, "first", "other")
    create(plane, 1, "third")
    await_refusal(plane, "third", "no slice left on the node (agent.slicesPerCard bounds them)")
    plane.kubectl.delete("pods", "other", grace=0)
    await_bound(plane, "first", "third")
