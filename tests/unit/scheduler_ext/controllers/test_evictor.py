"""The worker that evicts for pods that wait always ends, evicts nobody in vain, and waits for no pod that stays."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aliquot.kube.objects import Pod
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from aliquot.scheduler_ext.state.running_pods import RunningPod
from tests.unit.scheduler_ext.evicting import GRACE_SECONDS, Evicting
from tests.unit.scheduler_ext.neighbours import budget, waiter
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota

LATE_SECONDS = 120
"""Longer than any pod that leaves is waited for beyond its grace period."""


def lent() -> Evicting:
    """Two cards, each with two pods of guests, who have 32 of the 16 GiB guaranteed to them; owners reclaim 16."""
    here = Evicting()
    here.quotas.put(quota("guest", "guest", guaranteed=(16, None, None)))
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None), reclaim=True))
    for number, where in enumerate(("n1-a", "n1-a", "n1-b", "n1-b")):
        here.runs(f"guest-{number}", where, 8, namespace="guest", second=number)
    return here


@pytest.mark.timeout(60)
def test_a_borrower_that_ends_by_itself_while_another_is_evicted_stops_nothing() -> None:
    """The guests are within their guarantee by then: nobody else leaves, and the place is kept for the owner."""
    here = lent()
    pod = waiter(16, namespace="owner")
    assert here.wants(pod) == []
    victims = list(here.look())
    assert len(victims) == 2
    assert here.held(pod) == "n1"
    others = [uid for uid in here.where if uid not in victims]
    here.ends(others[0])
    assert here.look(3) == victims
    for uid in victims:
        here.ends(uid)
    assert here.look(3) == victims
    assert here.wants(pod) == ["n1"]


def test_what_is_leaving_is_no_longer_borrowed() -> None:
    """A guest that somebody deletes brings the guests down to their guarantee: no other is evicted."""
    here = lent()
    here.leaves("guest-0")
    here.leaves("guest-3")
    assert here.wants(waiter(16, priority=0, namespace="owner")) == []
    assert here.look(3) == []


def test_nobody_within_a_guarantee_is_evicted_for_a_pod_that_borrows() -> None:
    """Its departure would open the guarantee again, and the pod would be told so."""
    here = Evicting()
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None)))
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="owner")
    pod = waiter(16, priority=1000, namespace="guest")
    assert here.wants(pod) == []
    assert here.look(3) == []
    assert here.victims(pod) == {}
    here.leaves("n1-a")
    here.nominate(pod, "n1")
    here.wants(pod)
    assert here.held(pod) == "", "nothing is held that the pod could not have"


def test_who_borrows_is_evicted_for_another_who_borrows() -> None:
    """Of two pods the one within its guarantee stays, though its priority is lower."""
    here = Evicting()
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.runs("within", "n1-a", 16, namespace="owner", priority=1)
    here.runs("beyond", "n1-b", 16, namespace="others", priority=2)
    pod = waiter(16, namespace="guest")
    assert here.wants(pod) == []
    assert here.victims(pod) == {"n1": {"beyond"}}
    assert here.look() == ["beyond"]
    here.ends("beyond")
    assert here.wants(pod) == ["n1"]


@pytest.mark.parametrize("told", ["before", "after"])
def test_a_guarantee_that_is_written_later_does_not_end_a_hold(told: str) -> None:
    """Nor would it end a pod that runs; nobody is to leave in vain."""
    here = Evicting()
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16, priority=500)
    pod = waiter(16, namespace="guest")
    if told == "before":
        here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    assert here.wants(pod) == []
    assert here.look() == ([] if told == "before" else ["a"])
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.look(2)
    assert here.held(pod) == ("" if told == "before" else "n1")


def test_a_pod_with_room_of_its_own_is_given_victims_for_cpu_whatever_others_are_guaranteed() -> None:
    """Somebody has taken the CPU meanwhile, and kube-scheduler asks who has to leave for that."""
    here = Evicting()
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 16, priority=500)
    pod = waiter(16, namespace="guest")
    here.wants(pod)
    assert here.look() == ["a"]
    here.ends("a")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    assert here.victims(pod, n1=["no-cards"]) == {"n1": {"no-cards"}}


def test_a_pod_that_is_leaving_makes_room_for_one_and_no_more() -> None:
    """Of three that wait the first gets its card; for the others there are victims elsewhere."""
    here = Evicting("n1", "n2")
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16)
    here.leaves("n1-a")
    pods = [waiter(16) for _ in range(3)]
    for pod in pods:
        here.wants(pod)
    assert len(here.look(2)) == 2
    assert "n1-a" not in here.evictions
    assert all(here.held(pod) for pod in pods)


def test_preempt_counts_a_pod_that_is_leaving_for_one_and_no_more() -> None:
    """kube-scheduler asks for three pods: the first waits, the others are given victims."""
    here = Evicting("n1", "n2")
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16)
    here.leaves("n1-a")
    first, second = waiter(16), waiter(16)
    for pod in (first, second):
        here.wants(pod)
    assert here.victims(first) == {}
    assert here.victims(first) == {}
    assert set(here.victims(second)) == {"n1", "n2"}


def test_a_pod_that_does_not_end_is_not_waited_for() -> None:
    """Some time after it should have ended, others are evicted; the place it has is nobody's."""
    here = Evicting("n1", "n2")
    here.runs("stuck", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    here.runs("low", "n2-a", 16)
    here.runs("firm-2", "n2-b", 16, priority=500)
    here.leaves("stuck")
    pod = waiter(16)
    here.wants(pod)
    assert here.look() == []
    assert here.held(pod) == "n1"
    here.now += GRACE_SECONDS + LATE_SECONDS
    assert here.victims(pod) == {"n2": {"low"}}
    assert here.look(20) == ["low"]
    assert here.held(pod) == "n2"


@pytest.mark.parametrize("by", ["the extender", "kube-scheduler"])
def test_a_victim_that_does_not_end_is_not_waited_for(by: str) -> None:
    """Whoever had it evicted: some time after it should have ended, others are."""
    here = Evicting("n1", "n2")
    here.runs("n1-a", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    here.runs("n2-a", "n2-a", 16, second=1)
    here.runs("firm-2", "n2-b", 16, priority=500)
    pod = waiter(16)
    here.wants(pod)
    if by == "kube-scheduler":
        assert here.victims(pod, n2=None) == {"n2": {"n2-a"}}
        here.leaves("n2-a")
        here.nominate(pod, "n2")
        assert here.look(2) == []
    else:
        assert here.look() == ["n2-a"]
    assert here.held(pod) == "n2"
    here.now += GRACE_SECONDS + LATE_SECONDS
    assert "n1-a" in here.look(20)
    assert here.held(pod) == "n1"


@pytest.mark.parametrize("by", ["the same leader", "the next leader"])
def test_a_reclaim_whose_card_fails_is_given_up(by: str) -> None:
    """Another borrower leaves another card instead."""
    here = lent()
    pod = waiter(16, priority=0, namespace="owner")
    assert here.wants(pod) == []
    first = list(here.look())
    (name,) = {here.where[uid][0] for uid in first}
    here.quotas.put(quota("guest", "guest", guaranteed=(0, None, None)))
    here.card_fails(name)
    for uid in first:
        here.ends(uid)
    if by == "the next leader":
        here.nominations.forget(pod.metadata.uid)
        here.waiting.forget(pod.metadata.uid)
        here.evictor = here.worker(lambda: here.now)
        pod = here.stored[pod.metadata.name]
        assert "aliquot.dev/reclaim" in pod.metadata.annotations
    here.wants(pod)
    assert len(here.look(40)) == 4
    assert here.held(pod) == "n1"
    for uid in here.evictions:
        here.ends(uid)
    assert here.wants(pod) == ["n1"]


def test_a_reclaim_whose_card_fails_keeps_no_urgent_pod_waiting() -> None:
    """The owner's pod has a priority, too, and others may be evicted for that."""
    here = lent()
    here.quotas.put(quota("guest", "guest", guaranteed=(16, None, None)))
    pod = waiter(16, priority=1000, namespace="owner")
    assert here.wants(pod) == []
    first = list(here.look())
    here.card_fails(here.where[first[0]][0])
    for uid in first:
        here.ends(uid)
    here.wants(pod)
    assert len(here.look(200)) == 4


def limited(limit: int = 32) -> Evicting:
    """Two nodes; the pods on the first are all that their namespace may have."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("team", "team", "team-2", limit=(limit, None, None)))
    here.runs("low", "n1-a", 16, namespace="team", priority=2)
    here.runs("lower", "n1-b", 16, namespace="team-2", priority=1)
    return here


def test_within_a_limit_a_pod_of_lower_priority_makes_way() -> None:
    """The namespaces of a quota are one; nobody else is evicted."""
    here = limited()
    here.runs("others", "n2-a", 16, namespace="others", priority=0)
    here.runs("others-2", "n2-b", 16, namespace="others", priority=0)
    pod = waiter(16, namespace="team")
    assert here.wants(pod) == []
    assert here.look(3) == ["lower"]
    second = waiter(16, priority=2, namespace="team")
    assert here.wants(second) == []
    assert here.look(3) == ["lower"], "what is held for one counts"
    here.ends("lower")
    assert here.filter.would_place(pod, here.filter.request_of(pod), here.nodes)
    assert here.wants(pod) == ["n1"]


def test_a_pod_makes_way_in_its_quota_wherever_it_is() -> None:
    """The place is on another node, which has room."""
    here = limited(limit=40)
    here.runs("firm", "n1-b", 0.5, namespace="others", priority=500)
    pod = waiter(16, namespace="team")
    body = here.filter.request_of(pod)
    assert here.wants(pod) == []
    here.nodes = ("n2",)
    assert here.wants(pod) == []
    assert here.look(3) == ["lower"]
    assert here.held(pod) == "n2"
    here.ends("lower")
    assert here.filter.would_place(pod, body, here.nodes)
    assert here.wants(pod) == ["n2"]


@pytest.mark.parametrize(
    ("why", "pod"),
    [
        ("one pod may not have so much", waiter(16, namespace="team", **{"aliquot.dev/gpu": "3"})),
        ("nobody in the quota has a lower priority", waiter(16, priority=1, namespace="team")),
    ],
)
def test_nobody_makes_way_in_a_quota_in_vain(why: str, pod: Pod) -> None:
    """However low the others' priority is."""
    here = limited()
    here.runs("others", "n2-a", 16, namespace="others", priority=0)
    assert here.wants(pod) == []
    assert here.look(3) == [], why


def test_a_disruption_budget_holds_within_a_quota() -> None:
    """The pod of the lowest priority is kept by one: the next goes."""
    here = limited()
    here.runs("lower", "n1-b", 16, namespace="team-2", priority=1, labels={"app": "web"})
    here.budgets.put(budget("team-2", 0, app="web"))
    assert here.wants(waiter(16, namespace="team")) == []
    assert here.look(3) == ["low"]


def straddling(guaranteed: int) -> Evicting:
    """A guest's pod of 16 GiB, part of it borrowed; on the other cards everybody is within a guarantee."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("firm", "firm", guaranteed=(32, None, None)))
    here.runs("firm-1", "n1-b", 16, namespace="firm")
    here.runs("firm-2", "n2-b", 16, namespace="firm")
    here.quotas.put(quota("guest", "guest", guaranteed=(guaranteed, None, None)))
    here.quotas.put(quota("other", "other", guaranteed=(16, None, None)))
    here.quotas.put(quota("owner", "owner", guaranteed=(4, None, None), reclaim=True))
    here.runs("straddles", "n1-a", 16, namespace="guest")
    here.runs("within", "n2-a", 16, namespace="other")
    return here


def test_a_pod_that_has_borrowed_in_part_is_reclaimed_where_nothing_else_helps() -> None:
    """What it has borrowed cannot be taken without the rest."""
    here = straddling(12)
    pod = waiter(4, priority=0, namespace="owner")
    assert here.wants(pod) == []
    assert here.look(3) == ["straddles"]
    here.ends("straddles")
    assert here.wants(pod) == ["n1"]


def test_a_pod_that_has_borrowed_nothing_is_not_reclaimed() -> None:
    """Its quota has no more than it is guaranteed."""
    here = straddling(16)
    assert here.wants(waiter(4, priority=0, namespace="owner")) == []
    assert here.look(3) == []


def test_a_pod_that_has_borrowed_in_part_stays_where_others_have_borrowed_in_whole() -> None:
    """On another node, and of a higher priority."""
    here = straddling(12)
    here.quotas.put(quota("other", "other", guaranteed=(0, None, None)))
    here.runs("within", "n2-a", 16, namespace="other", priority=500)
    assert here.wants(waiter(4, priority=0, namespace="owner")) == []
    assert here.look(3) == ["within"]


def test_no_second_pod_is_reclaimed_once_the_first_has_crossed_the_guarantee() -> None:
    """Two pods of 8 GiB, 12 guaranteed: one may go, and one alone is not enough for 16."""
    here = straddling(12)
    here.ends("straddles")
    here.runs("first", "n1-a", 8, namespace="guest")
    here.runs("second", "n1-a", 8, namespace="guest")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None), reclaim=True))
    assert here.wants(waiter(16, priority=0, namespace="owner")) == []
    assert here.look(3) == []


def test_a_search_that_takes_long_is_broken_off_and_counted() -> None:
    """Preempt answers with the nodes that it has come to; the worker takes the best of what it has found."""
    here = Evicting("n1", "n2", "n3")
    for where in ("n1-a", "n1-b", "n2-a", "n2-b", "n3-a", "n3-b"):
        here.runs(where, where, 16, priority=int(where[1]))
    cuts = list[int]()
    here.candidates.cut = lambda: cuts.append(1)
    ticks = itertools.count(step=0.4)
    here.preemption = replace(here.preemption, timer=ticks.__next__)
    pod = waiter(16)
    here.wants(pod)
    assert set(here.victims(pod)) == {"n1", "n2"}
    assert len(cuts) == 1
    here.evictor = here.worker(clock=itertools.count(step=3.0).__next__)
    assert here.look(2) in (["n1-a"], ["n1-b"])
    assert len(cuts) == 2


def test_a_search_on_one_node_ends_however_many_pods_are_spared() -> None:
    """Each search is of fewer pods; after so many it is broken off."""
    here = Evicting()
    for number in range(10):
        here.runs(f"a{number}", "n1-a", 1.6)
    cuts = list[int]()
    here.candidates.cut = lambda: cuts.append(1)
    pod = waiter(8)
    seen = list[int]()

    def none_may_go(pods: Sequence[RunningPod]) -> list[str]:
        seen.append(len(pods))
        return [pods[0].uid]

    here.runs("firm", "n1-b", 16, priority=500)
    borrowing, request = here.candidates.borrowing(), here.filter.request_of(pod)
    found = here.candidates.departure(
        request, "n1", borrowing, lambda one: one.priority < 100, objection=none_may_go
    )
    assert found is None
    assert len(seen) == 6, "ten pods of which five are needed"
    assert not cuts


def kept_for_an_idle_owner() -> Evicting:
    """All cards are lent; 4 GiB are guaranteed to an owner who has nothing, so quotas let nobody borrow more."""
    here = Evicting()
    here.quotas.put(quota("idle", "idle", guaranteed=(4, None, None)))
    here.runs("beyond", "n1-a", 16, namespace="others")
    here.runs("firm", "n1-b", 16, namespace="others", priority=500)
    return here


def test_who_borrows_makes_way_where_nothing_is_left_to_borrow() -> None:
    """With what it gives back there is enough for the pod beside the guarantee, and no more than that."""
    here = kept_for_an_idle_owner()
    small, large = waiter(12, namespace="guest"), waiter(13, priority=200, namespace="guest")
    assert here.wants(large) == []
    assert here.look(3) == []
    assert here.wants(small) == []
    assert here.look(3) == ["beyond"]
    here.ends("beyond")
    assert here.wants(small) == ["n1"]


def test_a_plan_of_pods_that_make_way_and_others_is_carried_out() -> None:
    """What the others give back counts, too, when it is looked at again."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("idle", "idle", guaranteed=(8, None, None)))
    here.quotas.put(quota("team", "team", limit=(40, None, None)))
    here.runs("others", "n1-a", 16, namespace="others", second=1)
    here.runs("mine", "n1-b", 12, namespace="team")
    here.runs("mine-2", "n2-a", 16, namespace="team")
    here.runs("firm", "n2-b", 16, namespace="others", priority=500)
    here.runs("firm-2", "n1-b", 4, namespace="others", priority=500)
    pod = waiter(16, namespace="team")
    for _ in range(20):
        here.wants(pod)
        victims = list(here.look())
        for uid in victims:
            here.ends(uid)
    assert here.wants(pod) != []
    assert victims


def test_what_is_held_for_a_lower_pod_is_the_higher_ones_to_borrow() -> None:
    """Quotas let one of two borrow what is leaving: the one of higher priority, though it comes later."""
    here = Evicting()
    here.quotas.put(quota("idle", "idle", guaranteed=(16, None, None)))
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="others")
        here.leaves(where)
    low, high = waiter(16, priority=10, namespace="guest"), waiter(16, namespace="guest-2")
    here.wants(low)
    here.look()
    assert here.held(low) == "n1"
    here.wants(high)
    here.look(2)
    assert (here.held(low), here.held(high)) == ("", "n1")
    assert here.evictions == []


def test_a_pod_that_was_evicted_is_leaving_before_the_watch_shows_it() -> None:
    """What it leaves is held for the pod that it was evicted for; another one has somebody else evicted."""
    here = Evicting()
    here.runs("first", "n1-a", 8, second=2)
    here.runs("second", "n1-a", 8, second=1)
    here.runs("firm", "n1-b", 16, priority=500)
    pods = [waiter(8), waiter(8)]
    for pod in pods:
        assert here.wants(pod) == []
    here.watch_lags = True
    assert here.look(3) == ["first", "second"]
    for uid in here.evictions:
        here.ends(uid)
    assert [here.wants(pod) for pod in pods] == [["n1"], ["n1"]]


def test_a_pod_that_is_not_deleted_for_long_after_its_eviction_stays() -> None:
    """The API server has said yes, and somebody has kept it from the deletion."""
    here = Evicting()
    here.runs("first", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    assert here.wants(waiter(16)) == []
    here.watch_lags = True
    assert here.look() == ["first"]
    assert here.candidates.leaving() == ["first"]
    here.now += OVERDUE_SECONDS
    assert here.candidates.leaving() == []


def test_pods_leave_in_an_order_in_which_none_is_within_its_guarantee() -> None:
    """The large one leaves the card that is wanted; the small one frees another, but for which all is guaranteed."""
    here = Evicting("n1", "n2")
    here.ledger.put_node("n2", node(card("n2-a"), card("n2-b"), slices=2))
    here.quotas.put(quota("guest", "guest", guaranteed=(14, None, None)))
    here.quotas.put(quota("absent", "absent", guaranteed=(1, None, None)))
    here.runs("large", "n1-a", 16, namespace="guest")
    here.runs("small", "n2-a", 1, namespace="guest")
    here.runs("last slice", "n2-a", 1, priority=500)
    for where in ("n1-b", "n2-b"):
        here.runs(f"firm on {where}", where, 16, priority=500)
    here.wants(waiter(16))
    assert here.look() == ["small", "large"]
