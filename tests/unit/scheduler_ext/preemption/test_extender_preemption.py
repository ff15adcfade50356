"""For whom the extender preempts by itself, and whom it would have evicted; no cluster."""

from dataclasses import replace

import msgspec
import pytest

from aliquot.kube.objects import Pod
from aliquot.request.placement import Placement
from aliquot.scheduler_ext.preemption.extender_preemption import ExtenderPreemption
from aliquot.scheduler_ext.state.pending_pods import PendingPod
from tests.unit.scheduler_ext.neighbours import Neighbours, budget, waiter
from tests.unit.scheduler_ext.teams import quota

PATIENCE_S = 5.0


def ground(here: Neighbours) -> ExtenderPreemption:
    """The ground, with its patience."""
    return ExtenderPreemption(here.candidates, here.nominations, here.waiting, PATIENCE_S)


def refused(here: Neighbours, pod: Pod, seconds: float = PATIENCE_S) -> PendingPod:
    """A pod that filter has refused so long ago."""
    assert here.place_of(pod) == []
    found = here.waiting.get(pod.metadata.uid)
    assert found is not None
    return replace(found, since=here.now - seconds)


def acts(here: Neighbours, waiting: PendingPod) -> bool:
    """Whether others might be evicted for a pod."""
    borrowing = here.candidates.borrowing()
    return ground(here).holds_for(waiting, borrowing) and ground(here).might_help(waiting, borrowing)


def goes(here: Neighbours, waiting: PendingPod, node: str = "n1") -> list[str] | None:
    """Who would leave a node for a pod."""
    departure = ground(here).departure(waiting, node, here.candidates.borrowing())
    return None if departure is None else [pod.uid for pod in departure.pods]


def full(priority: int = 1) -> Neighbours:
    """A node whose two cards are taken."""
    here = Neighbours()
    here.runs("a", "n1-a", 16, priority=priority)
    here.runs("b", "n1-b", 16, priority=priority + 1)
    return here


def polite() -> Pod:
    """A pod whose class is never to preempt."""
    body = msgspec.to_builtins(waiter(8))
    body["spec"]["preemptionPolicy"] = "Never"
    return msgspec.convert(body, Pod)


def test_it_acts_for_who_has_waited_and_no_sooner() -> None:
    """kube-scheduler has had its turn by then."""
    here = full()
    pod = waiter(8)
    assert not acts(here, refused(here, pod, PATIENCE_S - 0.5))
    assert acts(here, refused(here, pod))


@pytest.mark.parametrize(
    ("why", "pod"),
    [
        ("no card is large enough, whoever goes", waiter(32)),
        ("nobody has a lower priority", waiter(8, priority=1)),
        ("its class is never to preempt", polite()),
    ],
)
def test_it_does_not_act_where_that_is_of_no_use(why: str, pod: Pod) -> None:
    """However long the pod has waited."""
    here = full()
    assert not acts(here, refused(here, pod, 3600)), why


def test_for_a_quota_that_is_used_up_it_acts_where_the_quota_has_a_lower_pod() -> None:
    """Cards alone would be of no use."""
    here = full()
    here.quotas.put(quota("default", "default", limit=(33, None, None)))
    here.quotas.put(quota("others", "others", limit=(4, None, None)))
    assert acts(here, refused(here, waiter(8)))
    assert not acts(here, refused(here, waiter(8, priority=1)))
    assert goes(here, refused(here, waiter(8, namespace="others"))) is None


def test_for_what_is_kept_for_others_those_leave_who_have_borrowed() -> None:
    """A card has room, a guarantee keeps it free; as much as the pod asks for has to become free anywhere."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None)))
    here.runs("high", "n2-a", 16, namespace="guest", priority=500)
    for name in ("one", "two", "three"):
        here.runs(name, "n1-a" if name == "one" else "n1-b", 8, namespace="guest", priority=1)
    pod = waiter(8)
    found = goes(here, refused(here, pod))
    assert found is not None
    assert set(found) < {"one", "two", "three"}
    assert len(found) == 2
    here.quotas.put(quota("guest", "guest", guaranteed=(40, None, None)))
    assert goes(here, refused(here, pod)) is None, "who has borrowed nothing stays"


def test_pods_that_have_gone_are_not_lower_any_more() -> None:
    """The extender keeps count of the priorities there are."""
    here = full(priority=1)
    waiting = refused(here, waiter(16, priority=2))
    assert acts(here, waiting)
    here.runs("a", "n1-a", 16, priority=5)
    assert not acts(here, waiting)
    here.runs("c", "n1-a", 0.1, priority=1)
    assert acts(here, waiting)
    here.ends("c")
    assert not acts(here, waiting)


def test_it_names_whom_preempt_would_name() -> None:
    """Of the lower ones the lowest; of a set no one who could stay."""
    here = full()
    pod = waiter(8)
    assert goes(here, refused(here, pod)) == ["a"]
    assert here.victims(pod) == {"n1": {"a"}}
    assert goes(here, refused(here, polite())) is None
    assert goes(here, refused(here, waiter(8, priority=1))) is None


def test_it_breaks_no_budget() -> None:
    """Where preempt may, at last."""
    here = Neighbours()
    here.runs("a", "n1-a", 16, priority=1, labels={"app": "a"})
    here.runs("b", "n1-b", 16, priority=500)
    here.budgets.put(budget("default", 0, app="a"))
    pod = waiter(8)
    assert here.victims(pod) == {"n1": {"a"}}
    assert goes(here, refused(here, pod)) is None


def test_nobody_within_its_guarantee_is_evicted_for_one_that_borrows() -> None:
    """However high its priority, and though enough is free elsewhere for what the guarantee is then short of."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.runs("owned", "n1-a", 16, namespace="owner", priority=1)
    for where in ("n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 8, namespace="guest", priority=200)
    borrower = waiter(9, namespace="guest", priority=100)
    assert goes(here, refused(here, borrower)) is None
    assert here.victims(borrower) == {}
    here.quotas.put(quota("guest", "guest", guaranteed=(33, None, None)))
    assert goes(here, refused(here, borrower)) == ["owned"], "it does not borrow any more"
    here.quotas.put(quota("guest", "guest", guaranteed=(32, None, None)))
    assert goes(here, refused(here, borrower)) is None
    here.quotas.put(quota("owner", "owner", guaranteed=(15, None, None)))
    assert goes(here, refused(here, borrower)) == ["owned"], "it is within its guarantee no longer"


def test_a_pod_for_which_a_place_is_held_borrows_as_it_did_before() -> None:
    """What is held for it is what it asks for, and not what its namespace has beside that."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.runs("owned", "n1-a", 16, namespace="owner", priority=1)
    here.runs("firm", "n1-b", 16, priority=1000)
    pod = waiter(16, namespace="guest", priority=100)
    request = here.filter.request_of(pod)
    held = here.filter.find(pod, request, ["n2"])
    assert isinstance(held, Placement)
    here.ledger.hold(request, held)
    wanted = here.quotas.wanted(request, "n1")
    owned = [one for one in here.running_pods.on("n1") if one[0].uid == "owned"]
    assert here.candidates.borrowing().spared([owned[0][0]], "guest", wanted, request.uid) == {"owned"}


def test_a_reservation_takes_no_pod_that_runs_out_of_its_guarantee() -> None:
    """Others of its namespace have places that they are not bound to yet, as members of a group that wait for more."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.runs("owned", "n1-a", 16, namespace="owner", priority=1)
    here.runs("firm", "n1-b", 16, priority=1000)
    here.runs("other", "n2-a", 16, priority=1000)
    assert here.place_of(waiter(16, namespace="owner")) == ["n2"]
    borrower = waiter(16, namespace="guest", priority=100)
    assert goes(here, refused(here, borrower)) is None
    assert here.victims(borrower) == {}
    here.runs("more", "n2-b", 16, namespace="owner", priority=1)
    assert goes(here, refused(here, borrower)) == ["owned"]


def test_of_what_was_borrowed_no_more_is_taken_for_one_that_borrows() -> None:
    """Two pods leave a quota that has borrowed one; the owner of a guarantee may have both."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="owner", priority=1)
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 8, namespace="guest", priority=200)
    large = waiter(9, namespace="guest", **{"aliquot.dev/gpu": "2"})
    assert goes(here, refused(here, large)) is None
    assert here.victims(large) == {}
    assert here.victims(large, n1=["n1-a", "n1-b"]) == {}, "whatever kube-scheduler would choose"
    assert here.victims(waiter(9, namespace="guest"))["n1"] in ({"n1-a"}, {"n1-b"})
    here.quotas.put(quota("guest", "guest", guaranteed=(34, None, None)))
    assert sorted(goes(here, refused(here, large)) or ()) == ["n1-a", "n1-b"]


def test_what_a_victims_guarantee_keeps_afterwards_another_borrower_makes_up_for() -> None:
    """One pod has what the card lacks, but its departure opens a guarantee; one that has borrowed goes beside it."""
    here = Neighbours()
    here.quotas.put(quota("owner", "owner", guaranteed=(10, None, None)))
    here.runs("large", "n1-a", 8, namespace="owner", priority=1)
    here.runs("small", "n1-a", 4, namespace="owner", priority=2)
    here.runs("high", "n1-b", 8, namespace="guest", priority=100)
    here.runs("other", "n1-b", 4, namespace="guest", priority=3)
    pod = waiter(12)
    assert goes(here, refused(here, pod)) == ["large", "other"]
    here.runs("other", "n1-b", 4, namespace="guest", priority=100)
    assert goes(here, refused(here, pod)) is None, "where none may, nobody goes"


def test_a_used_up_limit_of_a_parent_is_no_reason_to_evict_a_sibling_within_its_guarantee() -> None:
    """Its departure would be enough for the parent's limit."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("top", limit=(32, None, None)))
    here.quotas.put(quota("one", "one", parent="top"))
    here.quotas.put(quota("two", "two", guaranteed=(16, None, None), parent="top"))
    here.runs("two", "n1-a", 16, namespace="two", priority=1)
    here.runs("one", "n1-b", 16, namespace="one", priority=200)
    pod = waiter(8, namespace="one")
    assert goes(here, refused(here, pod), "n2") is None
    here.quotas.put(quota("two", "two", guaranteed=(8, None, None), parent="top"))
    assert goes(here, refused(here, pod), "n2") == ["two"]


def test_for_a_parents_limit_another_child_gives_what_one_within_its_guarantee_keeps() -> None:
    """Of two quotas that have borrowed, the one whose pods go first is left what is guaranteed to it."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("top", limit=(18, None, None)))
    here.quotas.put(quota("one", "one", parent="top"))
    here.quotas.put(quota("two", "two", guaranteed=(8, None, None), parent="top"))
    here.quotas.put(quota("three", "three", parent="top"))
    here.runs("a", "n1-a", 6, namespace="two", priority=1)
    here.runs("b", "n1-b", 6, namespace="two", priority=1)
    here.runs("c", "n2-a", 6, namespace="three", priority=2)
    found = goes(here, refused(here, waiter(12, namespace="one")), "n2")
    assert found is not None
    assert "c" in found
    assert len(found) == 2


def test_a_pod_leaves_in_place_of_a_more_willing_one_beside_which_it_would_be_within_its_guarantee() -> None:
    """The more willing one gives less than the limit needs, and of their quota only one may go."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("top", limit=(16, None, None)))
    here.quotas.put(quota("one", "one", parent="top"))
    here.quotas.put(quota("two", "two", guaranteed=(8, None, None), parent="top"))
    here.runs("small", "n1-a", 3, namespace="two", priority=1)
    here.runs("large", "n1-b", 8, namespace="two", priority=2)
    assert goes(here, refused(here, waiter(12, namespace="one")), "n2") == ["large"]
    here.quotas.put(quota("one", "one", limit=(None, None, 1), parent="top"))
    here.runs("own", "n2-a", 1, namespace="one", priority=3)
    assert sorted(goes(here, refused(here, waiter(12, namespace="one")), "n2") or ()) == ["large", "own"]
    here.quotas.put(quota("two", "two", guaranteed=(12, None, None), parent="top"))
    assert goes(here, refused(here, waiter(12, namespace="one")), "n2") is None, "both are within it"


def test_a_quotas_own_pod_does_not_leave_where_the_card_would_be_anothers_within_its_guarantee() -> None:
    """It leaves another node for the quota's limit; that alone would be in vain."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(16, None, None)))
    here.quotas.put(quota("guest", "guest", limit=(16, None, None)))
    here.runs("owned", "n1-a", 16, namespace="owner", priority=1)
    here.runs("firm", "n1-b", 16, priority=1000)
    here.runs("own", "n2-a", 16, namespace="guest", priority=1)
    here.runs("more", "n2-b", 1, priority=1000)
    pod = waiter(16, namespace="guest")
    assert goes(here, refused(here, pod)) is None
    here.quotas.drop("owner")
    assert sorted(goes(here, refused(here, pod)) or ()) == ["own", "owned"]


def test_what_leaves_for_a_lower_pod_is_counted_as_the_higher_ones() -> None:
    """What leaves for a pod of the same priority is not."""
    here = full()
    first = waiter(16, priority=50)
    here.nominations.claim(first, here.filter.request_of(first), {"n1": ("a",)})
    here.nominations.grant(first.metadata.uid, "n1")
    here.runs("a", "n1-a", 16, priority=1, leaving=True)
    assert goes(here, refused(here, waiter(16, priority=50))) == ["b"]
    assert goes(here, refused(here, waiter(16, priority=51))) == []
    assert here.ledger.entry(first.metadata.uid) is not None, "its place is held again"


def test_preempt_names_no_other_node_than_where_others_leave_already() -> None:
    """kube-scheduler may come to preempt after all, for CPU."""
    here = Neighbours("n1", "n2")
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16, priority=1)
    pod = waiter(16)
    here.nominations.claim(pod, here.filter.request_of(pod), {"n2": ("n2-a",)})
    here.nominations.grant(pod.metadata.uid, "n2")
    assert set(here.victims(pod, n1=["cpu-1"], n2=["cpu-2"])) == {"n2"}
    assert here.victims(pod, n1=["cpu-1"]) == {}, "where kube-scheduler does not offer that node, either"
    here.nominations.revoke(pod.metadata.uid)
    assert set(here.victims(pod, n1=["cpu-1"], n2=["cpu-2"])) == {"n1", "n2"}
    here.nominations.grant(pod.metadata.uid, "n2")
    here.runs("n2-a", "n2-a", 16, priority=1, leaving=True)
    assert here.victims(pod) == {}


def test_without_preemption_nobody_leaves_for_a_slice() -> None:
    """Pods without slices are kube-scheduler's own business."""
    here = full()
    here.preemption = replace(here.preemption, enabled=False)
    assert here.victims(waiter(8)) == {}
    plain = msgspec.convert({"metadata": {"name": "p", "uid": "p"}, "spec": {"priority": 9}}, Pod)
    assert here.victims(plain, n1=["cpu-1"]) == {"n1": {"cpu-1"}}
