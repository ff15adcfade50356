"""Wall clocks jump by an hour, there and back: nobody loses an office, a lease or trust for it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import create, two_nodes
from tests.integration.faults.clocks import HOUR_S, Clock, build
from tests.integration.faults.test_pods import GRACE_S, kubelet_with, start_stubborn, stubborn
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program
from tests.integration.replicas import LEASE, LEASES, NAMESPACE, TAKES_OVER_S, Replica, Replicas

RENEWALS = 9
"""One a second: more than the seven that a Lease lasts."""


def test_a_jump_is_seen_by_its_process_alone(tmp_path: Path) -> None:
    """What the others rest on: the wall clock jumps, the other one does not."""
    clock = Clock(build(tmp_path), tmp_path / "offset")
    look = "import time; print(int(time.time()), int(time.monotonic()))"
    clock.jump(-HOUR_S)
    here, there = (
        [
            int(word)
            for word in subprocess.check_output([sys.executable, "-c", look], env=env, text=True).split()
        ]
        for env in ({}, clock.environment)
    )
    assert here[0] - there[0] == pytest.approx(HOUR_S, abs=60)
    assert there[1] == pytest.approx(here[1], abs=60)


@pytest.fixture(name="clocks")
def make_clocks(tmp_path: Path) -> list[Clock]:
    """One for each replica."""
    library = build(tmp_path)
    return [Clock(library, tmp_path / f"offset-{number}") for number in range(3)]


@pytest.fixture(name="replicas")
def run_replicas(tmp_path: Path, clocks: list[Clock]) -> Iterator[Replicas]:
    """Three replicas, each with a clock of its own."""
    with two_nodes(tmp_path / "c") as cluster, ExitStack() as stack:
        replicas = Replicas(cluster, tmp_path)
        for replica, clock in zip(replicas.all, clocks, strict=True):
            replica.process.env = {**(replica.process.env or {}), **clock.environment}
            stack.callback(replica.end)
            replica.start()
        replicas.leader()
        yield replicas


def version(cluster: PocketCluster) -> str:
    """The Lease's, which each renewal changes."""
    return str(cluster.kubectl.get(LEASES, LEASE, NAMESPACE)["metadata"]["resourceVersion"])


def renewals(cluster: PocketCluster) -> None:
    """Return after as many renewals as end any Lease that is not renewed."""
    for _ in range(RENEWALS):
        now = version(cluster)
        wait_for("the Lease to be renewed", lambda v=now: version(cluster) != v, TAKES_OVER_S)


def in_office(replicas: Replicas) -> tuple[Replica, int]:
    """Who leads, and how often that has changed."""
    lease = replicas.cluster.kubectl.get(LEASES, LEASE, NAMESPACE)
    return replicas.leader(), lease["spec"]["leaseTransitions"]


@pytest.mark.slow
def test_a_leader_stays_whatever_the_clocks_say(replicas: Replicas, clocks: list[Clock]) -> None:
    """Two hours apart, it renews, the others wait; and they trust each other's new certificates."""
    before = leader, _ = in_office(replicas)
    followers = replicas.others(leader)
    of = dict(zip(replicas.all, clocks, strict=True))
    for follower, jump in zip(followers, (HOUR_S, -HOUR_S), strict=True):
        of[leader].jump(-jump)
        of[follower].jump(jump)
        renewals(replicas.cluster)
        assert in_office(replicas) == before
        pod = create(replicas.cluster, gib=2)
        assert "Error" not in (answer := follower.filter(pod, "n1")), answer
        assert follower.bind(pod, "n1") == ""
        of[follower].jump(0)
    assert [replica.process.running for replica in replicas.all] == [True] * 3


@pytest.fixture(name="clock")
def make_clock(stack: Stack, node: Node, tmp_path: Path) -> Iterator[Clock]:
    """The agent's."""
    clock = Clock(build(tmp_path), tmp_path / "offset")
    agent = stack.cluster.processes[node.agent]
    usual = agent.env
    agent.env = {**(usual or {}), **clock.environment}
    stack.cluster.restart(node.agent)
    yield clock
    agent.env = usual
    stack.cluster.restart(node.agent)


@pytest.mark.slow
def test_an_agent_goes_on_whatever_its_clock_says(stack: Stack, node: Node, clock: Clock) -> None:
    """Limits hold, who waits at the gate is not turned away, and nothing is taken for old."""
    with kubelet_with(stack, "--forced-grace", GRACE_S):
        jump_there_and_back(stack, node, clock)


def jump_there_and_back(stack: Stack, node: Node, clock: Clock) -> None:
    """An hour each, while a pod waits for one that is being ended."""
    program = Program(stack, "works", "4Gi")
    agent, said = stack.cluster.processes[node.agent].pid, len(stack.cluster.log(node.agent))
    for number, jump in enumerate((HOUR_S, -HOUR_S)):
        heir = waits_at_the_gate(stack, node, number)
        clock.jump(jump)
        assert program.alloc(5000).startswith("CUDA_ERROR_OUT_OF_MEMORY")
        stack.kubectl.wait_phase(heir, "Running", deadline=60)
        audit(stack)
        stack.kubectl.delete("pods", heir, grace=0)
        stack.kubectl.wait_gone("pods", heir)
    assert "(waited" not in stack.cluster.log(node.agent)[said:]
    assert stack.cluster.processes[node.agent].pid == agent
    assert stack.kubectl.get("pods", "works")["status"]["containerStatuses"][0]["restartCount"] == 0


def waits_at_the_gate(stack: Stack, node: Node, number: int) -> str:
    """A pod whose place still has a program in it that ends for no SIGTERM; of a pod deleted by force."""
    old, heir = f"old-{number}", f"heir-{number}"
    start_stubborn(stack, stubborn(old, "14Gi"))
    stack.kubectl.delete("pods", old, grace=0)
    stack.kubectl.apply(plain(heir, mem="14Gi"))
    waits = f"a container waits: pod default/{heir}: does not fit this node"
    wait_for("the gate to say so", lambda: waits in stack.cluster.log(node.agent))
    return heir
