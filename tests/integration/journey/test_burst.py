"""Overcommitted memory: granted to those who need it, taken back from those who do not, never beyond the card."""

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import OVERFLOW_CARDS, CardLimit, read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program
from tests.integration.journey.stacks import one_node

pytestmark = pytest.mark.slow

GIB = 1 << 30
BURST = {"aliquot.dev/memory-class": "burst"}
OVER = "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """A node with one card of 16 GiB, of which twice as much may be promised."""
    with one_node((SimCard(),)) as made:
        made.start()
        spec = {"memoryPercent": 200, "overflow": "Host"}
        pool = {
            "apiVersion": "aliquot.dev/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": "all"},
            "spec": spec,
        }
        made.kubectl.apply(pool)
        wait_for("the pool", lambda: "memory_usable" in made.metrics("extender"))
        yield made


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running stack; afterwards it is emptied."""
    yield running
    for pod in running.kubectl.list("pods"):
        running.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    for pod in running.kubectl.list("pods"):
        running.kubectl.wait_gone("pods", pod["metadata"]["name"])
    (node,) = running.nodes.values()
    wait_for("the pages to go", lambda: not list(node.tenants.iterdir()), 60)


def limit(stack: Stack, program: Program) -> CardLimit:
    """A program's card in its control page."""
    (node,) = stack.nodes.values()
    return read_control(node.tenants / program.uid / "main" / "control").cards[0]


def held(node: Node) -> int:
    """GiB that all processes have on the card."""
    return node.machine.memory_used(node.machine.cards[0].uuid) // GIB


def on_host(node: Node, program: Program) -> int:
    """GiB that a program has on the host in the card's stead."""
    usage = read_usage(node.tenants / program.uid / "main" / "usage")
    return sum(process.memory_bytes[OVERFLOW_CARDS] for process in usage.processes) // GIB


def test_two_burst_pods_share_more_than_the_card_has(stack: Stack) -> None:
    """Both are promised 12 GiB of 16; who needs it gets it, and what was given back goes to the other."""
    (node,) = stack.nodes.values()
    one, other = Program(stack, "one", "12Gi", BURST), Program(stack, "other", "12Gi", BURST)
    assert one.alloc(10 * 1024) == "CUDA_SUCCESS of 12288"
    assert other.alloc(10 * 1024).startswith(OVER)
    assert other.alloc(5 * 1024).startswith("CUDA_SUCCESS")
    assert held(node) == 15
    assert one.free().startswith("CUDA_SUCCESS")
    assert other.alloc(6 * 1024).startswith("CUDA_SUCCESS")
    assert other.alloc(2 * 1024).startswith(OVER)
    assert held(node) == 11


def test_a_guaranteed_pod_takes_the_memory_from_the_grants(stack: Stack) -> None:
    """It waits at the gate until burst pods have freed what is its own, they get no more, and it then has all of it."""
    burst = Program(stack, "burst", "14Gi", BURST)
    wait_for("the grant to be raised", lambda: burst.alloc(12 * 1024).startswith("CUDA_SUCCESS"))
    stack.kubectl.apply(plain("guaranteed", mem="8Gi"))
    reason = "4096 MiB of what is guaranteed to it are held by burst pods yet"
    (node,) = stack.nodes.values()
    wait_for("the gate to say so", lambda: reason in stack.cluster.log(node.agent))
    assert burst.alloc(1024).startswith(OVER)
    assert burst.free().startswith("CUDA_SUCCESS")
    stack.kubectl.wait_phase("guaranteed", "Running", deadline=60)
    assert burst.alloc(8 * 1024).startswith("CUDA_SUCCESS")
    assert burst.alloc(1).startswith(OVER)


def test_what_is_guaranteed_is_never_overcommitted(stack: Stack) -> None:
    """The ratio is for burst pods alone."""
    stack.kubectl.apply(plain("first", mem="12Gi"))
    stack.kubectl.wait_phase("first", "Running")
    stack.kubectl.apply(plain("second", mem="5Gi"))
    waiting: dict[str, Any] = stack.kubectl.wait_for(
        "pods", "second", lambda p: p["status"].get("conditions")
    )
    assert "short of memory" in waiting["status"]["conditions"][0]["message"]
    burst = Program(stack, "burst", "16Gi", BURST)
    assert burst.alloc(4096).startswith("CUDA_SUCCESS")
    assert burst.alloc(1).startswith(OVER)


def test_what_is_not_granted_may_go_to_the_host_where_the_pool_allows(stack: Stack) -> None:
    """The page has room on the host for all that is not granted; who does not ask for it has none."""
    program = Program(stack, "overflows", "8Gi", {**BURST, "aliquot.dev/overflow": "Host"})
    assert program.alloc(1024).startswith("CUDA_SUCCESS")
    card = limit(stack, program)
    assert card.grant_bytes is not None
    assert card.overflow_bytes == 8 * GIB - card.grant_bytes
    assert limit(stack, Program(stack, "plain", "1Gi", BURST)).overflow_bytes is None


def test_overflow_leaves_the_card_to_those_it_is_granted_to(stack: Stack) -> None:
    """Crowded by a neighbour, then by a guaranteed pod, they go to the host, within their slice; all is given back."""
    (node,) = stack.nodes.values()
    overflows = {**BURST, "aliquot.dev/overflow": "Host"}
    one, other = Program(stack, "one", "14Gi", overflows), Program(stack, "other", "10Gi", overflows)
    for _ in range(3):
        assert one.alloc(4 * 1024) == "CUDA_SUCCESS of 14336"
    assert (held(node), on_host(node, one)) == (12, 0)
    assert other.alloc(3 * 1024) == "CUDA_SUCCESS of 10240"
    assert other.alloc(6 * 1024) == "CUDA_SUCCESS of 10240"
    assert (held(node), on_host(node, other)) == (15, 6)
    said = len(stack.cluster.log(node.agent))
    stack.kubectl.apply(plain("guaranteed", mem="8Gi"))
    wait_for("the gate to say so", lambda: "held by burst pods yet" in stack.cluster.log(node.agent)[said:])
    assert one.free().startswith("CUDA_SUCCESS")
    stack.kubectl.wait_phase("guaranteed", "Running", deadline=60)
    assert one.alloc(4 * 1024).startswith("CUDA_SUCCESS")
    assert one.alloc(10 * 1024).startswith("CUDA_SUCCESS")
    assert one.alloc(1).startswith(OVER)
    assert (held(node), on_host(node, one)) == (7, 10)
    for program in (one, other):
        assert program.free().startswith("CUDA_SUCCESS")
        assert on_host(node, program) == 0
    assert held(node) == 0
    assert other.alloc(8 * 1024).startswith("CUDA_SUCCESS")
    assert (held(node), on_host(node, other)) == (8, 0)


@pytest.mark.slow
def test_without_an_agent_grants_hold_and_nobody_hangs(stack: Stack) -> None:
    """What was granted can be used again, what is beyond it is refused or goes to the host, until an agent is back."""
    (node,) = stack.nodes.values()
    plain_burst = Program(stack, "one", "12Gi", BURST)
    overflows = Program(stack, "other", "12Gi", {**BURST, "aliquot.dev/overflow": "Host"})
    for program in (plain_burst, overflows):
        assert program.alloc(4096).startswith("CUDA_SUCCESS")
    assert plain_burst.free().startswith("CUDA_SUCCESS")
    stack.cluster.kill(node.agent)
    try:
        assert plain_burst.alloc(4096).startswith("CUDA_SUCCESS")
        begin = time.monotonic()
        assert plain_burst.alloc(4096).startswith(OVER)
        assert overflows.alloc(6144).startswith("CUDA_SUCCESS")
        assert overflows.alloc(6144).startswith(OVER)
        assert time.monotonic() - begin < 20
        assert (held(node), on_host(node, overflows)) == (8, 6)
    finally:
        stack.cluster.restart(node.agent)
    wait_for("the agent", lambda: plain_burst.alloc(4096).startswith("CUDA_SUCCESS"))
    assert held(node) == 12


@pytest.mark.slow
def test_a_killed_agent_promises_no_grant_twice(stack: Stack) -> None:
    """Burst pods take and give back while their agent is killed at random moments; the seed is printed."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    (node,) = stack.nodes.values()
    programs = [Program(stack, f"chance-{number}", "10Gi", BURST) for number in range(3)]
    for _ in range(5):
        for program in programs:
            program.tell(chance.choice(["free", "2048", "4096"]))
        end = time.monotonic() + chance.uniform(0, 0.3)
        wait_for("the moment", lambda end=end: time.monotonic() >= end)
        stack.cluster.kill(node.agent)
        assert sum(max(limit(stack, one).grant_bytes or 0, 0) for one in programs) <= 16 * GIB
        stack.cluster.restart(node.agent)
    for program in programs:
        program.free()
    assert programs[0].alloc(9 * 1024).startswith("CUDA_SUCCESS")
