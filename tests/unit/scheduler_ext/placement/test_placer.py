"""Placement that looks at fragments, at models, and at what pods and pools prefer."""

import random
from dataclasses import replace

import pytest

from aliquot.request.card_filter import CardFilter
from aliquot.request.host_resources import HostShare
from aliquot.request.placement_policy import DEFAULT, Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.placement.fragmentation import FLOW, flow_weight
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import GIB, card, node, part, pod, state, unburdened, whole

BINPACK = Preference(Policy.BINPACK, Policy.BINPACK)


def taught(table: CardTable, *seen: SliceRequest, default: Preference = DEFAULT) -> Placer:
    """A placer to which pods of these slices came before, 20 of each."""
    placer = Placer(table, default)
    for n in range(20):
        for k, wanted in enumerate(seen):
            placer.demand.note(pod(wanted, uid=f"seen-{n}-{k}"))
    return placer


def cluster(**nodes: list[CardState]) -> CardTable:
    """A cluster of these nodes."""
    table = CardTable()
    for name, cards in nodes.items():
        table.put(name, cards)
    return table


def chosen(placer: Placer, table: CardTable, request: PodRequest) -> str:
    """The node and the cards chosen among all nodes."""
    placement = placer.choose(request, sorted(table.nodes())).placement
    assert placement is not None
    uuids = [share.uuid for container in placement.containers for share in container.cards]
    return f"{placement.node}: {' '.join(uuids)}"


def test_a_slice_goes_where_the_rest_is_of_use():
    """On b it leaves 6 GiB, which the next such pod can have; on a, which is fuller, 2 that nobody wants."""
    table = cluster(a=[state("a0", used=8)], b=[state("b0", used=4)])
    placer = taught(table, part(6), part(6), part(3))
    assert chosen(placer, table, pod(part(6))) == "b: b0"
    assert chosen(Placer(table, BINPACK), table, pod(part(6))) == "a: a0"


def test_a_card_is_chosen_by_what_is_left_of_it_too():
    """The same within a node."""
    table = cluster(a=[state("a0", used=8), state("a1", used=4)])
    assert chosen(taught(table, part(6), part(6), part(3)), table, pod(part(6))) == "a: a1"


def test_where_cpu_is_gone_cards_are_of_no_use_and_are_used_first():
    """The pod that needs little CPU goes to the node on which the usual one cannot run any more."""
    table = cluster(a=[state("a0"), state("a1")], b=[state("b0"), state("b1")])
    table.put_host("a", HostShare(64000, 1 << 20), HostShare(64000, 1 << 20))
    table.put_host("b", HostShare(64000, 1 << 20), HostShare(3000, 1 << 20))
    placer = Placer(table)
    for n in range(20):
        placer.demand.note(replace(pod(part(8), uid=f"seen-{n}"), host=HostShare(4000, GIB)))
    assert chosen(placer, table, replace(pod(part(8)), host=HostShare(1000, GIB))) == "b: b0"


def test_cpu_that_does_not_suffice_for_all_cards_counts_before_it_is_gone():
    """The usual pod finds CPU on both nodes, but less often than cards on b: what needs little goes there."""
    table = cluster(a=[state(f"a{n}") for n in range(4)], b=[state(f"b{n}") for n in range(4)])
    table.put_host("a", HostShare(64000, 1 << 20), HostShare(64000, 1 << 20))
    table.put_host("b", HostShare(64000, 1 << 20), HostShare(9000, 1 << 20))
    placer = Placer(table)
    for n in range(20):
        placer.demand.note(replace(pod(part(16), uid=f"seen-{n}"), host=HostShare(4000, GIB)))
    assert chosen(placer, table, replace(pod(part(16)), host=HostShare(100, GIB))) == "b: b0"


@pytest.mark.parametrize(("full", "weight"), [(0, 1), (4, 25 / 81), (7, 4 / 81), (9, 0), (10, 0)])
def test_short_cpu_weighs_less_the_fuller_the_cluster_is(full: int, weight: float):
    """Ten cards, of which so many are taken; with a tenth free it weighs nothing."""
    cards = [state(f"a{n}", used=16 if n < full else 0) for n in range(9)]
    rest = [state("b0", used=0 if full < 10 else 16)]
    assert flow_weight(cluster(a=cards, b=rest)) == pytest.approx(FLOW * weight, abs=1e-6)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (cluster(a=[state("a0", used=4), state("a1", used=3)]), "a: a1"),
        (cluster(a=[state("a0", used=4)], b=[state("b0", used=3)]), "b: b0"),
    ],
)
def test_a_rest_that_slices_fill_to_the_brim_is_left_as_it_is(table: CardTable, expected: str):
    """Three slices of 4 GiB fill 12 GiB; 13 hold one of 1 GiB beside them. By cards of a node, and by nodes."""
    placer = taught(table, part(4), part(4), part(4))
    placer.demand.note(pod(part(1), uid="small"))
    assert chosen(placer, table, pod(part(1))) == expected


def test_nodes_for_large_pods_are_not_broken_into():
    """Two free nodes for pods of two cards, one card alone: the pod of one card takes that."""
    table = cluster(a=[state("a0"), state("a1")], b=[state("b0")], c=[state("c0"), state("c1")])
    assert chosen(taught(table, whole(2), whole(1)), table, pod(whole(1))) == "b: b0"


def test_a_model_that_others_ask_for_costs():
    """Half of the pods ask for the one T4; a pod that does not goes elsewhere, though the T4 comes first by name."""
    table = cluster(a=[state("a0", model="T4")], b=[state("b0", model="A10")])
    asking = replace(part(8), only=CardFilter(models=frozenset({"t4"})))
    assert chosen(taught(table, part(8)), table, pod(part(8))) == "a: a0"
    assert chosen(taught(table, asking, part(8)), table, pod(part(8))) == "b: b0"
    assert chosen(taught(table, asking, part(8)), table, pod(asking)) == "a: a0"


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (CardFilter(models=frozenset({"t4"})), "b: b0"),
        (CardFilter(not_models=frozenset({"t4"})), "a: a0"),
        (CardFilter(uuids=frozenset({"a1"})), "a: a1"),
        (CardFilter(not_uuids=frozenset({"b0", "a0"})), "a: a1"),
    ],
)
def test_only_cards_that_are_allowed_are_given(only: CardFilter, expected: str):
    """By model and by UUID, and not."""
    table = cluster(
        a=[state("a0", used=8, model="NVIDIA A10"), state("a1", model="NVIDIA A10")],
        b=[state("b0", used=12, model="Tesla T4".removeprefix("Tesla "))],
    )
    assert chosen(taught(table, part(2)), table, pod(replace(part(2), only=only))) == expected


def test_a_model_that_is_nowhere_is_told():
    """No eviction cures that."""
    table = cluster(a=[state("a0", model="A10")])
    wanted = replace(part(2), only=CardFilter(models=frozenset({"h200"})))
    choice = Placer(table).choose(pod(wanted), ["a"])
    assert choice.refused["a"].text(1) == "no card of the model or UUID asked for"
    assert not choice.refused["a"].curable


def test_the_pod_speaks_before_the_pool_and_the_pool_before_the_default():
    """Nodes of one pool that spreads; the pod may say otherwise."""
    table, spread = CardTable(), Preference(Policy.SPREAD, Policy.SPREAD)
    table.put("a", [state("a0", used=8), state("a1", used=4)], spread)
    table.put("b", [state("b0", used=2), state("b1", used=1)], spread)
    placer = Placer(table, BINPACK)
    assert chosen(placer, table, pod(part(2))) == "b: b1"
    assert chosen(placer, table, replace(pod(part(2)), preference=BINPACK)) == "a: a0"
    cards = Preference(card=Policy.BINPACK)
    assert chosen(placer, table, replace(pod(part(2)), preference=cards)) == "b: b0"


def test_nodes_of_pools_that_differ_are_compared_by_the_default_and_cards_by_their_own():
    """Packing finds node a; its pool spreads cards."""
    table = CardTable()
    table.put("a", [state("a0", used=8), state("a1", used=7)], Preference(Policy.SPREAD, Policy.SPREAD))
    table.put("b", [state("b0", used=2), state("b1", used=1)], Preference(Policy.BINPACK, None))
    assert chosen(Placer(table, BINPACK), table, pod(part(2))) == "a: a1"


def random_cards(dice: random.Random, name: str) -> list[CardState]:
    """Up to 8 cards of two models, more or less full."""
    return [
        state(
            f"{name}-{n}",
            gib=dice.choice([16, 80]),
            used=dice.choice([0, 0, 3, 8, 13]),
            used_cores=dice.choice([0, 30, 70]),
            model=dice.choice(["A", "B"]),
        )
        for n in range(dice.randint(1, 8))
    ]


SLICES = (
    part(3), part(8, cores=30), part(6, cores=10, cards=2), whole(1), whole(4), part(percent=20, cores=20),
    replace(part(4), only=CardFilter(models=frozenset({"a"}))),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_is_what_one_would_work_out_anew(seed: int):
    """After every change a placer chooses as one that knows the same typical pods and prices, and looks at all anew."""
    dice = random.Random(seed)
    ledger = Ledger(lambda: 0.0)
    for n in range(12):
        cards = [card(c.uuid, c.usable_mib / GIB) for c in random_cards(dice, f"n{n}")]
        ledger.put_node(f"n{n:02}", node(*cards))
    kept, names = Placer(ledger.table), [f"n{n:02}" for n in range(12)]
    for n in range(120):
        request = pod(dice.choice(SLICES), uid=f"u{n}")
        if dice.random() < 0.2:
            request = pod(dice.choice(SLICES), dice.choice(SLICES), uid=f"u{n}")
        placement = kept.choose(request, dice.sample(names, len(names))).placement
        assert unburdened(kept).choose(request, names).placement == placement
        if placement is not None:
            ledger.reserve(request, placement)
        for uid in [e.uid for e in ledger.entries() if dice.random() < 0.05]:
            ledger.release(uid)
