"""The one member that a running group lacks has pods of lower priority evicted, as a pod without a group does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aliquot.scheduler_ext.controllers.evictor import Evictor
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.preemption.extender_preemption import ExtenderPreemption
from aliquot.scheduler_ext.preemption.nominations import Nominations
from tests.unit.scheduler_ext.controllers.test_incomplete_gangs import GRACE, Field, names
from tests.unit.scheduler_ext.drill import pod_in

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod
    from aliquot.scheduler_ext.state.pending_pods import PendingPod


class Preempting(Field):
    """The same with preemption by the extender."""

    def __init__(self) -> None:
        super().__init__()
        self.candidates = Candidates(
            self.ledger,
            self.running_pods,
            self.budgets,
            self.quotas,
            clock=self.time,
            breaks=self.gangs.breaks,
        )
        self.nominations = Nominations(self.ledger, self.waiting, self.candidates)
        self.filter = replace(self.filter, nominations=self.nominations)
        self.stale = self.leader_for_stale()
        self.feed = self.feed_with(self.nominations)
        ground = ExtenderPreemption(self.candidates, self.nominations, self.waiting, patience_seconds=5.0)
        self.evictor = Evictor(
            self.world,
            self.waiting,
            self.filter,
            self.candidates,
            self.nominations,
            evictions=Evictions(self.world, self.candidates, lambda: self.now),
            grounds=[ground],
            touch=self.touch,
            clock=lambda: self.now,
        )

    def time(self) -> float:
        """How long a pod has waited is measured by the machine's clock."""
        return time.time() + self.now

    async def touch(self, waiter: PendingPod) -> None:
        """kube-scheduler asks again."""
        self.where(waiter.pod)

    def others(self, count: int, priority: int) -> list[Pod]:
        """Pods without a group that run."""
        pods = [pod_in("", priority=priority) for _ in range(count)]
        for pod in pods:
            self.create(pod)
            assert asyncio.run(self.bind(pod, self.where(pod))) == ""
            self.show(pod)
        return pods

    def evictions(self) -> list[str]:
        """Who is evicted in a round, some seconds later."""
        before = len(self.world.evicted)
        self.pass_time(6.0)
        asyncio.run(self.evictor.look())
        return self.world.evicted[before:]


def with_heir() -> tuple[Preempting, list[Pod], Pod, Pod]:
    """A group that has lost its first member, the pod in its place, and the one that leaves for that."""
    field = Preempting()
    members = field.run_group("train", priority=100)
    others = field.others(4, 0)
    heir = field.member("train", 5, 100)
    field.lose_card(members[0], heir)
    (gone,) = field.evictions()
    victim = next(pod for pod in others if pod.metadata.name == gone)
    field.show(victim, leaving=True)
    return field, members, heir, victim


def test_the_last_member_that_a_group_lacks_preempts():
    """The place of the pod that leaves is held for it, whoever else comes; then the group is whole."""
    field, members, heir, victim = with_heir()
    assert field.evictions() == []
    assert not field.where(heir)
    assert not field.would(heir)
    field.leave(victim)
    assert not field.where(pod_in("", priority=100))
    assert field.would(heir)
    assert not field.where(pod_in("", priority=100))
    assert asyncio.run(field.bind(heir, field.where(heir))) == ""
    assert field.bound(*members[1:], heir) == 4
    assert field.evictions() == []


def test_two_members_that_a_group_lacks_evict_nobody():
    """Room for one would be of no use."""
    field = Preempting()
    members = field.run_group("train", priority=100)
    field.others(4, 0)
    field.lose_card(members[0])
    field.lose_card(members[1])
    heirs = [field.member("train", 5, 100) for _ in range(2)]
    field.create(*heirs)
    assert not any(field.where(heir) for heir in heirs)
    assert field.evictions() == []


def test_a_member_beyond_those_needed_preempts():
    """It goes alone in everything else, too."""
    field = Preempting()
    field.run_group("train", priority=100)
    field.others(4, 0)
    more = field.member("train", 5, 100)
    field.create(more)
    assert not field.where(more)
    assert len(field.evictions()) == 1


@pytest.mark.parametrize("lost", [1, 2])
def test_a_group_for_whose_last_member_others_leave_is_not_evicted_meanwhile(lost: int):
    """It is about to be whole; one that lacks two yields to whoever waits for its cards."""
    field = Preempting()
    members = field.run_group("train", priority=100)
    others = field.others(4, 0)
    for member in members[:lost]:
        field.lose_card(member, field.member("train", 5, 100) if member is members[0] else None)
    rival = pod_in("", priority=100)
    field.create(rival)
    assert not field.where(rival)
    gone = field.evictions()
    assert len(gone) == (2 if lost == 1 else 1), "for the member, and for the rival"
    assert all(name in names(others) for name in gone)
    third = pod_in("", priority=100)
    field.create(third)
    assert not field.where(third)
    evicted = field.look(GRACE + 1)
    assert evicted == ([] if lost == 1 else names(members[2:]))


def test_a_plan_for_a_member_is_given_up_when_its_group_lacks_others():
    """What leaves for it is of no use to it, and is there for whoever waits."""
    field, members, heir, _ = with_heir()
    assert field.ledger.entry(heir.metadata.uid) is not None
    field.leave(members[1])
    field.evictions()
    assert field.ledger.entry(heir.metadata.uid) is None


def test_what_a_pod_leaves_is_kept_for_no_member_whose_group_lacks_others():
    """The member had room as one beyond those needed; it can start no more, and others can."""
    field = Preempting()
    members = field.run_group("train", priority=100)
    others = field.others(4, 0)
    more = field.member("train", 5, 100)
    field.create(more)
    field.show(others[0], leaving=True)
    assert not field.where(more)
    assert field.evictions() == []
    assert field.ledger.entry(more.metadata.uid) is not None
    for member in members[:2]:
        field.leave(member)
    assert field.evictions() == []
    assert field.ledger.entry(more.metadata.uid) is None
    field.leave(others[0])
    assert all(field.where(pod_in("")) for _ in range(3))


def urgent(field: Preempting, count: int) -> list[Pod]:
    """Pods of high priority that wait."""
    pods = [pod_in("", priority=1000) for _ in range(count)]
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    return pods


def test_pods_without_a_group_go_before_those_that_a_group_needs():
    """Two members, one each of two groups, would leave four others idle; they are younger, and stay all the same."""
    field = Preempting()
    alone = field.others(2, 0)
    for name in ("one", "two"):
        field.run_group(name, 3, minute=9)
    urgent(field, 2)
    assert sorted(field.evictions()) == names(alone)


def test_a_member_beyond_those_needed_goes_like_a_pod_without_a_group():
    """The group runs on without it: the youngest goes."""
    field = Preempting()
    field.others(2, 0)
    members = field.run_group("train", 4, minute=9)
    field.needs("train", 3)
    field.others(2, 0)
    urgent(field, 1)
    (gone,) = field.evictions()
    assert gone in names(members)
