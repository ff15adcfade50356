"""A node that the cluster gives up while its containers live, and that comes back."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.faults.test_pods import start_stubborn, stubborn
from tests.integration.journey.auditor import audit, check_living, empty, placement_of
from tests.integration.journey.pods import plain

pytestmark = pytest.mark.slow

LOST = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def pair() -> Iterator[Stack]:
    """Two nodes of one card each."""
    root = Path(tempfile.mkdtemp(prefix="aq-"))
    uuids = {
        "node-1": "GPU-00000000-0000-4000-8000-000000000001",
        "node-2": "GPU-00000000-0000-4000-8000-000000000002",
    }
    cards = {name: [SimCard(uuid=uuid)] for name, uuid in uuids.items()}
    with Stack(root, cards) as stack:
        stack.start()
        yield stack
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def stack(pair: Stack) -> Iterator[Stack]:
    """Both nodes; afterwards everything is started, audited, emptied and audited again."""
    yield pair
    empty(pair)


def taint(stack: Stack, *taints: dict[str, str]) -> None:
    """What the node controller does when a node no longer reports, and when it reports again."""
    stack.kubectl.patch("nodes", "node-1", {"spec": {"taints": list(taints)}}, namespace="")


def on(node: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The same pod, for this node alone."""
    return {**manifest, "spec": {**manifest["spec"], "nodeSelector": {"kubernetes.io/hostname": node}}}


def start_on_first(stack: Stack, name: str) -> str:
    """Start a pod that ends for no SIGTERM on the first node; returns its UID."""
    return start_stubborn(stack, on("node-1", stubborn(name)))


@pytest.mark.parametrize("grace", [0, 1])
def test_what_runs_on_a_node_that_was_given_up_counts_until_it_has_ended(stack: Stack, grace: int) -> None:
    """Its pod is evicted and runs elsewhere; the node comes back with the old container, and then takes the next pod.

    With a grace the old pod stays, Terminating, until its kubelet has ended it; without, it is gone at once.
    """
    first = stack.nodes["node-1"]
    old = start_on_first(stack, "moved")
    for process in ("kubelet-node-1", first.agent):
        stack.cluster.kill(process)
    taint(stack, LOST)
    stack.kubectl.delete("pods", "moved", grace=grace)
    stack.kubectl.apply(on("node-2", stubborn("moved-again")))
    stack.kubectl.wait_phase("moved-again", "Running")
    audit(stack)
    stack.kubectl.apply(on("node-1", plain("next", mem="12Gi")))
    taint(stack)
    assert old in check_living(first)
    stack.cluster.restart("kubelet-node-1")
    stack.cluster.restart(first.agent)

    def runs() -> bool:
        audit(stack)
        stored = stack.kubectl.get("pods", "next")
        if stored["status"].get("phase") == "Failed":  # its kubelet was there before the agent
            stack.kubectl.delete("pods", "next", grace=0)
            stack.kubectl.apply(on("node-1", plain("next", mem="12Gi")))
        return stored["status"].get("phase") == "Running"

    wait_for("the next pod", runs, 60)
    assert old not in check_living(first)


def is_published(gpu_node: dict[str, Any], owner: str) -> bool:
    """Whether its cards are there, and it belongs to this Node."""
    owners = [reference["uid"] for reference in gpu_node["metadata"].get("ownerReferences", ())]
    return owners == [owner] and bool(gpu_node.get("status", {}).get("cards"))


def test_a_node_that_was_deleted_and_joins_again_is_there_with_all_its_cards(stack: Stack) -> None:
    """Node, GPUNode and pods were removed: the agent, which never ended, tells of its cards, and nothing is left."""
    first = stack.nodes["node-1"]
    old = start_on_first(stack, "old")
    stack.cluster.kill("kubelet-node-1")
    stack.kubectl.delete("pods", "old", grace=0)
    for resource in ("nodes", "gpunodes.aliquot.dev"):
        stack.kubectl.delete(resource, "node-1", namespace="")
    stack.cluster.restart("kubelet-node-1")
    joined = stack.kubectl.get("nodes", "node-1", "")["metadata"]["uid"]
    stack.kubectl.wait_for("gpunodes.aliquot.dev", "node-1", lambda n: is_published(n, joined), namespace="")
    stack.kubectl.apply(*(plain(f"new-{n}", mem="16Gi") for n in range(2)))

    def run() -> bool:
        audit(stack)
        return all(
            stack.kubectl.get("pods", f"new-{n}")["status"].get("phase") == "Running" for n in range(2)
        )

    wait_for("a pod on each node", run, 60)
    placements = [placement_of(stack.kubectl.get("pods", f"new-{n}")) for n in range(2)]
    assert {p["node"] for p in placements if p} == {"node-1", "node-2"}
    assert old not in check_living(first)
