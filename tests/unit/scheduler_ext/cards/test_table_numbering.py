"""A node whose agent writes other cards again and again: what no node has any more is forgotten."""

import msgspec

from aliquot.crds.gpu_node import GPUNodeStatus
from aliquot.scheduler_ext.cards.card_table import SPARE_KINDS, CardTable
from aliquot.scheduler_ext.cards.topology import Shape
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import card, node, part, pod

CARDS = 16


def strange(turn: int) -> GPUNodeStatus:
    """Cards of models and sizes that no other status has, linked as in no other."""
    cards = []
    for number in range(CARDS):
        links = " ".join(("NODE", "PIX")[turn >> before % 9 & 1] for before in range(number))
        made = card(f"odd-{number}", gib=80)
        model, size = f"NVIDIA M{turn}-{number}", made.memory_mib + turn * CARDS + number
        cards.append(msgspec.structs.replace(made, model=model, memory_mib=size, links=links))
    return GPUNodeStatus(slices_per_card=4, cards=tuple(cards))


def cluster() -> Ledger:
    """Two usual nodes."""
    ledger = Ledger(lambda: 0.0)
    for name in ("a", "b"):
        ledger.put_node(name, node(card(f"{name}-0", gib=16), card(f"{name}-1", gib=24)))
    return ledger


def named(table: CardTable) -> list[tuple[str, int, Shape]]:
    """Of the odd node's cards the model, the memory and how they are linked."""
    return [(one.model, one.usable_mib, one.sets.shape) for one in table.cards("odd")]


def test_what_no_node_has_any_more_is_forgotten():
    """There are never many more than the nodes have, and the next choice is that of a cluster that never had them."""
    ledger, plain = cluster(), cluster()
    placer, fresh = Placer(ledger.table), Placer(plain.table)
    for turn in range(300):
        ledger.put_node("odd", strange(turn))
        assert len(ledger.table.kinds) <= 2 * (CARDS + 3) + SPARE_KINDS + CARDS
        assert len(ledger.table.sets) <= 2 * (CARDS + 3) + SPARE_KINDS + CARDS
        if turn % 40 == 0:
            assert placer.choose(pod(part(4), uid=f"u{turn}"), ["a", "b", "odd"]).placement
    plain.put_node("odd", strange(299))
    assert not plain.table.cards("odd")[0].sets.shape.uniform
    fresh.demand = placer.demand
    for size in (1, 8, 17, 60):
        request = pod(part(size), uid=f"after-{size}")
        assert placer.look(request, ["a", "b", "odd"]) == fresh.look(request, ["a", "b", "odd"])
    assert named(ledger.table) == named(plain.table)


def test_what_is_kept_of_a_class_of_pods_is_made_anew_with_the_numbers():
    """As many kinds and shapes as before are others."""
    ledger = cluster()
    placer = Placer(ledger.table)
    ledger.put_node("odd", strange(0))
    placer.choose(pod(part(4), uid="u"), ["a", "b", "odd"])
    (ranking,) = placer._rankings.values()
    before, known = ranking._class.lent, ledger.table.numbering
    turn = 0
    while ledger.table.numbering[0] == known[0]:
        turn += 1
        ledger.put_node("odd", strange(turn))
    assert ledger.table.numbering[1:] == known[1:]
    assert ranking._class.lent is not before


def test_a_copy_keeps_what_its_numbers_mean():
    """A search that is under way goes on with what it has read."""
    ledger = cluster()
    ledger.put_node("odd", strange(0))
    table = ledger.table
    row = table.rows_of(["odd"])
    part_of, twin = table.at(row), table.twin()
    before = named(twin)
    for turn in range(1, 100):
        ledger.put_node("other", strange(turn))
    assert named(twin) == before
    models = [part_of.models[number] for number in part_of.model[:, 0].tolist()]
    assert models[:CARDS] == [f"NVIDIA M0-{number}" for number in range(CARDS)]
