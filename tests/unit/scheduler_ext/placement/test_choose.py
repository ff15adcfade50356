"""Which of many nodes gets a pod, and what is said of the others."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.cards.fit import fit
from aliquot.scheduler_ext.placement.placer import Choice, Placer
from tests.tools.examples import examples
from tests.unit.scheduler_ext.placing import GIB, INIT, REGULAR, SIDECAR, asks, part, pod, state, whole


def table(**nodes: list[CardState]) -> CardTable:
    """A cluster of these nodes."""
    made = CardTable()
    for name, cards in nodes.items():
        made.put(name, cards)
    return made


def choose(cluster: CardTable, request: PodRequest, names: list[str], policy: Policy) -> Choice:
    """The choice of a placer that has seen nothing before."""
    return Placer(cluster, Preference(policy, policy)).choose(request, names)


def node_of(cluster: CardTable, request: PodRequest, policy: Policy = Policy.BINPACK) -> str | None:
    """The node chosen among all."""
    placement = choose(cluster, request, sorted(cluster.nodes()), policy).placement
    return placement and placement.node


def test_the_node_with_the_fullest_card_that_fits_wins():
    """Binpack looks at cards, not at node totals."""
    cluster = table(a=[state("a0", used=8), state("a1", used=8)], b=[state("b0", used=10), state("b1")])
    assert node_of(cluster, pod(part(4))) == "b"


def test_a_full_card_attracts_nobody():
    """Only cards with room count for the score."""
    cluster = table(a=[state("a0", used=15), state("a1")], b=[state("b0", used=1)])
    assert node_of(cluster, pod(part(4))) == "b"


def test_ties_go_to_the_most_used_node_and_then_to_the_smallest_name():
    """Equal states give equal answers, whatever the order in which nodes are offered."""
    cluster = table(c=[state("c0"), state("c1")], a=[state("a0"), state("a1")])
    assert choose(cluster, pod(part(4)), ["c", "a"], Policy.BINPACK).placement.node == "a"
    cluster.put("b", [state("b0"), state("b1", used=15)])
    assert node_of(cluster, pod(part(4))) == "b"


def test_spread_takes_the_emptiest_node_and_card():
    """Nodes are compared by what is used of them in all, cards of a node each by itself."""
    cluster = table(a=[state("a0", used=4), state("a1")], b=[state("b0", used=1), state("b1", used=2)])
    placement = choose(cluster, pod(part(4)), ["a", "b"], Policy.SPREAD).placement
    assert [share.uuid for share in placement.containers[0].cards] == ["b0"]


def test_only_nodes_offered_are_chosen():
    """kube-scheduler has ruled the others out."""
    cluster = table(a=[state("a0")], b=[state("b0")])
    assert choose(cluster, pod(part(4)), ["b"], Policy.BINPACK).placement.node == "b"


def test_the_next_node_is_tried_when_containers_do_not_fit_together():
    """Each container alone has room on the fuller node, both together only on the other."""
    cluster = table(a=[state("a0", used=6)], b=[state("b0")])
    assert node_of(cluster, pod(part(8), part(8))) == "b"


def hopeless(number: int, cards: int = 8) -> list[CardState]:
    """A node unlike any other, with room for one container of 16 GiB on each card."""
    return [state(f"{number}-{n}", gib=80, used=50 + (number + n) / 1000) for n in range(cards)]


@pytest.mark.timing
def test_a_cluster_without_room_is_answered_in_time():
    """A pod that fits nowhere together is refused within seconds, however many nodes look promising."""
    cluster = table(**{f"n{n:04}": hopeless(n) for n in range(1000)})
    many = pod(*[part(16 + n / 100) for n in range(12)])
    start = time.monotonic()
    assert node_of(cluster, many) is None
    assert time.monotonic() - start < 6


@pytest.mark.parametrize("policy", Policy)
def test_many_promising_nodes_do_not_hide_the_one_with_room(policy: Policy):
    """Each of the fuller nodes is searched in vain; the empty one, tried last, is found all the same."""
    nodes = {f"n{n:04}": hopeless(n) for n in range(100)}
    cluster = table(**nodes, z=[state(f"z-{n}", gib=80) for n in range(8)])
    many = pod(*[part(16 + n / 100) for n in range(12)])
    assert node_of(cluster, many, policy) == "z"


def test_no_nodes_no_place():
    """An empty offer is answered, too."""
    assert choose(table(), pod(part(1)), [], Policy.BINPACK).placement is None


REASONS = {
    "a node nobody has described": (pod(part(1)), None, "node has no Aliquot agent", False),
    "no card at all": (pod(part(1)), [], "node has no card", False),
    "fewer cards than asked for": (
        pod(part(1, cards=2)), [state("x")], "fewer cards than one container asks for", False,
    ),
    "a broken card": (pod(part(1)), [state("x", healthy=False)], "card unhealthy", False),
    "MIG everywhere": (pod(part(1)), [state("x", mig=True)], "every card in MIG mode", False),
    "cards that are too small": (pod(part(17)), [state("x")], "every card too small", False),
    "memory taken": (pod(part(8)), [state("x", used=9)], "short of memory on every card", True),
    "memory taken on one card of two": (
        pod(part(8, cards=2)), [state("x", used=9), state("y")], "short of memory on too many cards", True,
    ),
    "compute taken": (
        pod(part(1, cores=50)), [state("x", used_cores=60)], "short of compute on every card", True,
    ),
    "slices taken": (
        pod(part(1)),
        [state("x", used_slots=10)],
        "no slice left on any card (agent.slicesPerCard bounds them)",
        True,
    ),
    "no card of one's own": (pod(whole()), [state("x", used=1)], "no card wholly free", True),
    "one card short of memory, the other of compute": (
        pod(part(8, cores=50)),
        [state("x", used=12), state("y", used_cores=80)],
        "short of memory or compute on every card",
        True,
    ),
    "containers that are too much together": (
        pod(part(9), part(9)), [state("x")], "containers do not fit together", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "cards", "text", "curable"), REASONS.values(), ids=REASONS.keys())
def test_reasons(request_: PodRequest, cards: list[CardState] | None, text: str, curable: bool):
    """Each cause has its words, and says whether evicting pods could help."""
    cluster = CardTable() if cards is None else table(n=cards)
    choice = choose(cluster, request_, ["n"], Policy.BINPACK)
    assert choice.placement is None
    assert choice.refused["n"].text(choice.cards) == text
    assert choice.refused["n"].curable is curable


CARDS = st.builds(
    CardState,
    uuid=st.just(""),
    usable_mib=st.sampled_from([4 * GIB, 8 * GIB]),
    used_mib=st.integers(0, 8).map(lambda gib: gib * GIB),
    used_cores=st.sampled_from([0, 30, 70, 100]),
    used_slots=st.sampled_from([0, 1, 10]),
    healthy=st.sampled_from([True, True, False]),
    holders=st.sampled_from([0, 0, 1]),
)
SLICES = st.one_of(
    st.builds(part, st.integers(1, 5), st.sampled_from([0, 30, 60]), st.integers(1, 2)),
    st.builds(part, cores=st.sampled_from([0, 30]), percent=st.sampled_from([1, 50, 100])),
    st.builds(whole, st.integers(1, 2)),
)
CONTAINERS = st.lists(st.tuples(SLICES, st.sampled_from([INIT, SIDECAR, REGULAR])), min_size=1, max_size=3)


def in_order(containers: list[tuple[SliceRequest, object]]) -> PodRequest:
    """Init containers come before regular ones."""
    ordered = sorted(containers, key=lambda c: c[1] is REGULAR)
    return pod(*[asks(wanted, kind, name=f"c{n}") for n, (wanted, kind) in enumerate(ordered)])


@examples(300)
@given(st.lists(st.lists(CARDS, max_size=3), min_size=1, max_size=4), CONTAINERS, st.sampled_from(Policy))
def test_a_pod_is_placed_exactly_when_some_node_has_room(
    nodes: list[list[CardState]], containers: list[tuple[SliceRequest, object]], policy: Policy
):
    """The arrays never rule out a node on which the exact search finds room, nor claim one where it does not."""
    request, cluster = in_order(containers), CardTable()
    names = [f"n{n}" for n in range(len(nodes))]
    for name, cards in zip(names, nodes, strict=True):
        cluster.put(name, [replace(c, uuid=f"{name}-{i}") for i, c in enumerate(cards)])
    choice = choose(cluster, request, names, policy)
    possible = [n for n in names if fit(request, n, cluster.cards(n), policy)]
    assert (choice.placement is not None) == bool(possible)
    assert choice.placement is None or choice.placement.node in possible
    assert set(choice.refused) == (set() if possible else set(names))
