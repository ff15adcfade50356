"""SIGKILL of any service at any step of a pod's journey, and its return, loses nothing.

Each step is something that can be seen from outside; the kill follows the sight of it at once. Kills at random
moments between the steps follow, with a seed that is printed and can be set.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import plain

SERVICES = ["plugin", "extender", "webhook"]
RANDOM_ROUNDS = 6

Step = Callable[[Stack, Node, str], object]


def _created(stack: Stack, _: Node, name: str) -> object:
    return stack.kubectl.find("pods", name)


def _uid(stack: Stack, name: str) -> str:
    return str(stack.kubectl.get("pods", name)["metadata"]["uid"])


def _bound(stack: Stack, _: Node, name: str) -> object:
    return stack.kubectl.get("pods", name)["spec"].get("nodeName")


def _allocated(stack: Stack, node: Node, name: str) -> object:
    checkpoint = stack.cluster.node(node.name).device_plugins / "kubelet_internal_checkpoint"
    return checkpoint.exists() and _uid(stack, name) in checkpoint.read_text()


def _has_pages(stack: Stack, node: Node, name: str) -> object:
    return (node.tenants / _uid(stack, name)).exists()


def _has_spec(stack: Stack, node: Node, name: str) -> object:
    uid = _uid(stack, name)
    specs = stack.cluster.node(node.name).cdi.glob("*.json")
    return any(uid in spec.read_text() for spec in specs)


def _running(stack: Stack, _: Node, name: str) -> object:
    return stack.kubectl.get("pods", name)["status"].get("phase") == "Running"


STEPS: dict[str, Step] = {
    "created": _created,
    "bound": _bound,
    "allocated": _allocated,
    "pages": _has_pages,
    "CDI spec": _has_spec,
    "running": _running,
}


def process_of(service: str, node: Node) -> str:
    """The name of a service's process."""
    return node.agent if service == "plugin" else service


def arrive(stack: Stack, manifest: dict[str, Any]) -> None:
    """Wait until a pod runs, making it again as its controller would where the kubelet has given it up for good.

    The kubelet does that, by a rule of its own, to a pod whose device plugin is away when it is admitted, and again
    to the next one if it still is; what counts is that nothing of the pod is left behind.
    """
    name, end = manifest["metadata"]["name"], time.monotonic() + 60
    while (stored := stack.kubectl.wait_phase(name, "Running", "Failed", deadline=60))["status"][
        "phase"
    ] == "Failed":
        assert stored["status"]["reason"] == "UnexpectedAdmissionError"
        assert "Allocate failed due to" in stored["status"]["message"]
        assert time.monotonic() < end, stored["status"]["message"]
        stack.kubectl.delete("pods", name, grace=0)
        stack.kubectl.wait_gone("pods", name)
        stack.kubectl.apply(manifest)


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("step", STEPS)
def test_a_service_killed_at_a_step_loses_nothing(stack: Stack, node: Node, service: str, step: str) -> None:
    """The pod runs in the end with what it asked for, and so does the next one."""
    process = process_of(service, node)
    stack.kubectl.apply(plain("traveller", mem="12Gi"))
    wait_for(step, lambda: STEPS[step](stack, node, "traveller"))
    stack.cluster.kill(process)
    stack.cluster.restart(process)
    arrive(stack, plain("traveller", mem="12Gi"))
    audit(stack)
    stack.kubectl.apply(plain("next", mem="12Gi"))
    stack.kubectl.wait_phase("next", "Running", deadline=60)
    assert stack.kubectl.get("pods", "traveller")["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_killed_at_random_moments_loses_nothing(stack: Stack, node: Node, service: str) -> None:
    """Kills at moments drawn from the length of a journey; the seed is printed."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    moments = random.Random(seed)
    process = process_of(service, node)
    for number in range(RANDOM_ROUNDS):
        names = [f"chance-{number}-{i}" for i in range(2)]
        stack.kubectl.apply(*(plain(name, mem="1Gi", core="5") for name in names))
        end = time.monotonic() + moments.uniform(0, 0.8)
        wait_for("the moment", lambda end=end: time.monotonic() >= end)
        stack.cluster.kill(process)
        audit(stack)
        stack.cluster.restart(process)
        for name in names:
            arrive(stack, plain(name, mem="1Gi", core="5"))
        audit(stack)


def test_without_the_extender_pods_wait_and_are_placed_when_it_returns(stack: Stack) -> None:
    """Nothing is bound by guess while nobody keeps the ledger."""
    stack.cluster.kill("extender")
    stack.kubectl.apply(plain("waits"))
    stack.kubectl.wait_for("pods", "waits", lambda p: p["status"].get("conditions"))
    assert "nodeName" not in stack.kubectl.get("pods", "waits")["spec"]
    stack.cluster.restart("extender")
    stack.kubectl.wait_phase("waits", "Running", deadline=60)
