"""Groups that run with fewer members than they need yield their cards to those that wait, whole and in order."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

import msgspec
import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.kube.objects import Pod
from aliquot.request.placement import encode_placement
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.controllers.incomplete_gangs import IncompleteGangs
from aliquot.scheduler_ext.gang.gang import RECOVERED_SECONDS
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS, Candidates
from aliquot.scheduler_ext.preemption.disruption_budgets import Budgets
from aliquot.scheduler_ext.state.running_pods import RunningPods
from tests.unit.scheduler_ext.drill import Drill, placed, pod_in
from tests.unit.scheduler_ext.neighbours import budget
from tests.unit.scheduler_ext.placing import card, node, resizer

if TYPE_CHECKING:
    from aliquot.scheduler_ext.preemption.nominations import Nominations

GRACE = 60.0
GRACE_OF_A_POD = 30.0
"""From its deletion to the time at which it should have ended."""
MADE = "2026-11-22T10:{:02d}:00Z"
BEGUN = dt.datetime.fromisoformat(MADE.format(0))


class Field(Drill):
    """An extender's parts over two nodes with four cards each, and groups that run there."""

    def __init__(self, grace: float = GRACE, min_run_seconds: float = 0.0) -> None:
        super().__init__(cards=4)
        self.scheduler = "aliquot-scheduler"
        self.running_pods, self.budgets = RunningPods(self.ledger), Budgets()
        self.candidates = Candidates(
            self.ledger, self.running_pods, self.budgets, self.quotas, min_run_seconds, self.time
        )
        self.stale = self.leader_for_stale(grace)
        self.feed = self.feed_with(None)

    def leader_for_stale(self, grace: float = GRACE) -> IncompleteGangs:
        """A process that evicts stale groups from now on."""
        return IncompleteGangs(
            self.world,
            self.gangs,
            self.filter,
            self.candidates,
            grace_seconds=grace,
            others=("volcano",),
            clock=lambda: self.now,
        )

    def feed_with(self, nominations: Nominations | None) -> ClusterInformer:
        """What reads the cluster; nothing is read but what tests show."""
        return ClusterInformer(
            None,  # type: ignore[arg-type] - its reflectors never run
            self.ledger,
            self.filter.foreign,
            resizer(self.world, self.ledger, self.quotas),
            waiting=self.waiting,
            gangs=self.gangs,
            running_pods=self.running_pods,
            nominations=nominations,
        )

    def time(self) -> float:
        """Seconds since 1970."""
        return BEGUN.timestamp() + self.now

    def run_group(self, name: str, count: int = 4, minute: int = 0, priority: int = 0) -> list[Pod]:
        """A group whose members are all bound."""
        pods = [self.member(name, minute, priority) for _ in range(count)]
        self.needs(name, count)
        self.create(*pods)
        assert all(self.where(pod) for pod in pods)
        assert asyncio.run(self.bind_all(*pods)) == [""] * count
        for pod in pods:
            self.show(pod)
        return pods

    def member(self, name: str, minute: int = 0, priority: int = 0) -> Pod:
        """A pod of a group."""
        return pod_in(name, priority=priority, creationTimestamp=MADE.format(minute))

    def show(self, pod: Pod, *, leaving: bool = False) -> None:
        """The watch shows a bound pod."""
        entry = self.ledger.entry(pod.metadata.uid)
        assert entry is not None
        meta = {"annotations": {PLACEMENT_ANNOTATION: encode_placement(entry.placement)}}
        ends = dt.datetime.fromtimestamp(self.time() + GRACE_OF_A_POD, dt.UTC)
        going = {"deletionTimestamp": ends.isoformat()} if leaving else {}
        body = msgspec.to_builtins(pod)
        body["spec"]["schedulerName"] = self.scheduler
        self.feed.put_pod(placed(msgspec.convert(body, Pod), entry.node, "Running", **meta, **going))

    def leave(self, pod: Pod) -> None:
        """A pod is gone."""
        self.world.pods.pop(pod.metadata.name, None)
        self.feed.drop_pod(pod.metadata.uid)

    def lose_card(self, pod: Pod, heir: Pod | None = None) -> None:
        """The card of a member fails, and with it the pod; its heir, if one is made, waits."""
        entry = self.ledger.entry(pod.metadata.uid)
        assert entry is not None
        (uuid,) = entry.charges
        sick = {card.uuid for card in self.ledger.table.cards(entry.node) if not card.healthy} | {uuid}
        names = [card.uuid for card in self.ledger.table.cards(entry.node)]
        self.leave(pod)
        self.ledger.put_node(entry.node, node(*(card(name, healthy=name not in sick) for name in names)))
        if heir is not None:
            self.create(heir)
            assert not self.where(heir)
        self.pass_time(0.0)

    def look(self, seconds: float = 1.0) -> list[str]:
        """Time passes, and a round of looking; who was evicted in it."""
        before = len(self.world.evicted)
        self.pass_time(seconds)
        asyncio.run(self.stale.look())
        return sorted(self.world.evicted[before:])

    def end_evicted(self, *groups: list[Pod]) -> None:
        """All that were evicted have gone."""
        for pod in [pod for group in groups for pod in group if pod.metadata.name in self.world.evicted]:
            if pod.metadata.name in self.world.pods:
                self.leave(pod)


def names(pods: list[Pod]) -> list[str]:
    """Of these pods."""
    return sorted(pod.metadata.name for pod in pods)


def two_short(
    first_priority: int = 0, second_priority: int = 0
) -> tuple[Field, list[Pod], list[Pod], Pod, Pod]:
    """Two groups of four that have lost a card each; three members of each run on, and an heir of each waits."""
    field = Field()
    first = field.run_group("first", minute=0, priority=first_priority)
    second = field.run_group("second", minute=1, priority=second_priority)
    heirs = field.member("first", 2, first_priority), field.member("second", 2, second_priority)
    field.lose_card(first[0], heirs[0])
    field.lose_card(second[0], heirs[1])
    return field, first, second, *heirs


def test_of_two_groups_that_lack_a_member_each_the_younger_yields_to_the_older():
    """After the grace, whole; the other's heir has one of its cards, and nobody is evicted after that."""
    field, first, second, heir, other = two_short()
    assert field.look(GRACE - 1.0) == []
    assert field.look() == names(second[1:])
    assert {reason for _, reason, _ in field.world.told} == {"GroupBelowMinimum"}
    text = "group default/second has run with fewer than the 4 members that it needs for 60 s, and group default/first"
    assert all(text in message for _, _, message in field.world.told)
    for pod in second[1:]:
        field.show(pod, leaving=True)
    assert field.look() == []
    field.end_evicted(second)
    anew = [field.member("second", 3) for _ in range(3)]
    field.create(*anew)
    assert not field.where(anew[0])
    assert not field.where(other)
    where = field.where(heir)
    assert where
    assert asyncio.run(field.bind(heir, where)) == ""
    for _ in range(10):
        assert field.look(GRACE) == []
    assert field.bound(*first[1:], heir) == 4


@pytest.mark.parametrize(("first_priority", "second_priority", "goes"), [(0, 10, 0), (10, 0, 1)])
def test_the_lower_priority_yields_whatever_its_age(first_priority: int, second_priority: int, goes: int):
    """Ages decide between equal priorities only."""
    field, first, second, *_ = two_short(first_priority, second_priority)
    assert field.look(GRACE) == names((first, second)[goes][1:])


def test_a_group_that_is_whole_again_in_time_stays():
    """The grace begins anew the next time."""
    field = Field()
    pods = field.run_group("train")
    stranger = pod_in("")
    field.create(stranger)
    field.leave(pods[0])
    heir = field.member("train", 2)
    field.create(heir)
    assert field.look(1.0) == []
    assert field.look(GRACE - 1.0) == []
    assert asyncio.run(field.bind(heir, field.where(heir))) == ""
    field.show(heir)
    assert field.look(1.0) == []
    field.leave(heir)
    assert field.look(1.0) == []
    assert field.look(GRACE - 1.0) == []


def runs_short_again(field: Field, members: list[Pod]) -> list[Pod]:
    """The evicted pods are made anew and run, until one of them fails and is not made again; those that are left."""
    for pod in members:
        field.leave(pod)
    anew = [field.member("stale", 9) for _ in range(4)]
    field.create(*anew)
    assert all(field.where(pod) for pod in anew)
    assert asyncio.run(field.bind_all(*anew)) == [""] * 4
    for pod in anew:
        field.show(pod)
    field.look(1.0)
    return anew


def test_a_group_that_is_evicted_again_has_twice_the_grace():
    """Until it has run whole for ten minutes."""
    field = Field()
    members = field.run_group("stale")
    for grace in (GRACE, 2 * GRACE, 4 * GRACE):
        field.leave(members[0])
        busy = busy_but_for(field, 0)
        pod = pod_in("")
        field.create(pod)
        assert not field.where(pod)
        field.pass_time(0.0)
        assert field.look(grace - 1.0) == []
        assert field.look(1.0) == names(members[1:])
        for one in (*busy, pod):
            field.leave(one)
        members = runs_short_again(field, members[1:])
    field.pass_time(RECOVERED_SECONDS)
    field.leave(members[0])
    busy_but_for(field, 0)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    field.pass_time(0.0)
    assert field.look(GRACE) == names(members[1:])


def busy_but_for(field: Field, cards: int) -> list[Pod]:
    """Pods without a group on all cards but so many."""
    pods = []
    while sum(1 for _ in field.ledger.entries()) < 8 - cards:
        pod = pod_in("", priority=1000)
        field.create(pod)
        assert asyncio.run(field.bind(pod, field.where(pod))) == ""
        field.show(pod)
        pods.append(pod)
    return pods


def stale_group(field: Field, priority: int = 0) -> list[Pod]:
    """A group of four of which three run, on a cluster without any free card."""
    pods = field.run_group("stale", priority=priority)
    busy_but_for(field, 0)
    field.lose_card(pods[0], field.member("stale", 5, priority))
    return pods[1:]


def test_nobody_is_evicted_while_nobody_else_waits():
    """The cards would be of no use to anybody; the group may find its member yet."""
    field = Field()
    stale_group(field)
    assert field.look(10 * GRACE) == []


@pytest.mark.parametrize(("priority", "goes"), [(9, False), (10, True), (11, True)])
def test_a_pod_that_waits_has_the_cards_of_a_group_of_no_higher_priority(priority: int, goes: bool):
    """All members go, though one card is enough: the others do nothing without it."""
    field = Field()
    members = stale_group(field, priority=10)
    pod = pod_in("", priority=priority)
    field.create(pod)
    assert not field.where(pod)
    assert field.look(GRACE) == (names(members) if goes else [])


def test_nobody_is_evicted_for_what_would_not_fit_all_the_same():
    """The pod asks for more than three cards give; the group needs five places."""
    field = Field()
    stale_group(field)
    large = pod_in("", limits={"gpu": "4", "gpu-mem": "16Gi"})
    field.create(large)
    assert not field.where(large)
    five = [field.member("five") for _ in range(5)]
    field.needs("five", 5)
    field.create(*five)
    assert not field.where(five[0])
    assert field.look(GRACE) == []


def test_a_group_that_waits_has_the_cards_and_keeps_them_until_it_has_all():
    """They become free one by one, and pods that come between find none of them."""
    field = Field()
    members = stale_group(field)
    three = [field.member("three") for _ in range(3)]
    field.needs("three", 3)
    field.create(*three)
    assert not field.where(three[0])
    assert field.look(GRACE) == names(members)
    for number, pod in enumerate(members, start=1):
        field.leave(pod)
        assert not field.where(pod_in(""))
        assert field.holds(*three) == number
    assert all(field.where(pod) for pod in three)


def test_no_more_groups_yield_than_are_needed():
    """The younger one has one card, the other three, and three are needed."""
    field = Field()
    small = field.run_group("small", 2, minute=9)
    large = field.run_group("large", 4)
    busy_but_for(field, 0)
    field.lose_card(small[0])
    field.lose_card(large[0])
    three = [field.member("three") for _ in range(3)]
    field.needs("three", 3)
    field.create(*three)
    assert not field.where(three[0])
    assert field.look(GRACE) == names(large[1:])


def test_several_groups_yield_where_one_is_not_enough():
    """Four cards are needed, three and one are there."""
    field = Field()
    small, large = field.run_group("small", 2, minute=9), field.run_group("large", 4)
    busy_but_for(field, 0)
    field.lose_card(small[0])
    field.lose_card(large[0])
    four = [field.member("four") for _ in range(4)]
    field.needs("four", 4)
    field.create(*four)
    assert not field.where(four[0])
    assert field.look(GRACE) == names([*small[1:], *large[1:]])


def test_a_group_one_of_whose_members_may_not_be_evicted_keeps_all():
    """A disruption budget lets one of the three go, which would be in vain."""
    field = Field()
    members = stale_group(field)
    field.budgets.put(budget("default", 0))
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    assert field.look(GRACE) == []
    field.budgets.put(budget("default", 3))
    assert field.look() == names(members)


def test_an_eviction_that_the_server_refuses_is_tried_again():
    """The others are not evicted a second time."""
    field = Field()
    members = stale_group(field)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    field.world.kept = {members[0].metadata.name}
    assert field.look(GRACE) == names(members[1:])
    assert field.look() == []


def test_a_pod_stuck_in_its_termination_holds_up_nothing_for_ever():
    """Its card counts as free for a while; then the stale group yields."""
    field = Field()
    members = stale_group(field)
    other = next(
        pod
        for pod in map(field.running_pods.get, [e.uid for e in field.ledger.entries()])
        if pod and pod.priority
    )
    stuck = next(made.pod for made in field.world.pods.values() if made.pod.metadata.uid == other.uid)
    field.pass_time(GRACE)
    field.show(stuck, leaving=True)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    assert field.look(GRACE_OF_A_POD + OVERDUE_SECONDS - 1.0) == []
    assert field.look(1.0) == names(members)


def test_a_pod_for_which_others_are_leaving_already_needs_no_group_to_yield():
    """A place is held for it, which it gets when they have gone."""
    field = Field()
    stale_group(field)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    taken = next(iter(field.ledger.entries())).placement
    field.ledger.hold(field.filter.request_of(pod), msgspec.structs.replace(taken, pod_uid=pod.metadata.uid))
    assert field.look(GRACE) == []


def test_groups_of_another_scheduler_are_its_own_business():
    """Volcano restarts or keeps its jobs as their policies say."""
    field = Field()
    field.scheduler = "volcano"
    stale_group(field)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    assert field.look(GRACE) == []


def test_it_can_be_turned_off():
    """With `--group-grace-seconds 0`."""
    field = Field(grace=0.0)
    stale_group(field)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    assert field.look(100 * GRACE) == []


def test_pods_are_left_alone_after_their_start():
    """`--min-run-seconds` is a promise to all."""
    field = Field(min_run_seconds=4e9)
    stale_group(field)
    pod = pod_in("")
    field.create(pod)
    assert not field.where(pod)
    assert field.look(GRACE) == []
