"""A hundred pods in one second on a node of eight cards, of every shape that asks for slices."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aliquot.cli.demo.stack import Stack
from aliquot.libshim.control_page import read_control
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.auditor import MIB, audit, audit_clean, placement_of
from tests.integration.journey.pods import container, pod
from tests.integration.journey.stacks import one_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

PODS, CARDS, PATIENCE_S = 100, 8, 1200.0
LOOKS_EVERY_S = 1.0
"""A list of all pods costs the API server as much as a start of one."""


@pytest.fixture(scope="module")
def crowded() -> Iterator[Stack]:
    """A node of eight cards with slices for everybody."""
    with one_node([SimCard() for _ in range(CARDS)], ["--slices-per-card", "40"]) as stack:
        stack.start()
        yield stack


def one_of(number: int, cards: int = 2) -> dict[str, Any]:
    """A pod of a shape, and of amounts of its own, by its number; `cards`: what its largest container has slices of."""
    name, mem = f"crowd-{number}", f"{100 + number}Mi"
    more = f"{300 + number}Mi"
    init = container("init", {"mem": more}, ["true"])
    side = container("side", {"mem": mem}, restartPolicy="Always")
    shapes = [
        pod(name, container("main", {"mem": mem, "core": "5"})),
        pod(name, container("main"), initContainers=[init]),
        pod(name, container("main", {"mem": more}), initContainers=[init, side]),
        pod(
            name,
            container("a", {"mem": mem}),
            container("b", {"gpu": str(cards), "mem": more}),
            container("c"),
        ),
    ]
    return shapes[number % len(shapes)]


def test_each_of_a_hundred_pods_at_once_has_what_it_asked_for(crowded: Stack) -> None:
    """Containers that run and those that have ended were held to what was granted, and all of it is given back."""
    begun = time.monotonic()
    with ThreadPoolExecutor(PODS) as users:
        list(users.map(lambda number: crowded.kubectl.apply(one_of(number)), range(PODS)))
    print(f"created in {time.monotonic() - begun:.1f} s")
    progress = Progress(crowded)
    wait_for("all pods to run", progress.is_done, PATIENCE_S, LOOKS_EVERY_S)
    (node,) = crowded.nodes.values()
    for each in crowded.kubectl.list("pods"):
        placement = placement_of(each)
        assert placement is not None
        for granted in placement["containers"]:
            control = read_control(node.tenants / each["metadata"]["uid"] / granted["name"] / "control")
            applied = [(card.uuid, card.memory_bytes) for card in control.cards]
            assert applied == [(card["uuid"], card["memoryMiB"] * MIB) for card in granted["cards"]]
    for number in range(PODS):
        crowded.kubectl.delete("pods", f"crowd-{number}", grace=0)
    audit_clean(crowded)


def has_begun(pod: dict[str, Any]) -> bool:
    """Whether a pod runs with all its containers."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", ())]
    return pod["status"].get("phase") == "Running" and not any("waiting" in state for state in states)


class Progress:
    """How many pods run, audited whenever ten more do: a look of the auditor at all of them takes a second."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._audited = -10

    def is_done(self) -> bool:
        """Whether all containers run, or have ended; no pod may have failed. A pod runs as soon as one of them does."""
        pods = self._stack.kubectl.list("pods")
        assert len(pods) == PODS
        assert not [each["status"] for each in pods if each["status"].get("phase") == "Failed"]
        waiting = [each for each in pods if not has_begun(each)]
        running = PODS - len(waiting)
        if running >= self._audited + 10 or running == PODS:
            audit(self._stack)
            self._audited = running
            print(running, "run; of the others", [each["status"] for each in waiting[:2]])
        return running == PODS
