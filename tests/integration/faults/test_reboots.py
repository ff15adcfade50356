"""A node reboots: its containers are gone, and so is what lay on tmpfs; what lay on a disk speaks of another time."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.kubelet import runtime
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.faults.test_deaths import WAITS_FOR_KUBELET
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import container, pod
from tests.integration.journey.test_kills import arrive

pytestmark = pytest.mark.slow

SAYS_TOTAL = """
import time
from cuda.bindings import driver
driver.cuInit(0)
print("total", driver.cuDeviceTotalMem(driver.cuDeviceGet(0)[1])[1] >> 20, flush=True)
time.sleep(1000)
"""
NAMES = {"small": 3072, "large": 12288}
TRIES = 5
AGENT, KUBELET = "plugin-node-1", "kubelet-node-1"


def says_total(name: str) -> dict[str, Any]:
    """A pod that says how large its card is, each time that it starts."""
    main = container("main", {"mem": f"{NAMES[name]}Mi"}, ["python", "-c", SAYS_TOTAL])
    return pod(name, main)


def said(stack: Stack, node: Node, name: str) -> list[str]:
    """What the pod's container has said since its first start."""
    uid = stack.kubectl.get("pods", name)["metadata"]["uid"]
    logs = [log.read_text() for log in stack.cluster.node(node.name).pods.glob(f"{uid}/*.log")]
    return [line for log in logs for line in log.splitlines()]


def start(stack: Stack, node: Node) -> None:
    """Start both pods, and wait until each has seen its slice."""
    for name, mib in NAMES.items():
        stack.kubectl.apply(says_total(name))
        wait_for(f"{name} to speak", lambda n=name, m=mib: set(said(stack, node, n)) == {f"total {m}"})


def go_down(stack: Stack, node: Node) -> None:
    """Everything on the node ends, /run is empty, and the cards are found in another order."""
    for process in (AGENT, KUBELET):
        stack.cluster.kill(process)
    runtime.kill_all(stack.cluster.node(node.name).pods)
    wait_for(
        "all containers to end", lambda: not any(node.machine.memory_used(c.uuid) for c in node.machine.cards)
    )
    for directory in (node.directory / "run", stack.cluster.node(node.name).cdi):
        shutil.rmtree(directory)
    node.machine.rearrange([1, 0])


def check_all_run(stack: Stack, node: Node) -> None:
    """Both pods, or others in their stead, run with their limits, and none has ever had another."""
    for name, mib in NAMES.items():
        arrive(stack, says_total(name))
        wait_for(f"{name} to speak", lambda n=name, m=mib: set(said(stack, node, n)) == {f"total {m}"})
    audit(stack)


def test_pods_that_start_before_the_agent_fail_and_never_run_without_a_limit(
    stack: Stack, node: Node
) -> None:
    """The kubelet turns them away for good, as it does without any plugin; pods made anew get their slices."""
    start(stack, node)
    go_down(stack, node)
    stack.cluster.restart(KUBELET)
    for name in NAMES:
        status = stack.kubectl.wait_phase(name, "Failed")["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
    stack.cluster.restart(AGENT)
    check_all_run(stack, node)


def test_pods_start_again_with_their_slices_where_the_agent_is_there(stack: Stack, node: Node) -> None:
    """Pages and CDI specs are made anew, and name the device nodes that the cards have now.

    Where a kubelet looks at its pods before the agent has registered, they fail as above: on a busy machine the node
    has to go down more than once.
    """
    for _ in range(TRIES):
        start(stack, node)
        before = {name: stack.kubectl.get("pods", name)["metadata"]["uid"] for name in NAMES}
        go_down(stack, node)
        start_agent_then_kubelet(stack, node)
        seen = [stack.kubectl.wait_for("pods", name, has_restarted_or_failed) for name in NAMES]
        if all(map(has_restarted, seen)):
            break
        for name in NAMES:
            stack.kubectl.delete("pods", name, grace=0)
            stack.kubectl.wait_gone("pods", name)
    for name, uid in before.items():
        stored = stack.kubectl.get("pods", name)
        assert has_restarted(stored)
        assert stored["metadata"]["uid"] == uid
        wait_for(f"{name} to speak", lambda n=name: len(said(stack, node, n)) == 2)
    check_all_run(stack, node)


def has_restarted(stored: dict[str, Any]) -> bool:
    """Whether its container runs, for the second time."""
    (status,) = stored["status"]["containerStatuses"]
    return "running" in status["state"] and status["restartCount"] == 1


def has_restarted_or_failed(stored: dict[str, Any]) -> dict[str, Any] | None:
    """The pod, once it is known which."""
    return stored if stored["status"]["phase"] == "Failed" or has_restarted(stored) else None


def start_agent_then_kubelet(stack: Stack, node: Node) -> None:
    """The agent waits for the kubelet when that comes."""
    known = stack.cluster.log(AGENT).count(WAITS_FOR_KUBELET)
    with ThreadPoolExecutor() as starters:
        agent = starters.submit(stack.cluster.restart, AGENT)
        wait_for("the agent", lambda: stack.cluster.log(AGENT).count(WAITS_FOR_KUBELET) > known)
        stack.cluster.restart(KUBELET)
        agent.result()


def test_nothing_is_kept_of_pods_that_were_deleted_before_the_node_is_back(stack: Stack, node: Node) -> None:
    """Tenancies on the disk name pods that the API server does not know: others have their memory at once."""
    start(stack, node)
    go_down(stack, node)
    for name in NAMES:
        stack.kubectl.delete("pods", name, grace=0)
    stack.cluster.restart(KUBELET)
    stack.cluster.restart(AGENT)
    heirs = [pod(f"heir-{n}", container("main", {"mem": "16Gi"})) for n in range(2)]
    for heir in heirs:
        stack.kubectl.apply(heir)
    for heir in heirs:
        arrive(stack, heir)
    audit(stack)
