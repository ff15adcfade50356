"""How good nodes are for a pod, and which cards it gets, against the definition word for word."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest

from aliquot.api.links import Level, Link
from aliquot.request.card_filter import CardFilter
from aliquot.request.host_resources import HostShare
from aliquot.request.placement_policy import DEFAULT, Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.card_table import GROWTH, CardTable
from aliquot.scheduler_ext.cards.topology import UNKNOWN_SHAPE, Shape
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation
from aliquot.scheduler_ext.placement.node_scores import NodeScores
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.placement.workload_model import WorkloadModel
from tests.unit.scheduler_ext.definition import Laid, Layer, Measure, node_of
from tests.unit.scheduler_ext.placing import (
    INIT,
    REGULAR,
    SIDECAR,
    asks,
    part,
    pod,
    state,
    unburdened,
    whole,
)

SEEDS = 60
NODES = 12
PODS = 12
FIRM = 0.9
"""Part of the outcomes that no noise can turn round, at least: so much is compared."""
MODELS = ("", "A", "B")


def any_slice(dice: random.Random) -> SliceRequest:
    """A slice of any sort."""
    only = CardFilter()
    if dice.random() < 0.2:
        only = CardFilter(models=frozenset({dice.choice("ab")}))
    elif dice.random() < 0.1:
        only = CardFilter(not_uuids=frozenset({f"n{n}-0" for n in range(NODES)}))
    wanted = dice.choice([
        part(dice.choice([1, 2, 3, 5, 8, 15]), dice.choice([0, 0, 10, 30]), dice.choice([1, 1, 1, 2, 3])),
        part(percent=dice.choice([10, 33, 50, 100]), cores=dice.choice([0, 25])),
        whole(dice.choice([1, 1, 2, 4])),
    ])  # fmt: skip
    burst = not wanted.exclusive and dice.random() < 0.2
    return replace(wanted, only=only, burst=burst)


def linked(dice: random.Random, wanted: SliceRequest) -> SliceRequest:
    """The same, saying something about links now and then."""
    if dice.random() < 0.4:
        wanted = replace(wanted, topology=dice.choice([*Topology]))
    return replace(wanted, rdma=dice.choice([*Rdma])) if dice.random() < 0.3 else wanted


def any_pod(dice: random.Random, uid: str) -> PodRequest:
    """A pod of one container, or of up to three of all kinds."""
    host = HostShare(dice.choice([0, 1000, 4000, 16000]), dice.choice([0, 4096, 65536]))
    if dice.random() < 0.6:
        return replace(pod(linked(dice, any_slice(dice)), uid=uid), host=host)
    kinds = sorted(dice.choices([INIT, SIDECAR, REGULAR, REGULAR], k=3), key=[INIT, SIDECAR, REGULAR].index)
    several = [asks(linked(dice, any_slice(dice)), kind, f"c{n}") for n, kind in enumerate(kinds)]
    return replace(pod(*several[dice.randint(0, 1) :], uid=uid), host=host)


def any_cards(dice: random.Random, name: str, count: int) -> list[CardState]:
    """Cards in any state, some of which take nobody."""
    slots = dice.choice([2, 10])
    return [
        msgspec.structs.replace(
            state(f"{name}-{n}", gib=dice.choice([16, 16, 80]), model=dice.choice(MODELS)),
            used_mib=1024 * (used := dice.choice([0, 0, 0, 2, 5, 11, 13, 16])),
            burst_mib=1024 * dice.randint(0, used),
            extra_mib=dice.choice([0, 0, 4096]),
            used_cores=dice.choice([0, 0, 30, 70, 100]),
            used_slots=dice.choice([0, 0, 1, 2]),
            slots=slots,
            holders=dice.random() < 0.05,
            healthy=dice.random() < 0.95,
            mig=dice.random() < 0.03,
        )
        for n in range(count)
    ]


def any_shape(dice: random.Random, cards: int) -> Shape:
    """Unknown, all links alike, or any; cards hang on up to two places with NICs."""
    sort = dice.random()
    if sort < 0.4:
        return UNKNOWN_SHAPE
    pairs = cards * (cards - 1) // 2
    links = [Link(dice.choice([*Level]), dice.choice([0, 0, 2])) for _ in range(pairs)]
    places = [dice.randint(0, 2) for _ in range(cards)] if dice.random() < 0.5 else [0] * cards
    groups = tuple(
        (sum(1 << n for n, here in enumerate(places) if here == place), dice.randint(1, 2))
        for place in sorted({*places} - {0})
    )
    return Shape(cards, tuple(links[:1] * pairs if sort < 0.6 else links), groups, groups)


def any_table(dice: random.Random) -> CardTable:
    """Nodes of up to six cards, some with CPU and memory that are known."""
    table = CardTable()
    for n in range(NODES):
        cards = dice.randint(1, 6)
        table.put(f"n{n}", any_cards(dice, f"n{n}", cards), shape=any_shape(dice, cards))
        if dice.random() < 0.8:
            room = HostShare(dice.choice([8000, 64000]), 1 << 18)
            left = HostShare(dice.randint(-1000, room.cpu_milli), dice.randint(0, room.memory_mib))
            table.put_host(f"n{n}", room, left)
    return table


def experience(dice: random.Random, table: CardTable) -> ClusterFragmentation:
    """What is typical after some dozens of pods."""
    demand = WorkloadModel()
    cores = dice.random() < 0.7
    for n in range(40):
        request = any_pod(dice, f"seen-{n}")
        if not cores and any(c.slice.cores for c in request.containers):
            continue
        demand.note(request)
    demand.note(pod(part(3), uid="one at least"))
    return ClusterFragmentation(table, demand.typical(), tuple(demand.asked()))


@dataclass
class Outcome:
    """What the code says of one node, and what the definition does."""

    key: float
    tie: float
    cards: dict[int, tuple[int, ...]]
    expected: Laid

    @property
    def firm(self) -> bool:
        """Whether noise cannot make a difference."""
        return self.expected.firm

    def check(self) -> None:
        """They agree."""
        if self.expected.key is None:
            assert self.key == -np.inf
        elif self.firm:
            assert self.key == pytest.approx(self.expected.key, rel=1e-12, abs=1e-6)
            assert self.tie == pytest.approx(self.expected.tie, rel=1e-5, abs=1e-3)
            assert {n: sorted(c) for n, c in self.cards.items()} == {
                n: sorted(c) for n, c in self.expected.cards.items()
            }


def outcomes(
    table: CardTable, request: PodRequest, preference: Preference, waste: ClusterFragmentation | None
) -> Iterator[Outcome]:
    """One for each node."""
    ranking = NodeScores(table, request, preference)
    ranking.sync(waste)
    layer = Layer(Measure.of(waste) if waste else None, request, preference)
    for name in table.nodes():
        row = int(table.rows_of([name])[0])
        expected = layer.lay(*node_of(table, name))
        found = ranking.cards_on(row) if expected.key is not None else {}
        yield Outcome(float(ranking.keys[row]), float(ranking.ties[row]), found, expected)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_pods_are_laid_out_as_the_definition_says(seed: int):
    """Keys, ties and cards, whatever the cards, links, containers, policies and typical pods."""
    dice = random.Random(seed)
    table = any_table(dice)
    waste = experience(dice, table) if dice.random() < 0.9 else None
    if waste:
        waste.sync()
    firm = total = 0
    for n in range(PODS):
        request = any_pod(dice, f"u{n}")
        preference = DEFAULT
        if dice.random() < 0.4:
            preference = Preference(
                dice.choice([*Policy]), dice.choice([*Policy]), dice.choice([None, *Topology])
            )
        for outcome in outcomes(table, request, preference, waste):
            outcome.check()
            total += 1
            firm += outcome.firm
    assert firm >= FIRM * total


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_measure_is_what_the_words_say(seed: int):
    """The tables and sums give the same as the definition, on random nodes and pods."""
    dice = random.Random(seed)
    table = any_table(dice)
    waste = experience(dice, table)
    waste.sync()
    measure = Measure.of(waste)
    for name in table.nodes():
        cards, hosts = node_of(table, name)
        empty = [msgspec.structs.replace(c, used_mib=0, used_cores=0, burst_mib=0, holders=0) for c in cards]
        found = waste.fragments[table.rows_of([name])[0]]
        assert found == pytest.approx(measure.fragment(cards, empty, hosts), rel=1e-4, abs=1e-4)


def test_a_pod_without_slices_goes_by_what_it_takes_of_cpu():
    """It has no cards to be liked or charged; a node without cards has nothing to lose."""
    table = CardTable()
    table.put("a", [state("a0"), state("a1")])
    table.put("b", [])
    for name in ("a", "b"):
        table.put_host(name, HostShare(8000, 1 << 18), HostShare(4500, 1 << 18))
    demand = WorkloadModel()
    demand.note(replace(pod(part(4), uid="seen"), host=HostShare(4000, 1024)))
    waste = ClusterFragmentation(table, demand.typical(), tuple(demand.asked()))
    waste.sync()
    ranking = NodeScores(table, replace(pod(), host=HostShare(2000, 1024)), DEFAULT)
    ranking.sync(waste)
    a, b = table.rows_of(["a", "b"])
    assert ranking.keys[a] < ranking.keys[b] == 0
    assert ranking.cards_on(int(a)) == {}


@pytest.mark.parametrize("cards", [9, 16, 40])
def test_a_cluster_that_gets_nodes_and_wider_ones_is_known_whole(cards: int):
    """What was kept of fewer rows and columns is not taken for what there is now."""
    dice, table = random.Random(cards), CardTable()
    placer = Placer(table)
    rows = table.exists.shape[1]
    named = replace(part(2), only=CardFilter(not_uuids=frozenset({"n3-0"})))
    for n in range(2 * rows):
        width = cards if n == rows // 2 else dice.randint(1, 4)
        table.put(f"n{n:03}", any_cards(dice, f"n{n:03}", width))
        if n % 5 == 0:
            wanted = dice.choice([part(3), part(5, cores=10), whole(1), named, part(1, cards=min(cards, 12))])
            request, names = pod(wanted, uid=f"u{n}"), sorted(table.nodes())
            choice = placer.choose(request, names)
            assert choice == unburdened(placer).look(request, names)
    assert table.exists.shape[1] > rows + rows // GROWTH
    assert table.exists.shape[0] >= cards


def test_amounts_beyond_all_bounds_have_no_room():
    """The most that a pod can write: all bytes that an amount can have, and more CPU than a number of C holds."""
    table = CardTable()
    table.put("a", [state("a0"), state("a1")])
    table.put_host("a", HostShare(8000, 1 << 18), HostShare(8000, 1 << 18))
    placer = Placer(table)
    placer.demand.note(pod(part(3), uid="seen"))
    huge = SliceRequest(1, 1 << 43, None, 0)
    assert placer.choose(pod(huge), ["a"]).placement is None
    thirsty = replace(pod(part(3), uid="thirsty"), host=HostShare(1 << 70, 1 << 70))
    assert placer.look(thirsty, ["a"]).placement is not None
