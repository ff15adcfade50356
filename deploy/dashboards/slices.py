"""What is promised to tenants against what they use: by namespace, and the slices that stand out."""

from typing import Final

from deploy.dashboards.panels import (
    NAMESPACES,
    SLICES,
    THIRD,
    Made,
    Query,
    Unit,
    graph,
)

TITLE: Final = "Tenants and their slices"
DRAWN: Final = 10


def panels() -> list[Made]:
    """The row's panels in order."""
    return [*_memory(), *_time(), *_trouble()]


def largest(name: str) -> str:
    """The largest of what is recorded by namespace."""
    return f"topk({DRAWN}, namespace:{name}{{{NAMESPACES}}})"


def _memory() -> list[Made]:
    return [
        graph(
            f"Memory promised and used, the {DRAWN} largest namespaces",
            "The limits of the namespace's slices, and what their programs have. Far apart: they ask for "
            "more than they need.",
            Unit.BYTES,
            Query(largest("aliquot_slice_memory_limit_bytes:sum"), "{{namespace}} promised"),
            Query(largest("aliquot_slice_memory_used_bytes:sum"), "{{namespace}} used"),
        ),
        graph(
            "Burst memory: granted, and moved to the host",
            "What pods of memory class burst may use of their cards now, and what of theirs lies in host "
            "memory instead, where it is slow.",
            Unit.BYTES,
            Query(
                f"topk({DRAWN}, sum by (namespace) (aliquot_slice_memory_granted_bytes{{{SLICES}}}))",
                "{{namespace}} granted",
            ),
            Query(
                f"topk({DRAWN}, sum by (namespace) (aliquot_slice_memory_overflow_bytes{{{SLICES}}}))",
                "{{namespace}} on the host",
            ),
            none="no burst pods",
        ),
    ]


def _time() -> list[Made]:
    return [
        graph(
            "Compute time due and used",
            "In cards: what is due to the namespaces' slices by their shares while they have work, and "
            "what they use.",
            Unit.NUMBER,
            Query(largest("aliquot_slice_core_guaranteed_seconds:rate5m"), "{{namespace}} due"),
            Query(largest("aliquot_slice_busy_seconds:rate5m"), "{{namespace}} used"),
            span=THIRD,
            none="no slice whose time is measured",
        ),
        graph(
            "Compute time lent",
            "In cards: what slices have beyond their own shares, because others leave it.",
            Unit.NUMBER,
            Query(largest("aliquot_slice_core_lent_seconds:rate5m"), "{{namespace}}"),
            span=THIRD,
            none="no card is shared",
        ),
        graph(
            "Waiting for compute time",
            "How many threads of the namespaces' programs wait for their card on average. High, and "
            "little is lent: the card is full, or the share is too small.",
            Unit.NUMBER,
            Query(largest("aliquot_slice_throttled_seconds:rate5m"), "{{namespace}}"),
            span=THIRD,
            none="no slice whose time is measured",
        ),
    ]


def _trouble() -> list[Made]:
    denied = f"namespace_pod_container:aliquot_slice_allocations_denied:rate5m{{{NAMESPACES}}}"
    return [
        graph(
            "Allocations refused",
            "A second, of the containers that were refused most: they ask for more memory than their slice has.",
            Unit.PER_SECOND,
            Query(f"topk({DRAWN}, {denied})", "{{namespace}}/{{pod}} {{container}}"),
            span=THIRD,
            none="nothing was refused",
        ),
        graph(
            "Promises kept",
            "Of the compute time due to slices while they had work, what the one got that got least, in the "
            "namespaces where that is least. Below 100 % a promise is not kept.",
            Unit.RATIO,
            Query(
                f"bottomk({DRAWN}, namespace:aliquot_slice_core_kept_ratio:min{{{NAMESPACES}}})",
                "{{namespace}}",
            ),
            span=THIRD,
            none="no slice that has to share",
        ),
        graph(
            "Not believed, not enforced",
            "Slices whose word of their compute time is not believed, and slices whose limits are only "
            "observed, or switched off.",
            Unit.NUMBER,
            Query(f"count(aliquot_slice_trusted{{{SLICES}}} == 0) or vector(0)", "not believed"),
            Query(f"count(aliquot_slice_enforcement_level{{{SLICES}}} < 2) or vector(0)", "not enforced"),
            span=THIRD,
        ),
    ]
