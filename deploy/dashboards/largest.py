"""Single slices, the largest: a table that goes through all of them, and is asked for only where its row is opened."""

from typing import Final

from deploy.dashboards.panels import SLICES, WINDOW, Column, Made, Unit, rows

TITLE: Final = "Slices, one by one"
SHOWN: Final = 100
NAMES: Final = "namespace, pod, container, node, card"


def panels() -> list[Made]:
    """The row's panels in order."""
    return [_table()]


def of(metric: str) -> str:
    """A metric of each chosen slice."""
    return f"sum by ({NAMES}) ({metric}{{{SLICES}}})"


def rate(metric: str) -> str:
    """What each chosen slice's counter gains a second."""
    return f"sum by ({NAMES}) (rate({metric}{{{SLICES}}}[{WINDOW}]))"


def _table() -> Made:
    top = f"topk({SHOWN}, {of('aliquot_slice_memory_limit_bytes')})"

    def shown(expr: str) -> str:
        return f"{expr} and on ({NAMES}) {top}"

    return rows(
        f"The {SHOWN} largest slices",
        "Promise against use. Share, use and waiting are of the card's compute time; use and waiting are "
        "empty where nobody measures.",
        {"namespace": "Namespace", "pod": "Pod", "container": "Container", "node": "Node", "card": "Card"},
        [
            Column("Memory promised", top, Unit.BYTES),
            Column("Memory used", shown(of("aliquot_slice_memory_used_bytes")), Unit.BYTES),
            Column("Most memory used", shown(of("aliquot_slice_memory_peak_bytes")), Unit.BYTES),
            Column("Share", shown(of("aliquot_slice_core_share_ratio")), Unit.RATIO),
            Column("Time used", shown(rate("aliquot_slice_busy_seconds_total")), Unit.RATIO),
            Column("Of that lent", shown(rate("aliquot_slice_core_lent_seconds_total")), Unit.RATIO),
            Column("Threads waiting", shown(rate("aliquot_slice_throttled_seconds_total")), Unit.NUMBER),
            Column("Refused in all", shown(of("aliquot_slice_allocations_denied_total")), Unit.NUMBER),
            Column("Believed", shown(of("aliquot_slice_trusted")), Unit.FLAG),
        ],
        none="no slices",
    )
