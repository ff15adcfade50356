"""What is lent of guarantees is what their owners could have: room on nodes that take pods."""

from typing import Any

import msgspec
import pytest

from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.evicting import Evicting
from tests.unit.scheduler_ext.neighbours import Neighbours, waiter
from tests.unit.scheduler_ext.placing import GIB, card, node, node_object
from tests.unit.scheduler_ext.teams import quota


def shared(*, lends: bool = True) -> Neighbours:
    """Two nodes of 32 GiB, half of all guaranteed to an owner who has nothing."""
    here = Neighbours("n1", "n2", lends=lends)
    here.ledger.on_change(here.waiting.something_changed)
    here.quotas.on_change(here.waiting.something_changed)
    here.ledger.hosts.on_turn(here.quotas.room_changed)
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None)))
    for name in here.nodes:
        here.feed.put_host(node_object(name))
    return here


def borrows(here: Neighbours) -> bool:
    """Whether a guest gets a place."""
    return here.place_of(waiter(16, namespace="guest")) != []


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("it is cordoned", {"cordoned": True}),
        ("it is not ready", {"ready": "False"}),
        ("its kubelet is silent", {"ready": "Unknown"}),
        ("its kubelet offers no slices", {"aliquot.dev/gpu": "0"}),
        ("its CPU is gone", {"cpu": "50m"}),
        ("its memory is gone", {"memory": "1Mi"}),
    ],
)
def test_a_node_that_takes_no_pods_is_not_lent_against(why: str, state: dict[str, Any]) -> None:
    """What it has free would be of no use to the owner; once it takes pods, it is."""
    here = shared()
    here.feed.put_host(node_object("n2", **state))
    assert not borrows(here), why
    changes = here.waiting.changes
    here.feed.put_host(node_object("n2"))
    assert here.waiting.changes > changes
    assert borrows(here)


def test_a_node_full_of_other_pods_is_not_lent_against() -> None:
    """Until some of them end."""
    here = shared()
    big = [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]
    body = {
        "metadata": {"uid": "plain", "name": "plain"},
        "spec": {"nodeName": "n2", "containers": big},
        "status": {"phase": "Running"},
    }
    here.feed.put_pod(msgspec.convert(body, PlacedPod))
    assert not borrows(here)
    here.ends("plain")
    assert borrows(here)


def test_the_owner_gets_what_is_guaranteed_beside_a_node_that_takes_no_pods() -> None:
    """Guests have borrowed nothing of it."""
    here = shared()
    here.feed.put_host(node_object("n2", cordoned=True))
    here.nodes = ("n1",)
    assert not borrows(here)
    for _ in range(2):
        assert here.place_of(waiter(16, namespace="owner")) == ["n1"]


def with_cards() -> Neighbours:
    """Two nodes with four cards, two of them guaranteed to an owner who has nothing."""
    here = Neighbours("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(None, None, 2)))
    return here


def test_guaranteed_cards_are_whole_cards() -> None:
    """Though a card has ten slices, and those of the others are large or small."""
    here = with_cards()
    assert [here.place_of(waiter(16, namespace="guest")) != [] for _ in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert [here.place_of(waiter(16, namespace="owner")) != [] for _ in range(2)] == [True, True]


@pytest.mark.parametrize(("gib", "number"), [(8, 3), (4, 5), (1, 11)])
def test_parts_of_cards_add_up_to_cards(gib: int, number: int) -> None:
    """Guests have places until less than the owner's two cards, and one more for the next guest, would be left."""
    here = with_cards()
    placed = [here.place_of(waiter(gib, namespace="guest")) != [] for _ in range(40)]
    assert sum(placed) >= number
    left = 64 - gib * sum(placed)
    assert left >= 32


def test_guaranteed_cards_that_are_in_use_are_nothing_to_keep() -> None:
    """The owner has its two."""
    here = with_cards()
    for _ in range(2):
        assert here.place_of(waiter(16, namespace="owner"))
    assert [here.place_of(waiter(16, namespace="guest")) != [] for _ in range(3)] == [True, True, False]


def test_what_an_owner_that_reclaims_has_no_use_for_is_lent() -> None:
    """All of it, and it gets it back by reclaim; what it has use for is its own."""
    here = shared()
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    assert [borrows(here) for _ in range(4)] == [True] * 4
    here = shared()
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    here.quotas.put(quota("other", "other", guaranteed=(16, None, None)))
    assert [borrows(here) for _ in range(4)] == [True, True, True, False], "another keeps its own"


def test_nothing_is_lent_where_nobody_reclaims() -> None:
    """The administrator has switched reclaim off for the whole cluster."""
    here = shared(lends=False)
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    assert [borrows(here) for _ in range(4)] == [True, True, False, False]


def test_of_a_family_the_children_lend_what_they_reclaim() -> None:
    """What the parent guarantees beyond them is kept for whichever of them comes first."""
    here = shared()
    here.quotas.drop("owner")
    here.quotas.put(quota("top", guaranteed=(48, None, None)))
    here.quotas.put(quota("child", "child", guaranteed=(32, None, None), parent="top", reclaim=True))
    assert [borrows(here) for _ in range(4)] == [True, True, True, False]


def test_a_child_that_reclaims_lends_to_its_sibling() -> None:
    """Of the parent's guarantee."""
    here = shared()
    here.quotas.drop("owner")
    here.quotas.put(quota("other", "other", guaranteed=(32, None, None)))
    here.quotas.put(quota("top", guaranteed=(32, None, None)))
    here.quotas.put(quota("one", "one", guaranteed=(32, None, None), parent="top"))
    here.quotas.put(quota("two", "two", parent="top"))
    sibling = waiter(16, namespace="two")
    assert not here.place_of(sibling)
    here.quotas.put(quota("one", "one", guaranteed=(32, None, None), parent="top", reclaim=True))
    assert here.place_of(sibling)


def test_nobody_is_evicted_in_favour_of_what_would_be_lent_then() -> None:
    """The owner's pod would be reclaimed for at once: what its departure opens is kept from the borrower."""
    here = shared()
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    here.runs("over", "n1-a", 16, namespace="owner")
    here.runs("owned", "n1-b", 16, namespace="owner")
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 16, namespace="guest", priority=500)
    borrower = waiter(16, namespace="guest")
    assert here.victims(borrower) == {}
    request = here.filter.request_of(borrower)
    gone = [pod for pod, _ in here.running_pods.on("n1") if pod.uid == "owned"]
    assert here.candidates.borrowing().barred(request, "n1", gone)
    here.ends("owned")
    assert not here.candidates.borrowing().barred(request, "n1")


def test_an_owner_of_cards_that_leave_is_not_evicted_for_a_borrower() -> None:
    """A slice of the owner's is a card of its guarantee, however small it is."""
    here = with_cards()
    here.runs("small", "n1-a", 4, namespace="owner")
    here.runs("small-2", "n1-b", 4, namespace="owner")
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 16, priority=500)
    assert here.victims(waiter(16, namespace="guest")) == {}


def lent(kept: int = 0) -> Evicting:
    """Four cards of 16 GiB, two guaranteed to an owner who reclaims them, and so many GiB to another who does not."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    here.quotas.put(quota("other", "other", guaranteed=(kept, None, None)))
    return here


def test_what_was_lent_comes_back_to_the_owner() -> None:
    """As many guests are evicted as it needs, for each of its pods."""
    here = lent()
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16, namespace="guest", priority=1000)
    for count in (1, 2):
        pod = waiter(16, priority=0, namespace="owner")
        assert here.wants(pod) == []
        assert len(here.look(3)) == count
        here.ends(here.evictions[-1])
        assert here.wants(pod) != []
    assert here.wants(waiter(16, priority=0, namespace="owner")) == []
    assert len(here.look(3)) == 2, "it would borrow itself"


def test_owners_that_reclaim_leave_free_what_is_kept_for_those_that_do_not() -> None:
    """These could not get it back. The owner has guests evicted, on whatever node they are."""
    here = lent(kept=32)
    here.nodes = ("n2",)
    here.runs("guest-1", "n1-a", 16, namespace="guest")
    here.runs("guest-2", "n1-b", 16, namespace="guest", second=1)
    first, second = (waiter(16, priority=0, namespace="owner") for _ in range(2))
    assert here.wants(first) == []
    assert here.look(3) == ["guest-2"]
    here.ends("guest-2")
    assert here.wants(first) == ["n2"]
    here.nodes = ("n1", "n2")
    assert here.wants(second) == []
    assert here.look(3) == ["guest-2", "guest-1"]
    here.ends("guest-1")
    assert here.wants(second) != []
    assert [here.place_of(waiter(16, namespace="other")) != [] for _ in range(2)] == [True, True]


def test_where_a_pod_has_borrowed_in_part_another_makes_up_for_the_guarantee_that_it_leaves() -> None:
    """That guarantee is kept from the owner, too; one that has borrowed in whole goes beside."""
    here = Evicting()
    here.quotas.put(quota("owner", "owner", guaranteed=(24, None, None), reclaim=True))
    here.quotas.put(quota("kept", "kept", guaranteed=(10, None, None)))
    here.runs("mine", "n1-b", 8, namespace="owner")
    here.runs("large", "n1-a", 16, namespace="kept")
    here.runs("guest", "n1-b", 4, namespace="guest")
    here.wants(waiter(12, priority=0, namespace="owner"))
    assert here.look(3) == ["large", "guest"]


def test_an_owner_that_has_to_evict_is_told_so() -> None:
    """What is free is another's, though the owner is within its guarantee."""
    here = lent(kept=32)
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="guest")
    told = here.quotas.barred(here.filter.request_of(waiter(16, namespace="owner")))
    (why,) = set(told.values())
    assert why == (
        "GPUQuota owner: namespace owner asks for 16Gi of GPU memory within its guarantee, and of 32Gi free in the "
        "cluster 32Gi are kept for others that do not reclaim; wait for pods that have borrowed to end or to be evicted"
    )


def test_owners_leave_nothing_free_where_nobody_has_borrowed() -> None:
    """All guarantees together are more than the cards: whoever comes first has them."""
    here = lent(kept=64)
    assert [here.place_of(waiter(16, namespace="owner")) != [] for _ in range(3)] == [True, True, False]


def test_a_card_without_a_slice_left_has_nothing_that_could_be_lent() -> None:
    """What is left of its memory nobody can have, neither a borrower nor the owner of a guarantee."""
    here = Neighbours("n1")
    here.ledger.put_node("n1", node(card("n1-a"), card("n1-b"), slices=1))
    here.runs("small", "n1-a", 1)
    assert here.ledger.accounts.free("").memory_mib == 16 * GIB
    here.ends("small")
    assert here.ledger.accounts.free("").memory_mib == 32 * GIB
