"""Which cards go together: tables against the definition, what pods demand, and what later pods find."""

import random
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.api.links import Level, Link
from aliquot.crds.gpu_node import Card, GPUNodeStatus, Nic
from aliquot.crds.gpu_pool import PoolSpec
from aliquot.request.placement_policy import DEFAULT, Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.card_sets import UNKNOWN_SETS, Sets, Wish
from aliquot.scheduler_ext.cards.topology import UNKNOWN_SHAPE, Shape, shape_of
from aliquot.scheduler_ext.placement.node_survey import survey
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.scoring import Lent, lib
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.tools.examples import examples
from tests.unit.scheduler_ext.machines import links_within, meets, quads, score, twins, wired
from tests.unit.scheduler_ext.placing import INIT, asks, part, pod, whole

SEEDS = st.integers(0, 1 << 30).map(random.Random)


def any_shape(dice: random.Random, most: int = 7) -> Shape:
    """Any wiring: links need not make sense, and cards hang on up to three places with NICs."""
    cards = dice.randint(1, most)
    nvlinks = dice.choice([[0], [0, 0, 1], [0, 1, 4]])
    links = [Link(dice.choice([*Level]), dice.choice(nvlinks)) for _ in range(cards * (cards - 1) // 2)]
    places = [dice.randint(0, 3) for _ in range(cards)]
    groups = tuple(
        (sum(1 << n for n, here in enumerate(places) if here == place), dice.randint(1, 2))
        for place in sorted({*places} - {0})
    )
    return Shape(cards, tuple(links), groups, groups)


def some(dice: random.Random, cards: Iterable[int]) -> int:
    """Some of the cards, as a mask."""
    share = dice.random()
    return sum(1 << n for n in cards if dice.random() < share)


def columns(mask: int) -> list[int]:
    """The cards of a mask."""
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def best_of(shape: Shape, wish: Wish, cards: tuple[int, int, int]) -> tuple[int, ...]:
    """The best set with certain cards, out of some, while nobody is on others; by the definition."""
    must, may, empty = map(columns, cards)
    scores = {
        chosen: score(shape, chosen, empty, wish.rdma)
        for chosen in combinations(may, wish.cards)
        if set(must) <= set(chosen) and all(meets(link, wish.least) for link in links_within(shape, chosen))
    }
    return max(scores, key=scores.__getitem__, default=())


def best_set(sets: Sets, wish: Wish, must: int, may: int, empty: int) -> tuple[int, ...]:
    """The best set as it is looked for when a container gets its cards."""
    compared, links = sets.compared(wish), Lent("aq_links")
    links.lend(all=(1 << sets.shape.cards) - 1, rest=sets.rest, sets=len(compared.masks))
    links.lend(masks=compared.masks, orders=compared.orders)
    best = lib.aq_best_set(links.native, must, may, empty)
    return () if best < 0 else tuple(columns(int(compared.masks[best])))


@examples(300)
@given(SEEDS)
def test_the_set_is_the_best_by_the_definition(dice: random.Random):
    """Whatever the wiring, the cards that must and may be taken, and those that nobody is on."""
    shape = any_shape(dice)
    sets = Sets(shape)
    for _ in range(3):  # what was asked for before makes no difference
        may, empty = some(dice, range(shape.cards)), some(dice, range(shape.cards))
        wish = Wish(dice.randint(1, shape.cards), dice.choice([*Topology]), dice.choice([*Rdma]))
        for must in (0, some(dice, columns(may)), 0):
            best = best_of(shape, wish, (must, may, empty))
            assert best_set(sets, wish, must, may, empty) == best


@examples(100)
@given(SEEDS)
def test_all_sets_are_those_that_meet_the_demand_early_cards_first(dice: random.Random):
    """They are what a search walks through that goes back on its choices."""
    shape = any_shape(dice, 5)
    order = columns(some(dice, range(shape.cards)))
    dice.shuffle(order)
    size, least = dice.randint(1, shape.cards), dice.choice([*Topology])
    found = Sets(shape).all(Wish(size, least), order)
    possible = [
        set(c)
        for c in combinations(order, size)
        if all(meets(link, least) for link in links_within(shape, c))
    ]
    assert sorted(map(sorted, found)) == sorted(map(sorted, possible))
    places = [[order.index(n) for n in chosen] for chosen in found]
    late = [(max(where), sum(where)) for where in places]
    assert late == sorted(late)


def test_no_cards_of_unknown_links_meet_a_demand():
    """Nor is anything looked for among them, though the node has cards."""
    assert UNKNOWN_SETS.all(Wish(2, Topology.NVLINK), [0, 1]) == []


def test_sixteen_cards_are_worked_out_in_time():
    """All 65,535 sets and remainders: a second or so, once a shape, and then nothing."""
    shape = shape_of(quads(16))
    sets, everything = Sets(shape), (1 << 16) - 1
    start = time.process_time()
    assert best_set(sets, Wish(8), 0, everything, everything) == tuple(range(8))
    assert time.process_time() - start < 15
    assert best_set(sets, Wish(4), 0, 0b1111_0111_1111_1111, everything) == (0, 1, 2, 3)


def test_a_node_that_says_nothing_has_no_shape():
    """Nor one whose links cannot be read, or with more cards than anybody can have."""
    assert shape_of(GPUNodeStatus()) is UNKNOWN_SHAPE
    assert shape_of(GPUNodeStatus(cards=(Card(uuid="a", memory_mib=1),) * 2)) is UNKNOWN_SHAPE
    assert shape_of(quads(20)) is UNKNOWN_SHAPE
    odd = tuple(Card(uuid=str(n), memory_mib=1, links="FAST PIX9x") for n in range(3))
    assert shape_of(GPUNodeStatus(cards=odd)) is UNKNOWN_SHAPE


def test_what_the_agent_cannot_say_is_guessed_from_roots_and_numa_nodes():
    """Two cards of one root share a host bridge, two of one NUMA node that, and others the machine."""
    cards = tuple(
        Card(uuid=str(n), memory_mib=1, numa_node=numa, pcie_root=root)
        for n, (numa, root) in enumerate(
            [(0, "pci0000:15"), (1, ""), (0, "pci0000:15"), (0, "pci0000:20"), (-1, "")]
        )
    )
    levels = [link.level for link in shape_of(GPUNodeStatus(cards=cards)).links]
    assert levels == [
        Level.SYS, Level.PHB, Level.SYS, Level.NODE, Level.SYS, Level.NODE, *[Level.UNKNOWN] * 4,
    ]  # fmt: skip


def test_machines_that_are_alike_have_one_shape():
    """Though their PCIe roots and cards have other names: tables are made once."""
    ledger = Ledger(time.monotonic)
    for name, roots in (("a", ["pci0000:15", "pci0000:37"]), ("b", ["pci0000:80", "pci0001:00"])):
        link = {frozenset((0, 1)): Link(Level.SYS)}
        ledger.put_node(name, wired(2, link, roots=roots, nics=[Nic(name="n", pcie_root=roots[1])]))
    assert len(ledger.table.sets) == 2
    assert ledger.table.sets[1].shape == Shape(2, (Link(Level.SYS),), (), ((0b10, 1),))


def machine(shape: Shape) -> Ledger:
    """One node a of this wiring, with cards g0, g1 and so on of 16 GiB."""
    ledger = Ledger(time.monotonic)
    cards = tuple(Card(uuid=f"g{n}", index=n, memory_mib=16384) for n in range(shape.cards))
    ledger.put_node("a", GPUNodeStatus(cards=cards))
    ledger.table.put("a", ledger.table.cards("a"), shape=shape)
    return ledger


def cluster(**nodes: GPUNodeStatus) -> Ledger:
    """A cluster of these nodes; the cards of each are called by its name and their number."""
    ledger = Ledger(time.monotonic)
    for name, status in nodes.items():
        cards = tuple(replace_uuid(card, f"{name}{card.index}") for card in status.cards)
        ledger.put_node(name, GPUNodeStatus(cards=cards, nics=status.nics))
    return ledger


def replace_uuid(card: Card, uuid: str) -> Card:
    """The same card under another name."""
    return Card(**{**{f: getattr(card, f) for f in card.__struct_fields__}, "uuid": uuid})


class Tenants:
    """Places pods one after the other."""

    def __init__(self, ledger: Ledger, default: Preference = DEFAULT) -> None:
        self.ledger = ledger
        self.placer = Placer(ledger.table, default)
        self._count = 0

    def take(self, *wanted: SliceRequest) -> str:
        """The cards that a pod of these containers gets; a reason where it gets none."""
        self._count += 1
        return self.place(pod(*wanted, uid=f"u{self._count}"))

    def place(self, request: PodRequest) -> str:
        """The same for any pod."""
        names = sorted(self.ledger.table.nodes())
        choice = self.placer.choose(request, names)
        if choice.placement is None:
            return choice.refused[names[0]].text(choice.cards)
        self.ledger.reserve(request, choice.placement)
        return " ".join(
            ",".join(sorted(share.uuid for share in c.cards)) for c in choice.placement.containers
        )


def asking(wanted: SliceRequest, topology: Topology | None = None, rdma: Rdma = Rdma.NONE) -> SliceRequest:
    """A slice with these words."""
    return replace(wanted, topology=topology, rdma=rdma)


def test_cards_that_are_linked_go_together():
    """Two of one group of four, and two of the same again: the other group stays whole for four."""
    tenants = Tenants(cluster(a=quads()))
    assert tenants.take(whole()) == "a0"
    assert tenants.take(whole(2)) == "a1,a2"
    assert tenants.take(whole(4)) == "a4,a5,a6,a7"


def test_the_remainder_decides_between_sets_that_are_linked_alike():
    """One card of the first group is gone, so two are taken there, and not of the group that is whole."""
    ledger = cluster(a=quads())
    ledger.reserve(*reserved(ledger, "a5"))
    assert Tenants(ledger).take(whole(2)) == "a4,a6"


def reserved(ledger: Ledger, uuid: str) -> tuple[PodRequest, object]:
    """A pod that has this very card, and its place."""
    only = replace(whole().only, uuids=frozenset({uuid}))
    request = pod(replace(whole(), only=only), uid=f"on-{uuid}")
    placement = Placer(ledger.table).choose(request, sorted(ledger.table.nodes())).placement
    assert placement
    return request, placement


def test_one_card_is_taken_where_it_breaks_least():
    """A pair is broken already: the single pod takes its other half, though another card comes first."""
    ledger = cluster(a=twins())
    ledger.reserve(*reserved(ledger, "a6"))
    assert Tenants(ledger).take(whole()) == "a7"


def asked_before(placer: Placer, *wanted: SliceRequest) -> None:
    """These are what pods usually ask for."""
    for number, one in enumerate(wanted):
        placer.demand.note(pod(one, uid=f"seen-{number}"))


def half_free(*asked: SliceRequest) -> Tenants:
    """Two nodes with four free cards each: on a they are one group, on b two halves of groups. Pods ask for these."""
    ledger = cluster(a=quads(), b=quads())
    take_half(ledger)
    tenants = Tenants(ledger)
    asked_before(tenants.placer, *asked)
    return tenants


def take_half(ledger: Ledger) -> None:
    """One group of a is taken, and half of each group of b."""
    for uuid in ("a0", "a1", "a2", "a3", "b0", "b1", "b4", "b5"):
        ledger.reserve(*reserved(ledger, uuid))


@pytest.mark.parametrize("wanted", [whole(), part(3), part(percent=40)])
def test_one_card_is_taken_of_the_node_whose_groups_are_broken(wanted: SliceRequest):
    """By all else the nodes are alike, and by name a would come first: whole cards and slices that open one."""
    usual = (whole(4), whole())
    assert half_free(*usual).take(wanted) == "b2"
    assert half_free(*usual).take(asking(wanted, Topology.NONE)) == "a4"


def test_a_broken_group_counts_as_much_as_pods_ask_for_whole_ones():
    """Where all ask for one card, no group is of use to anybody; where some ask for four it is."""
    assert half_free(whole(), part(3)).take(whole()) == "a4"
    assert half_free(whole(), part(3), whole(3)).take(whole()) == "b2"


def test_a_pod_takes_the_whole_group_that_it_fits_and_leaves_smaller_ones_to_smaller_pods():
    """Four cards go to the group on a, two to a half on b, whatever they cost others."""
    tenants = half_free(whole(4), whole(2), whole())
    assert tenants.take(whole(2)) == "b2,b3"
    assert tenants.take(whole(4)) == "a4,a5,a6,a7"


def test_groups_of_nodes_that_come_later_are_kept_too():
    """What was known of the links when nodes were first looked at is not taken for what there is now."""
    ledger = cluster(z=GPUNodeStatus(cards=(Card(uuid="", memory_mib=16384),)))
    tenants = Tenants(ledger)
    asked_before(tenants.placer, whole(4), whole())
    assert tenants.take(whole()) == "z0"
    for name in "ab":
        cards = tuple(replace_uuid(card, f"{name}{card.index}") for card in quads().cards)
        ledger.put_node(name, GPUNodeStatus(cards=cards))
    take_half(ledger)
    assert tenants.take(whole()) == "b2"


def test_of_nodes_that_are_alike_the_better_linked_one_gets_the_pod():
    """By name a would come first; one card of each of its pairs is gone."""
    ledger = cluster(a=twins(4), b=twins(4))
    for uuid in ("a0", "a2", "b0", "b1"):
        ledger.reserve(*reserved(ledger, uuid))
    assert Tenants(ledger).take(whole(2)) == "b2,b3"
    assert Tenants(cluster(a=twins(4))).take(asking(whole(2), Topology.NONE)) == "a0,a1"


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (None, "a0,a4"),
        (Topology.BEST_EFFORT, "a0,a4"),
        (Topology.NONE, "a0,a4"),
        (Topology.BEST_LINKS, "a0,a1"),
        (Topology.NVLINK, "a0,a1"),
    ],
)
def test_links_come_after_how_full_cards_are_unless_the_pod_says_otherwise(
    topology: Topology | None, expected: str
):
    """One card of each group is a third full. Those two are packed; or one of them, and a card of its group."""
    ledger = cluster(a=quads())
    for column in (0, 4):
        ledger.table.used[column, 0] = 5 * 1024
    tenants = Tenants(ledger, Preference(Policy.BINPACK, Policy.BINPACK))
    found = tenants.take(asking(part(10, cards=2), topology))
    assert found == expected


def test_a_pool_speaks_where_the_pod_is_silent():
    """Its nodes' cards are chosen by number, as if nothing were known of links."""
    ledger = Ledger(time.monotonic)
    ledger.put_node("a", quads(), lambda _: PoolSpec(topology=Topology.NONE))
    ledger.reserve(*reserved(ledger, "g0"))
    placer = Placer(ledger.table)
    for wanted, expected in (
        (whole(4), ["g1", "g2", "g3", "g4"]),
        (asking(whole(4), Topology.BEST_EFFORT), ["g4", "g5", "g6", "g7"]),
    ):
        placement = placer.look(pod(wanted), ["a"]).placement
        assert placement
        assert [share.uuid for share in placement.containers[0].cards] == expected


def test_a_demand_that_no_set_meets_is_refused_with_its_cause():
    """Never met, or not while others have the cards: only then could eviction help."""
    ledger = cluster(a=quads())
    tenants = Tenants(ledger)
    assert tenants.take(asking(whole(5), Topology.NVLINK)) == "no cards linked as demanded"
    ledger.reserve(*reserved(ledger, "a1"))
    ledger.reserve(*reserved(ledger, "a6"))
    assert tenants.take(asking(whole(4), Topology.NVLINK)) == "too few free cards linked as demanded"
    assert curable(tenants, asking(whole(4), Topology.NVLINK)) is True
    assert curable(tenants, asking(whole(5), Topology.NVLINK)) is False


def curable(tenants: Tenants, wanted: SliceRequest) -> bool:
    """Whether eviction could help, as filter says and as a survey of all nodes says."""
    request = pod(wanted)
    (cause,) = tenants.placer.look(request, ["a"]).refused.values()
    assert survey(tenants.ledger.table, request, ["a"]).refused == {"a": cause}
    return cause.curable


def test_what_nobody_knows_meets_no_demand():
    """A node whose agent says nothing of links is no node with NVLink; without a demand it serves as ever."""
    unknown = GPUNodeStatus(cards=tuple(Card(uuid=f"a{n}", index=n, memory_mib=16384) for n in range(2)))
    tenants = Tenants(cluster(a=unknown))
    assert tenants.take(asking(whole(2), Topology.NUMA)) == "no cards linked as demanded"
    assert tenants.take(asking(whole(2), Topology.BEST_LINKS)) == "a0,a1"


@examples(300)
@given(SEEDS)
def test_a_demand_is_never_violated_and_met_wherever_it_can_be(dice: random.Random):
    """Whatever the wiring and whoever is there; several containers, init containers, NICs and all."""
    shape, cards = any_shape(dice, 6), dice.randint(1, 4)
    ledger = machine(shape)
    taken = {n for n in range(shape.cards) if dice.random() < 0.3}
    for n in taken:
        ledger.table.used[n, 0] = 16384
    wanted = asking(part(4, cards=cards), dice.choice([*Topology]), dice.choice([*Rdma]))
    containers = [asks(wanted, name="main")]
    if dice.random() < 0.5:
        other = asking(part(3, cards=dice.randint(1, 3)), dice.choice([*Topology]), dice.choice([*Rdma]))
        containers.append(asks(other, name="second"))
        if dice.random() < 0.5:
            containers.insert(0, asks(other, INIT, name="first"))
    placement = Placer(ledger.table).choose(pod(*containers), ["a"]).placement
    possible = [
        chosen
        for chosen in combinations(sorted(set(range(shape.cards)) - taken), cards)
        if all(meets(one, wanted.topology or Topology.NONE) for one in links_within(shape, chosen))
        and (not wanted.rdma.demands or all(shape.near(wanted.rdma) >> n & 1 for n in chosen))
    ]
    if len(containers) == 1:
        assert (placement is not None) == bool(possible)
    for container in placement.containers if placement else ():
        asked = next(c.slice for c in containers if c.name == container.name)
        chosen = [int(share.uuid[1:]) for share in container.cards]
        assert len(set(chosen)) == asked.cards
        assert all(meets(one, asked.topology) for one in links_within(shape, chosen))
        assert not asked.rdma.demands or all(shape.near(asked.rdma) >> n & 1 for n in chosen)


@examples(100)
@given(SEEDS)
def test_whole_cards_are_the_best_set_of_the_node(dice: random.Random):
    """From the request to the placement: the definition's best of all free cards."""
    shape, topology = any_shape(dice, 6), dice.choice([Topology.BEST_EFFORT, Topology.BEST_LINKS])
    ledger = machine(shape)
    free = columns(some(dice, range(shape.cards)))
    for n in set(range(shape.cards)) - set(free):
        ledger.table.used[n, 0] = ledger.table.slots[n, 0] = 1
    size = dice.randint(1, shape.cards)
    placement = Placer(ledger.table).choose(pod(asking(whole(size), topology)), ["a"]).placement
    assert (placement is not None) == (len(free) >= size)
    if placement:
        best = max(combinations(free, size), key=lambda chosen: score(shape, chosen, free))
        found = tuple(sorted(int(share.uuid[1:]) for share in placement.containers[0].cards))
        assert found == best


def test_nodes_that_are_used_alike_but_linked_otherwise_are_both_tried():
    """On a nothing is linked as demanded. On b it is, once the first container leaves it the right cards."""
    ledger = cluster(a=twins(6), b=quads(6))
    first, second = asking(part(10, cards=3), Topology.NONE), asking(part(10, cards=3), Topology.NVLINK)
    assert Tenants(ledger).take(first, second) in ("b0,b4,b5 b1,b2,b3", "b3,b4,b5 b0,b1,b2")


def beside_nics(*roots: int) -> GPUNodeStatus:
    """Eight cards in four PCIe roots, two NUMA nodes; NICs on these roots."""
    link = {frozenset(two): Link(Level.SYS) for two in combinations(range(8), 2)}
    names = [f"pci0000:{n // 2}0" for n in range(8)]
    nics = [
        Nic(name=f"mlx5_{n}", numa_node=root // 2, pcie_root=f"pci0000:{root}0")
        for n, root in enumerate(roots)
    ]
    return wired(8, link, numa=[n // 4 for n in range(8)], roots=names, nics=nics)


@pytest.mark.parametrize(
    ("rdma", "roots", "cards", "expected"),
    [
        (Rdma.PCIE, (2,), 2, "a4,a5"),
        (Rdma.NUMA, (2,), 4, "a4,a5,a6,a7"),
        (Rdma.PCIE, (2,), 3, "too few cards near an RDMA NIC"),
        (Rdma.PCIE, (), 1, "no card near an RDMA NIC"),
        (Rdma.NEAR, (), 2, "a0,a1"),
        (Rdma.NEAR, (2,), 3, "a0,a4,a5"),
        (Rdma.NEAR, (3,), 1, "a6"),
        (Rdma.PCIE, (0, 1, 2, 3), 4, "a0,a2,a4,a6"),
        (Rdma.PCIE, (0, 0, 2), 3, "a0,a1,a4"),
        (Rdma.PCIE, (0, 2, 2), 3, "a0,a4,a5"),
        (Rdma.NUMA, (0, 3), 4, "a0,a1,a4,a5"),
        (Rdma.NONE, (3,), 1, "a0"),
    ],
)
def test_cards_are_taken_near_nics_and_spread_over_them(
    rdma: Rdma, roots: tuple[int, ...], cards: int, expected: str
):
    """By PCIe root, by NUMA node, or as near as can be."""
    assert Tenants(cluster(a=beside_nics(*roots))).take(asking(whole(cards), rdma=rdma)) == expected


def test_cards_in_mig_mode_and_unhealthy_ones_are_in_no_set_and_no_remainder():
    """Three of a group are left, so two of them go before two of the group that is whole."""
    status = quads()
    cards = list(status.cards)
    cards[1] = Card(**{**{f: getattr(cards[1], f) for f in cards[1].__struct_fields__}, "mig_enabled": True})
    cards[7] = Card(
        **{**{f: getattr(cards[7], f) for f in cards[7].__struct_fields__}, "health": "Unhealthy"}
    )
    tenants = Tenants(cluster(a=GPUNodeStatus(cards=tuple(cards))))
    assert tenants.take(asking(whole(4), Topology.NVLINK)) == "no cards linked as demanded"
    assert tenants.take(asking(whole(3), Topology.NVLINK)) == "a0,a2,a3"
    assert tenants.take(asking(whole(3), Topology.NVLINK)) == "a4,a5,a6"
    assert tenants.take(whole()) == "no card wholly free"
