"""Who waits for cards, why, and what the scheduler does about it."""

from typing import Final

from deploy.dashboards.panels import NAMESPACES, THIRD, WINDOW, Made, Query, Unit, graph

TITLE: Final = "Pods that wait"
DRAWN: Final = 10


def panels() -> list[Made]:
    """The row's panels in order."""
    return [*_who(), *_scheduler()]


def _who() -> list[Made]:
    waiting = f"namespace_reason:aliquot_scheduler_waiting_pods:max{{{NAMESPACES}}}"
    return [
        graph(
            "By reason",
            "Pods that no place was found for, by what keeps them from the nodes that come nearest. "
            "`aliquot why NAMESPACE/POD` tells all reasons of one pod, and what would help.",
            Unit.NUMBER,
            Query(f"sum by (reason) ({waiting})", "{{reason}}"),
            span=THIRD,
            stacked=True,
            none="nobody waits",
        ),
        graph(
            "By namespace",
            f"The {DRAWN} namespaces of which most pods wait.",
            Unit.NUMBER,
            Query(f"topk({DRAWN}, sum by (namespace) ({waiting}))", "{{namespace}}"),
            span=THIRD,
            none="nobody waits",
        ),
        graph(
            "Longest",
            "Since when the pod is refused that waits longest, in the namespaces where that is longest.",
            Unit.SECONDS,
            Query(
                f"topk({DRAWN}, namespace:aliquot_scheduler_waiting_longest_seconds:max{{{NAMESPACES}}})",
                "{{namespace}}",
            ),
            span=THIRD,
            none="nobody waits",
        ),
    ]


def _scheduler() -> list[Made]:
    return [
        graph(
            "Filter calls, by what came of them",
            "A second. Placed: a node was found; refused: none has room; error and bad: the call failed.",
            Unit.PER_SECOND,
            Query(f"sum by (outcome) (rate(aliquot_filter_seconds_count[{WINDOW}]))", "{{outcome}}"),
            span=THIRD,
        ),
        graph(
            "Places on the way",
            "Pods with a place that are not bound yet: held while others leave, reserved, being bound, "
            "or not known to be bound.",
            Unit.NUMBER,
            Query('max by (stage) (aliquot_scheduler_placements{stage!="bound"})', "{{stage}}"),
            span=THIRD,
        ),
        graph(
            "Groups of pods",
            "That wait, save up places, hold places until all members come, rest after giving them back, "
            "or run.",
            Unit.NUMBER,
            Query("max by (state) (aliquot_scheduler_groups)", "{{state}}"),
            span=THIRD,
        ),
    ]
