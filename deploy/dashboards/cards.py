"""Single cards: the fullest and the busiest of the chosen nodes, never all of a large cluster."""

from typing import Final

from deploy.dashboards.panels import NODES, WINDOW, Column, Made, Query, Unit, graph, rows

TITLE: Final = "Cards"
SHOWN, DRAWN = 100, 15
CHOSEN: Final = f'{NODES}, model=~"$model"'


def panels() -> list[Made]:
    """The row's panels in order."""
    return [_table(), *_fullest(), *_odd()]


def of(metric: str) -> str:
    """A metric of each card of the chosen nodes, without what tells agents' pods apart."""
    return f"max by (node, card) ({metric}{{{NODES}}})"


KNOWN: Final = f"max by (node, card) (aliquot_card_info{{{CHOSEN}}})"
TOP: Final = f"topk({SHOWN}, {of('aliquot_card_memory_promised_bytes')} and on (node, card) {KNOWN})"
BUSY: Final = f"sum by (node, card) (rate(aliquot_slice_busy_seconds_total{{{NODES}}}[{WINDOW}]))"
SLICES_ON: Final = f"count by (node, card) (aliquot_slice_memory_limit_bytes{{{NODES}}}) or 0 * {KNOWN}"


def _table() -> Made:
    named = f"max by (node, card, index, model) (aliquot_card_info{{{CHOSEN}}})"

    def shown(expr: str) -> str:
        return f"({expr}) * on (node, card) group_left (index, model) {named} and on (node, card) {TOP}"

    return rows(
        f"The {SHOWN} fullest cards",
        "The cards of the chosen nodes of which most memory is promised.",
        {"node": "Node", "card": "Card", "index": "Number", "model": "Model"},
        [
            Column("Memory promised", shown(of("aliquot_card_memory_promised_bytes")), Unit.BYTES),
            Column("Memory", shown(of("aliquot_card_memory_total_bytes")), Unit.BYTES),
            Column("May be promised", shown(of("aliquot_card_memory_promisable_bytes")), Unit.BYTES),
            Column("Memory used", shown(of("aliquot_card_memory_used_bytes")), Unit.BYTES),
            Column("Time promised", shown(of("aliquot_card_core_promised_ratio")), Unit.RATIO),
            Column("Slices", shown(SLICES_ON), Unit.NUMBER),
            Column("Well", shown(of("aliquot_card_healthy")), Unit.FLAG),
        ],
    )


def _fullest() -> list[Made]:
    return [
        graph(
            f"Memory in use, the {DRAWN} fullest cards",
            "Of each card's memory, what is in use, as the driver says.",
            Unit.RATIO,
            Query(
                f"topk({DRAWN}, {of('aliquot_card_memory_used_bytes')} / "
                f"{of('aliquot_card_memory_total_bytes')}"
                f" and on (node, card) {KNOWN})",
                "{{node}} {{card}}",
            ),
        ),
        graph(
            f"Compute time in use, the {DRAWN} busiest cards",
            "What the slices of each card say that they use; slices without a cap that have a card alone "
            "are not measured.",
            Unit.RATIO,
            Query(f"topk({DRAWN}, {BUSY} and on (node, card) {KNOWN})", "{{node}} {{card}}"),
            none="no slice whose time is measured",
        ),
    ]


def _odd() -> list[Made]:
    return [
        graph(
            "Memory in use by nobody's slice",
            "What the driver says is in use of a card beyond what its slices have. More than some hundred MiB is "
            "somebody who has not asked: a pod that was given all cards, or work on the host.",
            Unit.BYTES,
            Query(
                f"topk({DRAWN}, node_card:aliquot_card_memory_foreign_bytes:max{{{NODES}}} "
                f"and on (node, card) {KNOWN})",
                "{{node}} {{card}}",
            ),
        ),
        graph(
            "Errors that the driver has reported",
            "By card and error, since each agent started. XIDs 13, 31, 43, 45, 68 and 109 are programs' own "
            "faults; any other one, or ECC, takes the card out of use.",
            Unit.NUMBER,
            Query(
                f"topk({DRAWN}, sum by (node, card, error) (aliquot_card_errors_total{{{NODES}}}))",
                "{{node}} {{card}} {{error}}",
            ),
            none="no errors",
        ),
    ]
