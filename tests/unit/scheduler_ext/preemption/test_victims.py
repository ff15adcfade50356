"""Who has to leave a node: what is found suffices, through the placing code itself, and nobody of it could stay."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aliquot.api.links import Level, Link
from aliquot.request.placement import Charge
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.card_sets import Sets
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.fit import fit
from aliquot.scheduler_ext.cards.topology import Shape
from aliquot.scheduler_ext.preemption.victims import Victim, least, place_after, relieved
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, INIT, SIDECAR, asks, part, pod, state, whole

POLICY = Policy.BINPACK
SIZES = (2, 4, 6, 8, 12, 16)


def leaver(uid: str, rank: int = 0, since: float = 0, **gib: float) -> Victim:
    """A pod that has so many GiB of each card, without compute."""
    charges = {card: Charge(int(amount * GIB), 0, 1) for card, amount in gib.items()}
    return Victim(uid, charges, rank, since)


def loaded(cards: Sequence[CardState], leavers: Iterable[Victim]) -> list[CardState]:
    """The cards with these pods on them, too."""
    for one in leavers:
        cards = [_with(card, one.charges[card.uuid]) if card.uuid in one.charges else card for card in cards]
    return list(cards)


def _with(card: CardState, charge: Charge) -> CardState:
    return msgspec.structs.replace(
        card,
        used_mib=card.used_mib + charge.memory_mib,
        burst_mib=card.burst_mib + charge.burst_mib,
        used_cores=card.used_cores + charge.cores,
        used_slots=card.used_slots + charge.slots,
        holders=card.holders + charge.exclusive,
    )


def names(found: Iterable[Victim] | None) -> set[str] | None:
    """The pods by name."""
    return None if found is None else {one.uid for one in found}


def found_on(cards: Sequence[CardState], request: PodRequest, *leavers: Victim) -> set[str] | None:
    """Who has to leave these cards once the pods are on them."""
    return names(least(request, "n", loaded(cards, leavers), leavers, POLICY))


def test_nobody_leaves_a_card_that_is_too_far_from_nics() -> None:
    """Of two full cards one is near: who is on that one leaves, though the other would go more gladly."""
    sets = Sets(Shape(2, (Link(Level.SYS),), (), ((0b10, 1),)))
    cards = [msgspec.structs.replace(state(uuid), sets=sets, column=n) for n, uuid in enumerate("ab")]
    near = replace(part(8), rdma=Rdma.PCIE)
    there = (leaver("x", a=16), leaver("y", 5, b=16))
    assert found_on(cards, pod(part(8)), *there) == {"x"}
    assert found_on(cards, pod(near), *there) == {"y"}
    assert found_on(cards, pod(replace(near, cards=2)), *there) is None


def test_those_leave_who_are_on_cards_that_are_linked_as_demanded() -> None:
    """Four cards in two pairs; the pair that costs least is freed, not the two cards that do."""
    far, near = Link(Level.SYS), Link(Level.NODE, 4)
    sets = Sets(Shape(4, (near, far, far, far, far, near)))
    cards = [msgspec.structs.replace(state(uuid), sets=sets, column=n) for n, uuid in enumerate("abcd")]
    there = [
        leaver(f"on-{uuid}", rank, **{uuid: 16}) for uuid, rank in zip("abcd", (0, 9, 1, 2), strict=True)
    ]
    wanted = part(8, cards=2)
    assert found_on(cards, pod(wanted), *there) == {"on-a", "on-c"}
    assert found_on(cards, pod(replace(wanted, topology=Topology.NVLINK)), *there) == {"on-c", "on-d"}


def test_nobody_leaves_where_there_is_room() -> None:
    """A request that fits costs nothing."""
    assert found_on([state("a")], pod(part(8)), leaver("x", a=8)) == set()


def test_nobody_leaves_where_enough_cards_have_room() -> None:
    """A full card more is no reason to ask those on it."""
    full = leaver("x", a=16), leaver("y", 3, c=10)
    assert found_on([state("a"), state("b"), state("c")], pod(part(8, cards=1)), *full) == set()
    assert found_on([state("b"), state("d"), state("a"), state("c")], pod(part(8, cards=2)), *full) == set()
    assert found_on([state("b"), state("d"), state("a"), state("c")], pod(part(8, cards=3)), *full) == {"x"}


def test_overcommitted_memory_that_is_given_up_is_no_guaranteed_memory() -> None:
    """Whoever had memory that need not be there goes more gladly, and what is left of the card is not worth more."""
    card = msgspec.structs.replace(state("a"), extra_mib=16 * GIB)
    burst = Victim("burst", {"a": Charge(12 * GIB, 0, 1, burst_mib=12 * GIB)})
    assert found_on([card], pod(part(8)), burst, leaver("held", 5, a=12)) == {"held"}


def test_a_request_that_no_departure_helps_gets_none() -> None:
    """The card is too small, or somebody stays."""
    assert found_on([state("a")], pod(part(17)), leaver("x", a=8)) is None
    assert found_on([state("a", used=12)], pod(part(4)), leaver("x", a=4)) == {"x"}
    assert found_on([state("a", used=12)], pod(part(5)), leaver("x", a=4)) is None


def test_the_lowest_rank_goes_even_where_more_pods_have_to() -> None:
    """Two of rank 0 rather than one of rank 1."""
    pods = leaver("x", 1, a=8), leaver("y", 0, b=4), leaver("z", 0, b=4), leaver("w", 1, b=8)
    assert found_on([state("a", used=8), state("b")], pod(part(8)), *pods) == {"y", "z"}


def test_fewest_of_a_rank_go() -> None:
    """One of 8 GiB rather than two of 4."""
    pods = leaver("x", 0, 9, a=4), leaver("y", 0, 9, a=4), leaver("z", 0, 1, a=8)
    assert found_on([state("a")], pod(part(8)), *pods) == {"z"}


def test_the_youngest_of_equals_goes() -> None:
    """Whoever started last has least to lose."""
    pods = leaver("old", 0, 1, a=8), leaver("young", 0, 3, b=8), leaver("middle", 0, 2, b=8)
    assert found_on([state("a", used=8), state("b")], pod(part(8)), *pods) == {"young"}


def test_a_card_of_ones_own_is_left_by_everybody() -> None:
    """And only that card."""
    pods = leaver("x", a=4), leaver("y", a=4), leaver("z", b=4)
    assert found_on([state("a"), state("b")], pod(whole()), *pods) == {"z"}


def test_one_pod_on_many_cards_goes_rather_than_one_of_each() -> None:
    """It frees all of them at once."""
    wide = leaver("wide", a=8, b=8)
    assert found_on(
        [state("a"), state("b")], pod(part(8, cards=2)), wide, leaver("x", a=8), leaver("y", b=8)
    ) in ({"wide"}, {"x", "y"})
    assert found_on([state("a", used=8), state("b", used=8)], pod(part(8, cards=2)), wide) == {"wide"}


def test_who_is_not_needed_after_all_stays() -> None:
    """Of one card by itself the younger would go; but the elder has to leave the other card anyhow."""
    wide, young = leaver("wide", 0, 1, a=8, b=8), leaver("young", 0, 5, a=8)
    assert found_on([state("a"), state("b", used=8)], pod(part(8, cards=2)), wide, young) == {"wide"}


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[CardState], list[Victim]]:
    """A node's cards with pods on them, some of which may not leave."""
    uuids = [f"c{n}" for n in range(draw(st.integers(1, 3)))]
    cards = [state(uuid, gib=draw(st.sampled_from((8, 16))), slots=4) for uuid in uuids]
    leavers: list[Victim] = []
    for number in range(draw(st.integers(0, 7))):
        on = draw(st.sets(st.sampled_from(uuids), min_size=1, max_size=2))
        charge = draw(charges())
        one = Victim(
            f"p{number}", dict.fromkeys(on, charge), draw(st.integers(0, 2)), draw(st.integers(0, 3))
        )
        then = loaded(cards, [one])
        if all(_sound(card) for card in then):
            cards = then
            if draw(st.integers(0, 5)):
                leavers.append(one)
    return cards, leavers


@st.composite
def charges(draw: st.DrawFn) -> Charge:
    """What a pod has of each of its cards."""
    mib = draw(st.sampled_from((1, 2, 4, 8))) * GIB
    burst = draw(st.sampled_from((0, 0, mib)))
    return Charge(mib, draw(st.sampled_from((0, 0, 25, 50))), 1, not draw(st.integers(0, 9)), burst)


def _sound(card: CardState) -> bool:
    """Nothing is promised twice."""
    lone = card.holders == 0 or card.used_slots == 1
    return card.used_mib <= card.usable_mib and card.used_cores <= 100 and card.used_slots <= 4 and lone


slices = st.one_of(
    st.builds(part, st.sampled_from((1, 3, 8, 16)), st.sampled_from((0, 30, 60)), st.integers(1, 2)),
    st.builds(whole, st.integers(1, 2)),
)
inits = st.builds(asks, slices, st.sampled_from((INIT, SIDECAR)), st.just("first"))
requests = st.one_of(
    st.lists(slices, min_size=1, max_size=2).map(lambda some: pod(*some)),
    st.builds(pod, inits, slices),
)


@given(nodes(), requests)
@examples(200)
def test_what_is_found_suffices_and_nobody_of_it_could_stay(
    there: tuple[list[CardState], list[Victim]], request: PodRequest
) -> None:
    """Asked of the placing code itself, for whoever is found and for every one of them left out."""
    cards, leavers = there
    found = least(request, "n", cards, leavers, POLICY)
    if found is None:
        assert fit(request, "n", relieved(cards, leavers), POLICY) is None
        return
    assert place_after(request, "n", cards, found, POLICY) is not None
    for one in found:
        others = [other for other in found if other is not one]
        assert place_after(request, "n", cards, others, POLICY) is None, one


@given(nodes(), slices)
@examples(150)
@example(
    (loaded([state("a")], [leaver("x", 0, a=8), leaver("y", 0, a=8)]), [leaver("y", 0, a=8)]),
    part(8),
)
def test_of_all_sets_the_least_is_found_for_a_slice_of_one_card(
    there: tuple[list[CardState], list[Victim]], wanted: object
) -> None:
    """Compared with every set there is."""
    cards, leavers = there
    request = pod(wanted)  # type: ignore[arg-type]
    assume(request.containers[0].slice is not None and request.containers[0].slice.cards == 1)
    found = least(request, "n", cards, leavers, POLICY)
    all_sets = [some for size in range(len(leavers) + 1) for some in combinations(leavers, size)]
    enough = [some for some in all_sets if place_after(request, "n", cards, some, POLICY) is not None]
    assert (found is None) == (not enough)
    if found is not None:
        assert worth(found) == min(map(worth, enough))


def worth(some: Iterable[Victim]) -> tuple[list[int], list[float]]:
    """What a set costs, in the words of the documentation."""
    chosen = sorted(some, key=lambda one: (-one.rank, one.since))
    return [one.rank for one in chosen], [-one.since for one in chosen]
