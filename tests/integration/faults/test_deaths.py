"""Agent and kubelet die together at every step of a pod's journey, and come back in any order."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.objects import Obj
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.faults.steady import Steady
from tests.integration.journey.auditor import audit, audit_clean
from tests.integration.journey.pods import container, plain, pod
from tests.integration.journey.test_kills import STEPS, arrive

AGENT_S, KUBELET_S = 10.0, 30.0
"""Within so many seconds of its return the node offers its slices again."""
WAITS_FOR_KUBELET = "not registered with the kubelet"
ORDERS = {
    "kubelet": ["kubelet-node-1"],
    "kubelet, then agent": ["kubelet-node-1", "plugin-node-1"],
    "agent, then kubelet": ["plugin-node-1", "kubelet-node-1"],
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def steady(running: Stack) -> Iterator[Steady]:
    """A program that has memory on a card throughout."""
    yield (program := Steady(running))
    program.end()
    audit_clean(running)


@pytest.fixture
def stack(running: Stack, steady: Steady) -> Iterator[Stack]:
    """The stack; after each test the program goes on as it did, and of other pods nothing is left."""
    yield running
    for name, process in running.cluster.processes.items():
        if not process.running:
            running.cluster.restart(name)
    audit(running)
    steady.check()
    others = [
        p["metadata"]["name"] for p in running.kubectl.list("pods") if p["metadata"]["name"] != "steady"
    ]
    for name in others:
        running.kubectl.delete("pods", name, grace=0)
    (node,) = running.nodes.values()
    wait_for(
        "the others' pages to go", lambda: steady.uid == " ".join(p.name for p in node.tenants.iterdir()), 60
    )


def offers_slices(stack: Stack, within_s: float) -> None:
    """Wait until the node offers all of its slices."""
    stack.kubectl.wait_for("nodes", "node-1", lambda n: slices_of(n) == 20, within_s)


def slices_of(node: Obj) -> int:
    """What a node says that it has."""
    return int(node["status"]["allocatable"].get("aliquot.dev/gpu", "0"))


def die_and_return(stack: Stack, node: Node, order: str) -> None:
    """SIGKILL all, then start them in this order; everything holds after each of them."""
    for process in ORDERS[order]:
        stack.cluster.kill(process)
        audit(stack)
    known = stack.cluster.log(node.agent).count(WAITS_FOR_KUBELET)
    with ThreadPoolExecutor() as starters:
        for process in ORDERS[order]:
            starting = starters.submit(stack.cluster.restart, process)
            if process == node.agent and order.endswith("kubelet"):
                wait_for("the agent", lambda: stack.cluster.log(node.agent).count(WAITS_FOR_KUBELET) > known)
            else:
                starting.result()
            audit(stack)
        starting.result()
    offers_slices(stack, KUBELET_S)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", STEPS)
def test_a_pod_on_its_way_arrives(stack: Stack, node: Node, order: str, step: str) -> None:
    """Whatever it had come to, it runs in the end with what it asked for; one that runs goes on as it did."""
    stack.kubectl.apply(plain("traveller", mem="12Gi"))
    wait_for(step, lambda: STEPS[step](stack, node, "traveller"))
    die_and_return(stack, node, order)
    arrive(stack, plain("traveller", mem="12Gi"))


@pytest.mark.parametrize("order", ORDERS)
def test_a_pod_that_has_ended_stays_ended_and_one_that_is_being_deleted_goes(
    stack: Stack, node: Node, order: str
) -> None:
    """What they had is free for the next pod."""
    done = pod("done", container("main", {"mem": "16Gi"}, ["true"]), restartPolicy="Never")
    stack.kubectl.apply(done)
    stack.kubectl.wait_phase("done", "Succeeded")
    stack.kubectl.apply(plain("leaver", mem="16Gi"))
    stack.kubectl.wait_phase("leaver", "Running")
    stack.kubectl.delete("pods", "leaver")
    die_and_return(stack, node, order)
    stack.kubectl.wait_gone("pods", "leaver", 60)
    stack.kubectl.apply(plain("heir", mem="16Gi"))
    arrive(stack, plain("heir", mem="16Gi"))
    assert stack.kubectl.get("pods", "done")["status"]["phase"] == "Succeeded"


def test_new_pods_wait_for_an_agent_that_is_away(stack: Stack, node: Node) -> None:
    """The node offers nothing meanwhile; ten seconds after its return it offers everything."""
    stack.cluster.kill(node.agent)
    stack.kubectl.wait_for("nodes", node.name, lambda n: slices_of(n) == 0)
    stack.kubectl.apply(plain("waits"))
    stack.kubectl.wait_for("pods", "waits", is_turned_away)
    audit(stack)
    stack.cluster.restart(node.agent)
    offers_slices(stack, AGENT_S)
    stack.kubectl.wait_phase("waits", "Running")


def is_turned_away(waiting: dict[str, Any]) -> bool:
    """Whether a scheduler has found no node for a pod."""
    return any(c.get("reason") == "Unschedulable" for c in waiting["status"].get("conditions", ()))
