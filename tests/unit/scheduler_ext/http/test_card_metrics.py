"""What is told of every card: as the table has it, as Prometheus reads it, and while calls are answered."""

import asyncio
import gzip
import itertools
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from aliquot.request.placement import Charge
from aliquot.scheduler_ext.app import App
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.http.card_metrics import PIECE, card_metrics
from aliquot.scheduler_ext.http.metrics import ExtenderMetrics
from aliquot.scheduler_ext.options import parse_arguments
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.server.metrics import Pieces, add_routes
from aliquot.units import MIB
from tests.unit.scheduler_ext.placing import state

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def cluster(nodes: int, cards: int = 8, seed: int = 0) -> CardTable:
    """Nodes with some cards each, on which something is promised."""
    dice, table = random.Random(seed), CardTable()
    for n in range(nodes):
        mine = [state(f"GPU-{n:05}-{c}", gib=16 + c) for c in range(dice.randint(0, cards))]
        table.put(f"node-{n:05}", mine)
        for one in mine:
            table.charge(f"node-{n:05}", one.uuid, Charge(dice.randint(0, 9999), dice.randint(0, 99), 1), 1)
    return table


def expected(table: CardTable) -> dict[tuple[str, str, str], float]:
    """The same, card by card, in the words of the documentation."""
    return {
        (f"aliquot_scheduler_card_{name}", node, card.uuid): value
        for node in table.nodes()
        for card in table.cards(node)
        for name, value in {
            "memory_usable_bytes": card.usable_mib * MIB,
            "memory_promised_bytes": card.used_mib * MIB,
            "core_promised_ratio": card.used_cores / 100,
            "slices_promised": card.used_slots,
        }.items()
    }


def told(families: list[Metric]) -> dict[tuple[str, str, str], float]:
    """The samples of cards, none of them twice."""
    samples = [s for family in families for s in family.samples if "_card_" in family.name]
    found = {(s.name, s.labels["node"], s.labels["card"]): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def test_every_card_is_told_of_as_it_is():
    """By Prometheus' own reader; cards that have gone are gone, and rows that are used again are another's."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    table = cluster(PIECE // 3, seed=seed)
    assert sum(len(table.cards(node)) for node in table.nodes()) > PIECE
    for n in range(0, PIECE // 3, 7):
        table.drop(f"node-{n:05}")
    table.put("late", [state("GPU-late")])
    families = list(plain("".join(card_metrics(table))))
    assert {family.type for family in families} == {"gauge"}
    assert told(families) == expected(table)


def test_names_are_escaped():
    """Whatever an agent calls its cards."""
    table = CardTable()
    table.put('n\\"1', [state('GPU-"a\\b\n"'), state("GPU-plain")])
    assert told(list(plain("".join(card_metrics(table))))) == expected(table)


def test_all_pieces_are_of_one_moment():
    """What is promised while they are made is told next time."""
    table = cluster(PIECE // 2)
    before, pieces = expected(table), card_metrics(table)
    text = next(pieces)
    for n in range(PIECE // 2):
        table.drop(f"node-{n:05}")
    table.put("late", [state("GPU-late")])
    assert told(list(plain(text + "".join(pieces)))) == before
    assert told(list(plain("".join(card_metrics(table))))) == expected(table)


def scrape(metrics: ExtenderMetrics, **headers: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer, as it came over the wire."""
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(fetch(metrics.registry, metrics.cards, asked))


async def fetch(
    registry: CollectorRegistry, more: Pieces | None, headers: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, str], bytes]:
    """The same within a loop that has other work."""
    app = web.Application()
    add_routes(app, registry, lambda: "", more=more)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Accept-Encoding"]) as session:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
        async with session.get(url, headers=headers) as answer:
            found = dict(answer.headers), await answer.read()
    await runner.cleanup()
    return found


def exported(nodes: int = 300, *, cards: bool = True) -> tuple[Ledger, ExtenderMetrics]:
    """A ledger, and its metrics."""
    ledger = Ledger(lambda: 0.0)
    ledger.table = cluster(nodes)
    return ledger, ExtenderMetrics(CollectorRegistry(), ledger, cards=cards)


def test_a_scrape_has_all_families_in_either_format():
    """The others first; OpenMetrics' text ends where it says so."""
    ledger, metrics = exported()
    headers, body = scrape(metrics)
    assert headers["Content-Type"].startswith("text/plain")
    families = list(plain(body.decode()))
    assert "aliquot_scheduler_placements" in {family.name for family in families}
    assert told(families) == expected(ledger.table)
    headers, body = scrape(metrics, Accept=OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert told(list(openmetrics(body.decode()))) == expected(ledger.table)


PACKED = {
    "gzip": True, "deflate, gzip;q=0.5": True, "GZIP": True,
    "": False, "identity": False, "gzip;q=0": False, "gzip; q=0.0, br": False, "x-gzip": False,
}  # fmt: skip


@pytest.mark.parametrize(("said", "packed"), PACKED.items())
def test_a_scrape_is_packed_only_for_those_who_ask_for_it(said: str, packed: bool):
    """It is the same text."""
    _, metrics = exported()
    headers, body = scrape(metrics, Accept_Encoding=said)
    assert headers.get("Content-Encoding") == ("gzip" if packed else None)
    _, whole = scrape(metrics)
    assert (gzip.decompress(body) if packed else body) == whole


def test_calls_are_answered_during_a_scrape():
    """Other work has a turn between any two pieces, and no piece has more than its number of samples."""
    _, metrics = exported(1000)
    turns, turns_before_piece = 0, []

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def pieces() -> Iterator[str]:
        for piece in metrics.cards():
            turns_before_piece.append(turns)
            assert piece.startswith("#") or piece.count("\n") <= PIECE
            yield piece

    async def run() -> None:
        counting = asyncio.create_task(count_turns())
        await fetch(metrics.registry, pieces)
        counting.cancel()

    asyncio.run(run())
    assert len(turns_before_piece) > 4
    assert all(earlier < later for earlier, later in itertools.pairwise(turns_before_piece))


def test_cards_are_left_out_for_those_who_have_them_from_the_agents():
    """All else is told."""
    app = App(None, parse_arguments(["--no-card-metrics"]))  # type: ignore[arg-type] - nothing of it runs
    assert app._metrics.cards is None
    _, metrics = exported(cards=False)
    _, body = scrape(metrics)
    families = {family.name for family in plain(body.decode())}
    assert "aliquot_scheduler_placements" in families
    assert not any("_card_" in name for name in families)
