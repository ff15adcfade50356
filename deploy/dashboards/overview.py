"""The whole cluster, or the chosen nodes and models: what is there, promised and used, and what is left of it where."""

from typing import Final

from deploy.dashboards.panels import (
    MODELS,
    NAMESPACES,
    NEARLY_ALL,
    NONE_BETTER,
    Column,
    Made,
    Query,
    Unit,
    graph,
    number,
    rows,
)

TITLE: Final = "Overview"


def panels() -> list[Made]:
    """The row's panels in order."""
    return [*_figures(), *_promises(), *_rests(), _models()]


def recorded(name: str) -> str:
    """The sum of what is recorded by node and model."""
    return f"sum(node_model:{name}{{{MODELS}}})"


CARDS: Final = recorded("aliquot_cards:count")
UNWELL: Final = f"{CARDS} - {recorded('aliquot_cards_healthy:sum')}"
TOTAL: Final = recorded("aliquot_card_memory_total_bytes:sum")
PROMISED: Final = recorded("aliquot_card_memory_promised_bytes:sum")
USED: Final = recorded("aliquot_card_memory_used_bytes:sum")
CORES: Final = recorded("aliquot_card_core_promised_ratio:sum")
BUSY: Final = f"({recorded('aliquot_slice_busy_seconds:rate5m')} or vector(0))"
FREE: Final = recorded("aliquot_card_memory_free_bytes:sum")
FREE_WHOLE: Final = recorded("aliquot_card_memory_free_whole_bytes:sum")
STRANDED: Final = recorded("aliquot_card_memory_stranded_bytes:sum")
WAITING: Final = f"sum(namespace_reason:aliquot_scheduler_waiting_pods:max{{{NAMESPACES}}}) or vector(0)"


def _figures() -> list[Made]:
    return [
        number(
            "Nodes",
            "Nodes whose agent tells of cards.",
            Unit.NUMBER,
            f"count(count by (node) (node_model:aliquot_cards:count{{{MODELS}}}))",
        ),
        number("Cards", "Cards of these nodes.", Unit.NUMBER, CARDS),
        number(
            "Cards not well",
            "Cards that get no new pods: they give no answer, or had an error.",
            Unit.NUMBER,
            UNWELL,
            NONE_BETTER,
        ),
        number(
            "Slices",
            "Parts of cards that containers have: one for each container and card.",
            Unit.NUMBER,
            f"{recorded('aliquot_slices:count')} or vector(0)",
        ),
        number(
            "Memory promised",
            "Of the cards' memory, what is promised to pods. More than 100 % where pools overcommit.",
            Unit.RATIO,
            f"{PROMISED} / {TOTAL}",
            NEARLY_ALL,
        ),
        number(
            "Memory used",
            "Of the cards' memory, what is in use, as the driver says.",
            Unit.RATIO,
            f"{USED} / {TOTAL}",
            NEARLY_ALL,
        ),
        number(
            "Compute promised",
            "Of the cards' compute time, what is promised to pods.",
            Unit.RATIO,
            f"{CORES} / {CARDS}",
            NEARLY_ALL,
        ),
        number(
            "Pods that wait",
            "Pods that no place was found for, in the chosen namespaces.",
            Unit.NUMBER,
            WAITING,
            NONE_BETTER,
        ),
    ]


def _promises() -> list[Made]:
    return [
        graph(
            "Memory: there, promised, used",
            "What the cards have for slices, what is promised of it, and what is in use. "
            "Far more promised than used: people ask for too much, and burst memory would help.",
            Unit.BYTES,
            Query(TOTAL, "there"),
            Query(PROMISED, "promised"),
            Query(USED, "used"),
        ),
        graph(
            "Compute time: there, promised, used",
            "In cards. Used is what slices say that they use, which is measured of those with a cap and "
            "those that share a card.",
            Unit.NUMBER,
            Query(CARDS, "there"),
            Query(CORES, "promised"),
            Query(BUSY, "used"),
        ),
    ]


def _rests() -> list[Made]:
    return [
        graph(
            "Free memory, by where it is",
            "On cards of which nothing is promised; on cards in use; and stranded, on cards with less "
            "than 5 % of their "
            "compute time left, where it can go only to pods that ask for none.",
            Unit.BYTES,
            Query(FREE_WHOLE, "on empty cards"),
            Query(f"{FREE} - {FREE_WHOLE} - {STRANDED}", "on cards in use"),
            Query(STRANDED, "stranded"),
            stacked=True,
        ),
        graph(
            "Fragmentation",
            "Of all free memory, the part that lies on cards in use, where no pod fits that wants a "
            "whole card; and the part that is stranded.",
            Unit.RATIO,
            Query(f"1 - {FREE_WHOLE} / ({FREE} > 0)", "on cards in use"),
            Query(f"{STRANDED} / ({FREE} > 0)", "stranded"),
        ),
    ]


def _models() -> Made:
    def of(name: str) -> str:
        return f"sum by (model) (node_model:{name}{{{MODELS}}})"

    nobody = f"0 * {of('aliquot_cards:count')}"
    return rows(
        "Card models",
        "The same by model.",
        {"model": "Model"},
        [
            Column("Cards", of("aliquot_cards:count"), Unit.NUMBER),
            Column(
                "Not well", f"{of('aliquot_cards:count')} - {of('aliquot_cards_healthy:sum')}", Unit.NUMBER
            ),
            Column("Slices", f"{of('aliquot_slices:count')} or {nobody}", Unit.NUMBER),
            Column("Memory", of("aliquot_card_memory_total_bytes:sum"), Unit.BYTES),
            Column("Memory promised", of("aliquot_card_memory_promised_bytes:sum"), Unit.BYTES),
            Column("Memory used", of("aliquot_card_memory_used_bytes:sum"), Unit.BYTES),
            Column("Cards' time promised", of("aliquot_card_core_promised_ratio:sum"), Unit.NUMBER),
            Column("Cards' time used", f"{of('aliquot_slice_busy_seconds:rate5m')} or {nobody}", Unit.NUMBER),
        ],
    )
