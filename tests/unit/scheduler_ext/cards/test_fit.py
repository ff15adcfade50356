"""Where one pod's slices go on one node."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.request.core_policy import CoreMode, CorePolicy
from aliquot.request.placement import Placement
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.fit import _Search, fit, fit_one, phases
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, INIT, SIDECAR, asks, part, pod, state, whole


def cards_of(placement: Placement) -> dict[str, list[str]]:
    """Container name → UUIDs of its cards."""
    return {c.name: [share.uuid for share in c.cards] for c in placement.containers}


def place(
    request: PodRequest, *cards: CardState, policy: Policy = Policy.BINPACK
) -> dict[str, list[str]] | None:
    """UUIDs by container, or None."""
    placement = fit(request, "node", cards, policy)
    return placement and cards_of(placement)


FITS = {
    "the most used card that fits gets the slice": (
        pod(part(4)), [state("a"), state("b", used=8), state("c", used=13)], {"c0": ["b"]},
    ),
    "of equal cards the first one gets it": (pod(part(4)), [state("a"), state("b")], {"c0": ["a"]}),
    "a slice may fill a card to the last MiB": (pod(part(3)), [state("a", used=13)], {"c0": ["a"]}),
    "a slice one MiB too big does not fit": (pod(part(3 + 1 / GIB)), [state("a", used=13)], None),
    "compute is counted as memory is": (
        pod(part(1, cores=50)), [state("a", used_cores=51), state("b", used_cores=50)], {"c0": ["b"]},
    ),
    "a slice without cores goes to a card whose compute is all promised": (
        pod(part(1)), [state("a", used_cores=100)], {"c0": ["a"]},
    ),
    "a card without slices left is full": (pod(part(1)), [state("a", used_slots=10)], None),
    "two cards are two different cards": (pod(part(4, cards=2)), [state("a")], None),
    "several cards of one container are distinct": (
        pod(part(4, cards=2)), [state("a"), state("b", used=14), state("c", used=2)], {"c0": ["c", "a"]},
    ),
    "two containers may share a card, and pack": (
        pod(part(4), part(4)), [state("a"), state("b")], {"c0": ["a"], "c1": ["a"]},
    ),
    "two containers take two cards when one is too small for both": (
        pod(part(9), part(9)), [state("a"), state("b")], {"c0": ["a"], "c1": ["b"]},
    ),
    "the search goes back on a choice that leaves no room": (
        pod(part(4), part(2, cores=60)),
        [state("a", used=12, used_cores=40), state("b", used=8, used_cores=90)],
        {"c0": ["b"], "c1": ["a"]},
    ),
    "an exclusive slice wants an untouched card": (
        pod(whole()), [state("a", used=1), state("b", used_slots=1), state("c")], {"c0": ["c"]},
    ),
    "a card held alone admits nobody": (pod(part(1)), [state("a", holders=1)], None),
    "two exclusive containers of a pod take two cards": (pod(whole(), whole()), [state("a")], None),
    "an unhealthy card is passed over": (
        pod(part(1)), [state("a", used=4, healthy=False), state("b")], {"c0": ["b"]},
    ),
    "a card in MIG mode offers no slices": (pod(part(1)), [state("a", mig=True)], None),
    "an init container runs before the others and needs no room beside them": (
        pod(asks(part(16), INIT), part(16)), [state("a")], {"init": ["a"], "c1": ["a"]},
    ),
    "a sidecar stays and needs room beside the others": (
        pod(asks(part(10), SIDECAR), part(10)), [state("a")], None,
    ),
    "a sidecar needs room beside the init containers after it": (
        pod(asks(part(10), SIDECAR), asks(part(10), INIT), part(1)), [state("a")], None,
    ),
    "a sidecar needs no room beside the init containers before it": (
        pod(asks(part(10), INIT), asks(part(10), SIDECAR), part(1)),
        [state("a")],
        {"init": ["a"], "sidecar": ["a"], "c2": ["a"]},
    ),
    "an init container keeps to its pod's cards": (
        pod(asks(part(2), INIT), part(8)),
        [state("a", used=6), state("b", used=12)],
        {"init": ["a"], "c1": ["a"]},
    ),
    "a pod goes where its init container fits too": (
        pod(asks(part(12), INIT), part(4)), [state("a", used=8), state("b")], {"init": ["b"], "c1": ["b"]},
    ),
    "an init container with more cards than the rest takes others too": (
        pod(asks(part(2, cards=2), INIT), part(8)),
        [state("a", used=6), state("b")],
        {"init": ["a", "b"], "c1": ["a"]},
    ),
    "an init container alone is placed like any other": (
        pod(asks(part(2), INIT)), [state("a", used=6), state("b")], {"init": ["a"]},
    ),
    "a percentage that comes to less than 1 MiB does not fit": (
        pod(part(percent=1)), [state("a", gib=64 / GIB)], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "cards", "expected"), FITS.values(), ids=FITS.keys())
def test_fit(request_: PodRequest, cards: list[CardState], expected: dict[str, list[str]] | None):
    """Each sentence above holds."""
    assert place(request_, *cards) == expected


def test_spread_takes_the_emptiest_card_with_room():
    """The other way round than what packs."""
    cards = [state("a", used=16), state("b"), state("c", used=8)]
    assert place(pod(part(4)), *cards, policy=Policy.SPREAD) == {"c0": ["b"]}


def test_a_percentage_is_of_the_chosen_card_and_rounded_down():
    """33 % of 10,001 MiB are 3,300 MiB, and three of them fit."""
    placement = fit(pod(part(percent=33)), "node", [state("a", gib=10001 / GIB)], Policy.BINPACK)
    assert placement.containers[0].cards[0].memory_mib == 3300


def test_the_placement_names_pod_node_and_containers_in_their_order():
    """Containers are listed as they start, whatever the order of the search was."""
    placement = fit(pod(asks(part(1), INIT), part(2), part(8), uid="u"), "n7", [state("a")], Policy.BINPACK)
    assert (placement.pod_uid, placement.node) == ("u", "n7")
    assert [c.name for c in placement.containers] == ["init", "c1", "c2"]


def test_phases_follow_kubernetes_rules():
    """Each init container runs with the sidecars before it; then sidecars and regular containers together."""
    assert phases([INIT, SIDECAR, INIT, SIDECAR, asks(None).kind]) == [{0}, {1, 2}, {1, 3, 4}]


def test_a_hard_puzzle_ends():
    """A pod that cannot fit is given up after a bounded search, not after every arrangement."""
    cards = [state(f"card-{n}") for n in range(16)]
    puzzle = pod(*[part(9, cards=8) for _ in range(3)])
    assert place(puzzle, *cards) is None


def test_how_time_is_held_travels_with_the_placement() -> None:
    """The agent reads it there, also while the API server is away."""
    policy = CorePolicy(CoreMode.BURST, 60, 5)
    placement = fit(pod(replace(part(4, cores=30), policy=policy)), "node", [state("a")], Policy.BINPACK)
    assert placement
    assert [one.policy for one in placement.containers] == [policy]


loads = st.lists(
    st.builds(
        state,
        st.just(""),
        used=st.sampled_from((0, 4, 12, 15)),
        used_slots=st.sampled_from((0, 1, 10)),
        used_cores=st.sampled_from((0, 80)),
    ),
    min_size=1,
    max_size=5,
)
wanted = st.builds(part, st.sampled_from((1, 4, 10)), st.sampled_from((0, 30)), st.integers(1, 3))


@given(loads, wanted, st.lists(st.integers(0, 4), max_size=5), st.sampled_from(Policy))
@examples(300)
def test_cards_that_are_named_first_are_tried_first_and_the_others_in_the_same_order(
    cards: list[CardState], one: SliceRequest, first: list[int], policy: Policy
):
    """What is tried is the same whether the others are looked at before or after it."""
    first = [n for n in first if n < len(cards)]
    search = _Search([asks(one)], cards, policy, 99, [first])
    assert list(search._choices(0)) == list(search._sets(0))


states = st.builds(
    state,
    st.just(""),
    used=st.sampled_from((0, 4, 12, 15)),
    used_slots=st.sampled_from((0, 1, 10)),
    used_cores=st.sampled_from((0, 80)),
    holders=st.sampled_from((0, 0, 0, 1)),
    healthy=st.sampled_from((True, True, True, False)),
    burst_mib=st.sampled_from((0, 4 * GIB)),
    extra_mib=st.sampled_from((0, 8 * GIB)),
)
anything = st.builds(
    lambda one, exclusive, burst: replace(one, exclusive=exclusive, burst=burst),
    st.builds(part, st.sampled_from((1, 4, 10, 17)), st.sampled_from((0, 30)), st.integers(1, 3)),
    st.booleans(),
    st.booleans(),
)


@given(anything, st.lists(states, min_size=3, max_size=3))
@examples(600)
def test_a_container_that_gets_all_cards_there_are_gets_what_the_search_would_find(
    one: SliceRequest, cards: list[CardState]
):
    """The short way says the same, of who has no room, too."""
    there = [msgspec.structs.replace(card, uuid=f"u{n}") for n, card in enumerate(cards[: one.cards])]
    asked = pod(one)
    found = fit(asked, "node", there, Policy.BINPACK, first={0: range(len(there))})
    assert fit_one(asked, "node", there) == found
