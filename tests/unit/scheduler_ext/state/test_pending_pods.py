"""Whom the extender touches, when, and how often."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from aliquot.kube.objects import Condition, Pod, PodStatus
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.placement.workload_model import WorkloadModel
from aliquot.scheduler_ext.state.pending_pods import FIRST_REST_SECONDS, TOUCHES_PER_ROUND, PendingPods, Waker
from tests.unit.scheduler_ext.neighbours import Neighbours, waiter
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import Teams, pod_of, quota
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.request.pod_request import PodRequest

RETRY = "aliquot.dev/retry"


class Sleepers:
    """An extender's parts, and a waker of the pods it refuses."""

    def __init__(self) -> None:
        self.teams = Teams()
        self.now = 0.0
        self.counted = 0
        self.waiting = PendingPods()
        ledger = self.teams.ledger
        ledger.on_change(self.waiting.something_changed)
        self.teams.quotas.on_change(self.waiting.something_changed)
        placer, foreign = Placer(ledger.table), self.teams.filter.foreign
        self.filter = Filter(ledger, foreign, placer, quotas=self.teams.quotas, waiting=self.waiting)
        self.waker = Waker(
            self.teams.world, self.waiting, self.filter, clock=lambda: self.now, touched=self.count
        )

    def count(self) -> None:
        """One touch."""
        self.counted += 1

    def ask(self, namespace: str, gib: int, *nodes: str, priority: int = 0) -> WorldPod:
        """A pod is created and filtered."""
        asked = pod_of(namespace, {"gpu-mem": f"{gib}Gi"})
        spec = msgspec.structs.replace(asked.spec, priority=priority)
        made = WorldPod(msgspec.structs.replace(asked, spec=spec))
        self.teams.world.pods[made.pod.metadata.name] = made
        self.filter.answer(FilterArgs(Pod=made.pod, NodeNames=nodes or ("n1", "n2")))
        return made

    def wake(self) -> float | None:
        """One round."""
        return asyncio.run(self.waker.wake())


@pytest.fixture
def sleepers() -> Sleepers:
    """Nobody waits yet."""
    return Sleepers()


def test_only_those_are_touched_whom_the_change_helps(sleepers: Sleepers):
    """A raised quota is for its namespace, and for pods that it is large enough for."""
    sleepers.teams.quotas.put(quota("a", "a", limit=(1, None, None)))
    sleepers.teams.quotas.put(quota("b", "b", limit=(1, None, None)))
    small, large, other, huge = (sleepers.ask(*one) for one in (("a", 4), ("a", 8), ("b", 4), ("c", 17)))
    assert sleepers.wake() is None
    sleepers.teams.quotas.put(quota("a", "a", limit=(6, None, None)))
    assert sleepers.waiting.changed.is_set()
    sleepers.wake()
    assert [RETRY in pod.annotations for pod in (small, large, other, huge)] == [True, False, False, False]
    assert sleepers.counted == 1


def test_the_nodes_that_a_pod_was_offered_are_those_it_is_tried_on(sleepers: Sleepers):
    """Room elsewhere does not help a pod that may not go there."""
    pod = sleepers.ask("a", 20, "n1")
    sleepers.teams.ledger.put_node("n2", node(card("n2-a", gib=24)))
    sleepers.wake()
    assert RETRY not in pod.annotations
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    sleepers.wake()
    assert RETRY in pod.annotations


def test_a_pod_touched_in_vain_is_let_be_for_longer_each_time(sleepers: Sleepers):
    """Something else keeps it from its node; it is not written to for ever."""
    pod = sleepers.ask("a", 20)
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    touched, rests = [], []
    for _ in range(4):
        rests.append(sleepers.wake())
        touched.append(pod.annotations.pop(RETRY, None) is not None)
        sleepers.now += rests[-1] or 0.0
    assert touched == [True] * 4
    assert rests == [FIRST_REST_SECONDS * 2**n for n in range(4)]
    sleepers.wake()
    pod.annotations.pop(RETRY)
    sleepers.now += 1.0
    assert sleepers.wake() == FIRST_REST_SECONDS * 2**4 - 1.0
    assert RETRY not in pod.annotations


def test_a_round_touches_only_so_many_and_the_oldest_first(sleepers: Sleepers):
    """The others' turn comes at once after it."""
    pods = [sleepers.ask("a", 20) for _ in range(TOUCHES_PER_ROUND + 5)]
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    assert sleepers.wake() == 0.0
    assert [RETRY in pod.annotations for pod in pods] == [True] * TOUCHES_PER_ROUND + [False] * 5
    sleepers.wake()
    assert all(RETRY in pod.annotations for pod in pods)


def test_whoever_has_a_higher_priority_is_touched_before_older_pods(sleepers: Sleepers):
    """A round that touches not all must not give the room to those whom kube-scheduler would try last."""
    old = [sleepers.ask("a", 20) for _ in range(TOUCHES_PER_ROUND)]
    urgent = sleepers.ask("a", 20, priority=1000)
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    sleepers.wake()
    assert RETRY in urgent.annotations
    assert [RETRY in pod.annotations for pod in old] == [True] * (TOUCHES_PER_ROUND - 1) + [False]


class CountingFilter(Filter):
    """A filter that knows how often it was asked what it would do."""

    asked = 0

    def would_place(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool:
        """Counts, and answers."""
        CountingFilter.asked += 1
        return super().would_place(pod, request, nodes)


def test_pods_of_a_kind_are_hopeless_together(sleepers: Sleepers):
    """A thousand replicas of one deployment cost one look."""
    for gib in (20, 30):
        for _ in range(50):
            sleepers.ask("a", gib)
    ledger = sleepers.teams.ledger
    counting = CountingFilter(ledger, sleepers.filter.foreign, Placer(ledger.table))
    asyncio.run(Waker(sleepers.teams.world, sleepers.waiting, counting).wake())
    assert CountingFilter.asked == 2


def test_pods_offered_the_same_nodes_are_of_one_kind_in_whatever_order(sleepers: Sleepers):
    """kube-scheduler names nodes in another order in each call; that is no reason to look twice, nor to keep both."""
    one, two = (sleepers.ask("a", 20, *nodes).pod.metadata.uid for nodes in (("n1", "n2"), ("n2", "n1")))
    fewer = sleepers.ask("a", 20, "n2").pod.metadata.uid
    waiters = [found for uid in (one, two, fewer) if (found := sleepers.waiting.get(uid))]
    assert waiters[0].kind == waiters[1].kind != waiters[2].kind
    assert waiters[0].nodes is waiters[1].nodes


def test_a_pod_that_got_a_place_waits_no_more(sleepers: Sleepers):
    """Its next filter succeeds, and nothing is left to touch."""
    pod = sleepers.ask("a", 20)
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    sleepers.filter.answer(FilterArgs(Pod=pod.pod, NodeNames=("n1",)))
    assert len(sleepers.waiting) == 0
    assert sleepers.wake() is None
    assert RETRY not in pod.annotations


def test_a_pod_that_is_gone_or_another_is_forgotten(sleepers: Sleepers):
    """The patch is for the pod that was refused, by its UID."""
    gone, twin = sleepers.ask("a", 20), sleepers.ask("a", 20)
    del sleepers.teams.world.pods[gone.pod.metadata.name]
    new = WorldPod(
        msgspec.structs.replace(twin.pod, metadata=msgspec.structs.replace(twin.pod.metadata, uid="new"))
    )
    sleepers.teams.world.pods[twin.pod.metadata.name] = new
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    sleepers.wake()
    assert (len(sleepers.waiting), sleepers.counted, new.annotations) == (0, 0, {})


def test_while_the_api_server_is_away_the_touch_is_tried_again(sleepers: Sleepers):
    """After the rest, as if it had been in vain."""
    pod = sleepers.ask("a", 20)
    sleepers.teams.ledger.put_node("n1", node(card("n1-a", gib=24)))
    sleepers.teams.world.line = "down"
    rest = sleepers.wake()
    sleepers.teams.world.line = "good"
    assert rest == FIRST_REST_SECONDS
    sleepers.now += rest
    sleepers.wake()
    assert RETRY in pod.annotations


def test_asking_reserves_nothing_and_changes_nobodys_reservation(sleepers: Sleepers):
    """A round is a question only, of which placement learns nothing."""
    held = sleepers.ask("a", 16)
    for _ in range(3):
        sleepers.ask("b", 16)
    waiter = sleepers.ask("c", 16)
    before = {entry.uid: entry for entry in sleepers.teams.ledger.entries()}
    sleepers.filter.placer.demand = demand = WorkloadModel()
    sleepers.wake()
    assert {entry.uid: entry for entry in sleepers.teams.ledger.entries()} == before
    assert list(demand.asked()) == []
    sleepers.teams.ledger.depart(held.pod.metadata.uid)
    sleepers.wake()
    assert RETRY in waiter.annotations
    assert sleepers.teams.ledger.entry(waiter.pod.metadata.uid) is None


def test_after_a_restart_pods_given_up_by_the_scheduler_are_remembered(sleepers: Sleepers):
    """Those that wait for something else are not: nothing refused them here."""
    conditions = {
        "refused": Condition(type="PodScheduled", status="False", reason="Unschedulable"),
        "gated": Condition(type="PodScheduled", status="False", reason="SchedulingGated"),
    }
    pods = {}
    for reason, condition in conditions.items():
        made: Pod = pod_of("a", {"gpu-mem": "4Gi"})
        pods[reason] = WorldPod(msgspec.structs.replace(made, status=PodStatus(conditions=(condition,))))
        sleepers.teams.world.pods[made.metadata.name] = pods[reason]

    async def first_round() -> None:
        touched = asyncio.Event()
        waker = Waker(sleepers.teams.world, sleepers.waiting, sleepers.filter, touched=touched.set)
        running = asyncio.create_task(waker.run())
        await touched.wait()
        running.cancel()

    asyncio.run(asyncio.wait_for(first_round(), 30))
    assert {reason: RETRY in pod.annotations for reason, pod in pods.items()} == {
        "refused": True,
        "gated": False,
    }


def test_a_pod_that_has_got_its_node_is_forgotten_by_the_feed():
    """Nobody goes on asking for a pod that runs, whoever has placed it."""
    here = Neighbours()
    pod = waiter(17)
    assert here.place_of(pod) == []
    assert len(here.waiting) == 1
    here.runs(pod.metadata.uid, "n1-a", 1)
    assert len(here.waiting) == 0


def test_a_pod_whose_own_place_has_become_free_is_woken_behind_a_hopeless_one_of_its_kind():
    """The pod that others have left is not kept waiting by one that is alike and finds no place."""
    here = Neighbours("n1")
    here.ledger.on_change(here.waiting.something_changed)
    here.runs("v1", "n1-a", 16)
    here.runs("v2", "n1-b", 16)
    hopeless, owner = waiter(16), waiter(16)
    assert not here.place_of(hopeless)
    assert not here.place_of(owner)
    assert here.victims(owner)
    here.nominate(owner, "n1")
    (entry,) = here.ledger.unconfirmed()
    here.ends("v1" if entry.placement.containers[0].cards[0].uuid == "n1-a" else "v2")
    world = World()
    world.pods = {pod.metadata.name: WorldPod(pod) for pod in (hopeless, owner)}
    asyncio.run(Waker(world, here.waiting, here.filter).wake())
    assert [name for name, pod in world.pods.items() if RETRY in pod.annotations] == [owner.metadata.name]
