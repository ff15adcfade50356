"""Of pods that wait, those of the namespace with the lowest share go first; nothing idles for pods that do not come."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aliquot.scheduler_ext.explain.verdicts import Judge
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.disruption_budgets import Budgets
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.quota.fair_share import (
    BACKOFF_SECONDS,
    MOST_IDLE_SECONDS,
    REST_SECONDS,
    YIELD_SECONDS,
    FairShare,
)
from aliquot.scheduler_ext.state.namespace_usage import ALL
from aliquot.scheduler_ext.state.pending_pods import PendingPods, Waker
from aliquot.scheduler_ext.state.running_pods import RunningPods
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import Teams, native, pod_of, quota
from tests.unit.scheduler_ext.world import WorldPod

RETRY = "aliquot.dev/retry"


class Queue:
    """Two nodes of two cards of 16 GiB, and namespaces whose pods wait for them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.a: list[WorldPod] = []
        self.b: list[WorldPod] = []
        self.teams = Teams()
        self.quotas, self.ledger = self.teams.quotas, self.teams.ledger
        self.waiting = PendingPods(lambda: self.now)
        self.ledger.on_change(self.waiting.something_changed)
        candidates = Candidates(
            self.ledger, RunningPods(self.ledger), Budgets(), self.quotas, 0.0, lambda: self.now
        )
        self.nominations = Nominations(self.ledger, self.waiting, candidates)
        self.filter = Filter(
            self.ledger,
            self.teams.filter.foreign,
            Placer(self.ledger.table),
            quotas=self.quotas,
            waiting=self.waiting,
            nominations=self.nominations,
            turns=FairShare(lambda: self.now),
        )

    def make(self, namespace: str, gib: int, priority: int = 0) -> WorldPod:
        """A pod is created."""
        asked = pod_of(namespace, {"gpu-mem": f"{gib}Gi"})
        spec = msgspec.structs.replace(asked.spec, priority=priority)
        made = WorldPod(msgspec.structs.replace(asked, spec=spec))
        self.teams.world.pods[made.pod.metadata.name] = made
        return made

    def ask(self, made: WorldPod, *nodes: str) -> FilterResult:
        """kube-scheduler asks for a pod."""
        return self.filter.answer(FilterArgs(Pod=made.pod, NodeNames=nodes or ("n1", "n2")))

    def gets(self, made: WorldPod) -> bool:
        """Whether it gets a place."""
        return bool(self.ask(made).NodeNames)

    def run(self, namespace: str, gib: int, count: int = 1) -> list[WorldPod]:
        """Pods that get their places."""
        made = [self.make(namespace, gib) for _ in range(count)]
        assert all(self.gets(one) for one in made)
        return made

    def end(self, made: WorldPod) -> None:
        """A pod ends."""
        self.ledger.release(made.pod.metadata.uid)

    def dry(self, made: WorldPod) -> bool:
        """Whether a dry run finds a node for a pod without a place."""
        request = self.filter.request_of(made.pod)
        return bool(Judge(self.filter).judge(made.pod, request, ("n1", "n2")).fits)

    def wake(self) -> float | None:
        """A round of waking."""
        waker = Waker(self.teams.world, self.waiting, self.filter, clock=lambda: self.now)
        return asyncio.run(waker.wake())


@pytest.fixture
def queue() -> Queue:
    """Namespace a has three cards of four, and b one; a pod of each waits, a's longer."""
    made = Queue()
    made.a = made.run("a", 16, 3)
    made.b = made.run("b", 16)
    made.next_a, made.next_b = made.make("a", 16), made.make("b", 16)
    assert not made.gets(made.next_a)
    assert not made.gets(made.next_b)
    made.now += 60.0
    return made


def test_a_pod_of_the_higher_share_leaves_its_place_to_one_that_waits(queue: Queue) -> None:
    """It is told for whom; the other is woken, and gets the place. Without any quota, too."""
    queue.end(queue.a[0])
    answer = queue.ask(queue.next_a)
    (text,) = set(answer.FailedAndUnresolvableNodes.values()) - {"short of memory on every card"}
    assert "it is the turn of namespace b" in text
    assert "25.0%" in text
    assert "50.0%" in text
    assert queue.waiting.changed.is_set()
    queue.wake()
    assert RETRY in queue.next_b.annotations
    assert RETRY not in queue.next_a.annotations
    assert queue.gets(queue.next_b)


def test_a_node_that_a_quota_closes_is_closed_by_that_whoevers_turn_it_is() -> None:
    """There the pod gets nothing when the other one has been: to wait for that one is of no use."""
    queue = Queue()
    queue.ledger.put_node("n2", node(card("n2-a", gib=24)))
    gone = [*queue.run("a", 24), *queue.run("a", 16)]
    queue.run("a", 16)
    assert not queue.gets(queue.make("b", 16))
    queue.now += 60.0
    for one in gone:
        queue.end(one)
    queue.quotas.put_native(native("a", gpu_mem="36Gi"))
    whole = WorldPod(pod_of("a", {"gpu": "1"}))
    told = queue.ask(whole).FailedAndUnresolvableNodes
    assert "it is the turn of namespace b" in told["n1"]
    assert "ResourceQuota cards" in told["n2"]


def test_the_lower_share_is_not_held_up(queue: Queue) -> None:
    """Nor is a pod of the same share."""
    queue.end(queue.a[0])
    assert queue.gets(queue.next_b)
    queue.end(queue.a[1])
    assert queue.gets(queue.next_a)


def test_weights_divide_shares(queue: Queue) -> None:
    """Two cards by weight 3 are less than one by weight 1."""
    queue.quotas.put(quota("a", "a", weight=3))
    queue.end(queue.a[0])
    assert queue.quotas.shares(ALL, "a", "b")[0] == pytest.approx(1 / 6)
    assert queue.gets(queue.next_a)


def test_what_is_guaranteed_is_no_share(queue: Queue) -> None:
    """A namespace within its guarantee leaves nothing to others."""
    queue.quotas.put(quota("a", "a", guaranteed=(64, 400, 8)))
    queue.end(queue.a[0])
    assert queue.quotas.shares(ALL, "a", "b")[0] == 0.0
    assert queue.gets(queue.next_a)


def test_shares_are_of_the_dominant_resource_and_not_of_a_count(queue: Queue) -> None:
    """Small slices count by what they take; each is one of the ten slices of a card, too."""
    for one in (*queue.a, *queue.b):
        queue.end(one)
    for one in (queue.next_a, queue.next_b):
        queue.waiting.forget(one.pod.metadata.uid)
    queue.run("small", 2, 4)
    assert queue.quotas.shares(ALL, "small", "b")[0] == pytest.approx(8 / 64)


def test_a_pod_that_could_not_use_the_place_is_not_waited_for(queue: Queue) -> None:
    """It is too large for it, its quota is used up, or it has a lower priority."""
    queue.waiting.forget(queue.next_b.pod.metadata.uid)
    large = queue.make("b", 17)
    queue.ask(large)
    queue.quotas.put(quota("c", "c", limit=(1, None, None)))
    assert not queue.gets(queue.make("c", 16))
    queue.end(queue.a[0])
    assert queue.gets(queue.next_a)


def test_a_higher_priority_goes_before_a_lower_share(queue: Queue) -> None:
    """Shares count among pods of the same priority, and against lower ones."""
    queue.end(queue.a[0])
    assert queue.gets(queue.make("a", 16, priority=10))


def test_a_pod_that_does_not_come_is_waited_for_once(queue: Queue) -> None:
    """A few seconds; not again before it has been asked for, and not another of its namespace for a minute."""
    queue.end(queue.a[0])
    assert not queue.gets(queue.next_a)
    assert queue.filter.turn_seconds() == YIELD_SECONDS
    queue.now += YIELD_SECONDS
    assert queue.gets(queue.next_a)
    queue.end(queue.next_a)
    queue.now += REST_SECONDS
    assert queue.gets(queue.make("a", 16))


def test_a_pod_that_was_refused_a_moment_ago_is_given_kube_schedulers_pause(queue: Queue) -> None:
    """kube-scheduler does not come back with it earlier."""
    assert not queue.gets(queue.next_b)
    queue.end(queue.a[0])
    assert not queue.gets(queue.next_a)
    queue.now += BACKOFF_SECONDS - 1.0
    assert not queue.gets(queue.next_a)
    queue.now += 1.0
    assert queue.gets(queue.next_a)


def test_however_many_namespaces_are_absent_a_node_is_not_left_for_long(queue: Queue) -> None:
    """Each of them alone could hold others up for eleven seconds."""
    for n in range(10):
        queue.ask(queue.make(f"absent-{n}", 16))
    queue.end(queue.a[0])
    begin = queue.now
    while not queue.gets(queue.next_a):
        queue.now += 0.5
    assert queue.now - begin <= MOST_IDLE_SECONDS


def test_the_dry_run_and_waking_say_what_filter_would(queue: Queue) -> None:
    """Nothing is noted by asking."""
    queue.end(queue.a[0])
    for _ in range(2):
        assert not queue.dry(queue.next_a)
        assert queue.dry(queue.next_b)
    assert queue.filter.turn_seconds() is None
    queue.gets(queue.next_a)
    queue.now += YIELD_SECONDS
    assert queue.dry(queue.next_a)


def test_the_turn_counts_where_a_place_is_taken_from_a_lower_priority(queue: Queue) -> None:
    """It is held for a pod of a third namespace, and any pod of a higher priority may have it."""
    low = queue.make("c", 16, priority=-1)
    assert not queue.gets(low)
    place = queue.ledger.entry(queue.a[0].pod.metadata.uid)
    assert place
    queue.end(queue.a[0])
    queue.nominations.expect(low.pod.metadata.uid, place.node)
    assert queue.ledger.entry(low.pod.metadata.uid)
    assert not queue.dry(queue.next_a)
    assert not queue.gets(queue.next_a)
    assert queue.gets(queue.next_b)


def test_pods_are_woken_by_priority_and_then_by_share(queue: Queue) -> None:
    """Whatever the order in which they came."""
    urgent = queue.make("a", 16, priority=10)
    assert not queue.gets(urgent)
    order = [one.request.name for one in queue.filter.by_share(queue.waiting.all())]
    assert order == [one.pod.metadata.name for one in (urgent, queue.next_b, queue.next_a)]


def test_where_nobody_else_waits_no_share_is_worked_out(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs nothing."""
    queue.waiting.forget(queue.next_b.pod.metadata.uid)
    monkeypatch.setattr(queue.quotas, "shares", None)
    queue.end(queue.a[0])
    assert queue.gets(queue.next_a)
