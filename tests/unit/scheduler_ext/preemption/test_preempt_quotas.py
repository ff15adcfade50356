"""Where a quota bars a pod, others leave than those whose cards it needs, or than kube-scheduler names for CPU."""

import pytest

from aliquot.scheduler_ext.preemption.extender_preemption import ExtenderPreemption
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.pending_pods import PendingPod
from tests.unit.scheduler_ext.evicting import Evicting
from tests.unit.scheduler_ext.neighbours import Neighbours, budget, waiter
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota


@pytest.mark.parametrize("guaranteed", [0, 8])
def test_more_leave_than_kube_scheduler_names_where_a_quota_bars_the_pod(guaranteed: int) -> None:
    """Its victim frees CPU and the card; what is free then is kept for others, unless one that has borrowed goes."""
    here = Neighbours()
    here.filter.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.filter.quotas.put(quota("guest", "guest", guaranteed=(guaranteed, None, None)))
    here.runs("first", "n1-a", 4, second=1, namespace="guest")
    here.runs("second", "n1-a", 4, second=2, namespace="guest")
    here.runs("low", "n1-b", 4)
    found = here.victims(waiter(12), n1=["low"])
    assert found == ({} if guaranteed else {"n1": {"low", "second"}})


def test_more_leave_where_only_the_guarantee_of_one_that_has_to_leave_bars_the_pod() -> None:
    """The card needs the departure of a pod whose guarantee is open then; one that has borrowed makes up for it."""
    here = Neighbours()
    here.filter.quotas.put(quota("owner", "owner", guaranteed=(10, None, None)))
    here.runs("large", "n1-a", 8, namespace="owner")
    here.runs("small", "n1-a", 4, namespace="owner", priority=500)
    here.runs("high", "n1-b", 8, priority=500)
    here.runs("other", "n1-b", 4, namespace="guest")
    here.runs("low", "n1-b", 1)
    assert here.victims(waiter(12), n1=["low"]) == {"n1": {"low", "large", "other"}}


def test_a_disruption_budget_that_kube_schedulers_victim_uses_up_keeps_the_others() -> None:
    """It lets one pod go."""
    here = Neighbours()
    here.filter.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.budgets.put(budget("default", 1, app="x"))
    here.runs("low", "n1-b", 4, labels={"app": "x"})
    here.runs("more", "n1-a", 8, labels={"app": "x"})
    assert here.victims(waiter(12), n1=["low"]) == {}


def test_nobody_leaves_for_a_quota_where_kube_scheduler_names_nobody() -> None:
    """The extender does that itself, on whatever node the lowest pod of the quota is."""
    here = Neighbours("n1", "n2")
    here.filter.quotas.put(quota("mine", "mine", limit=(16, None, None)))
    here.runs("low", "n1-a", 8, namespace="mine")
    here.runs("middle", "n2-a", 8, namespace="mine", priority=50)
    assert here.victims(waiter(8, namespace="mine"), n2=None) == {}


def test_rather_a_pod_of_the_same_quota_leaves_than_one_that_has_borrowed() -> None:
    """Either would do; what a team has too much of it gives up itself."""
    here = Neighbours()
    here.filter.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.filter.quotas.put(quota("mine", "mine"))
    here.runs("mate", "n1-a", 4, namespace="mine", priority=5)
    here.runs("guest", "n1-a", 4, namespace="guest")
    here.runs("low", "n1-b", 4)
    assert here.victims(waiter(12, namespace="mine"), n1=["low"]) == {"n1": {"low", "mate"}}


def test_in_room_of_its_own_a_pod_is_held_to_its_own_limit_alone() -> None:
    """A guarantee that was written since does not count there, and a pod of its quota makes way for the limit."""
    here = Evicting()
    here.runs("a", "n1-a", 16)
    here.runs("mate", "n1-b", 8, namespace="guest", priority=1)
    here.runs("b", "n1-b", 8, priority=500)
    pod = waiter(16, namespace="guest")
    here.wants(pod)
    assert here.look() == ["a"]
    here.ends("a")
    here.quotas.put(quota("guest", "guest", limit=(20, None, None)))
    here.quotas.put(quota("owner", "owner", guaranteed=(24, None, None)))
    assert here.victims(pod, n1=["no-cards"]) == {"n1": {"no-cards", "mate"}}


def test_what_is_asked_of_all_pods_that_run_is_asked_once_for_all_that_wait_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a round; thousands of pods may wait for the same quota."""
    asked: list[str] = []

    def asking(_: ExtenderPreemption, waits: PendingPod, _borrowing: Borrowing) -> bool:
        asked.append(waits.request.uid)
        return False

    monkeypatch.setattr(ExtenderPreemption, "might_help", asking)
    here = Evicting()
    here.quotas.put(quota("mine", "mine", limit=(1, None, None)))
    here.runs("low", "n1-a", 16, priority=1)
    for _ in range(5):
        here.wants(waiter(8, namespace="mine"))
    here.look()
    assert len(asked) == 1


def test_a_pod_leaves_without_which_a_card_has_slots_where_a_quota_lacks_what_that_card_has() -> None:
    """Its two slots are taken by small pods within their guarantee; the other card has room, and not all its time."""
    here = Evicting()
    here.ledger.put_node("n1", node(card("n1-a"), card("n1-b"), slices=2))
    here.quotas.put(quota("owner", "owner", guaranteed=(16, 50, None)))
    here.quotas.put(quota("mine", "mine", guaranteed=(8, None, None)))
    for name, where in (("one", "n1-a"), ("two", "n1-b"), ("three", "n1-b")):
        here.runs(name, where, 1, namespace="owner", priority=500 if name == "one" else 1)
    pod = waiter(8, namespace="mine", **{"aliquot.dev/gpu-core": "100"})
    here.wants(pod)
    assert len(here.look(3)) == 1
    assert here.evictions[0] in ("two", "three")
    here.ends(here.evictions[0])
    assert here.wants(pod) == ["n1"]


@pytest.mark.parametrize("younger", ["n1-a", "n1-b"])
def test_of_an_owner_that_has_borrowed_for_one_pod_not_two_leave_where_others_can(younger: str) -> None:
    """Each of its pods is borrowed, and not both: a borrower of higher priority leaves the other card."""
    here = Evicting()
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    for where, count in (("n1-a", 3), ("n1-b", 2)):
        for number in range(count):
            second = 30 + number if where == younger else number
            here.runs(f"{where} {number}", where, 4, namespace="owner", priority=1, second=second)
    here.runs("low", "n1-b", 3, namespace="others", priority=1, second=10)
    here.runs("middle", "n1-b", 3, namespace="more", priority=10, second=10)
    pod = waiter(8, namespace="mine", **{"aliquot.dev/gpu": "2"})
    here.wants(pod)
    assert {uid.partition(" ")[0] for uid in here.look(3)} == {"n1-a", "low", "middle"}
    assert len(here.evictions) == 3
