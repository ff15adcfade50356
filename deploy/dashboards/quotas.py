"""What teams have of what they may have."""

from typing import Final

from deploy.dashboards.panels import (
    NAMESPACES,
    WINDOW,
    Column,
    Made,
    Query,
    Unit,
    bars,
    graph,
    rows,
)

TITLE: Final = "Quotas"
DRAWN: Final = 20


def panels() -> list[Made]:
    """The row's panels in order."""
    return [
        bars(
            "Limits used",
            f"The part of each limit that is in use, of the {DRAWN} quotas nearest to theirs.",
            Unit.RATIO,
            Query(
                f"topk({DRAWN}, kind_quota_amount:aliquot_quota_used:ratio)",
                "{{quota}} {{amount}} ({{kind}})",
            ),
        ),
        graph(
            "Refused for a quota",
            "Filter calls a second that a quota has refused. kube-scheduler asks again for each pod that "
            "waits.",
            Unit.PER_SECOND,
            Query(
                f"topk({DRAWN}, sum by (namespace) "
                f"(rate(aliquot_quota_refusals_total{{{NAMESPACES}}}[{WINDOW}])))",
                "{{namespace}}",
            ),
            none="nothing was refused",
        ),
        _table(),
        graph(
            f"Memory promised, the {DRAWN} largest namespaces",
            "On all cards together, reservations included, as quotas count it.",
            Unit.BYTES,
            Query(
                f"topk({DRAWN}, namespace:aliquot_namespace_memory_promised_bytes:max{{{NAMESPACES}}})",
                "{{namespace}}",
            ),
        ),
        graph(
            f"Compute time promised, the {DRAWN} largest namespaces",
            "In cards.",
            Unit.NUMBER,
            Query(
                f"topk({DRAWN}, namespace:aliquot_namespace_core_promised_ratio:max{{{NAMESPACES}}})",
                "{{namespace}}",
            ),
        ),
    ]


def _table() -> Made:
    def of(metric: str) -> str:
        return f"max by (kind, quota) (aliquot_quota_{metric})"

    return rows(
        "Quotas",
        "What their namespaces have, what is guaranteed to them, and what they have at most; a limit "
        "that is empty is not bounded.",
        {"kind": "Kind", "quota": "Quota"},
        [
            Column("Memory used", of("memory_used_bytes"), Unit.BYTES),
            Column("guaranteed", of("memory_guaranteed_bytes"), Unit.BYTES),
            Column("at most", of("memory_limit_bytes"), Unit.BYTES),
            Column("Compute used", of("core_used_ratio"), Unit.NUMBER),
            Column("compute guaranteed", of("core_guaranteed_ratio"), Unit.NUMBER),
            Column("compute at most", of("core_limit_ratio"), Unit.NUMBER),
            Column("Cards used", of("cards_used"), Unit.NUMBER),
            Column("cards guaranteed", of("cards_guaranteed"), Unit.NUMBER),
            Column("cards at most", of("cards_limit"), Unit.NUMBER),
        ],
        none="no quotas",
    )
