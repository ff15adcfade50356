"""What the runs of a workload say about its question: medians, one figure a mode."""

import statistics
from collections.abc import Mapping, Sequence

from .verdict import Figure
from .workload_run import Done
from .workloads import WHOLE, Mode, Question, Workload

Runs = Mapping[Mode, Sequence[tuple[Done, ...]]]
CHARGED = 10.0
"""Percent of what was used by which what was charged may be off."""


def middle(runs: Sequence[tuple[Done, ...]], what: str) -> float:
    """The median of something that the tenants of whom something is asked have done, of each run's largest."""
    return statistics.median(max(float(getattr(one, what)) for one in done) for done in runs)


def told(runs: Sequence[tuple[Done, ...]], name: str) -> float:
    """The median of something that programs tell, of each run's smallest."""
    return statistics.median(min(one.told[name] for one in done) for done in runs)


def percent_used(runs: Sequence[tuple[Done, ...]]) -> float:
    """Of the card, while the programs ran."""
    return 100 * middle(runs, "used_ns") / middle(runs, "took_ns")


def figures(workload: Workload, runs: Runs) -> list[Figure]:
    """Each of the slice's and the lease's; of modes that were measured."""
    return [
        figure
        for mode in workload.asked
        if runs.get(mode) and runs.get(Mode.BARE)
        for figure in _figures(workload, mode, runs[mode], runs[Mode.BARE])
    ]


def _figures(
    workload: Workload, mode: Mode, runs: Sequence[tuple[Done, ...]], bare: Sequence[tuple[Done, ...]]
) -> list[Figure]:
    match workload.question:
        case Question.TIME:
            return [Figure(f"{mode}_to_bare", _slower(workload, runs, bare), workload.bound)]
        case Question.USE:
            return _use(workload, mode, runs, bare)
        case Question.STEPS:
            return [Figure(f"{mode}_steps_per_s", told(runs, "steps_per_s"), workload.bound, at_least=True)]
        case Question.EVENTS:
            off = told(runs, "event_ms") / told(bare, "event_ms") - 1
            return [Figure(f"{mode}_event_off_percent", 100 * abs(off), workload.bound)]
        case Question.ROOM:
            return [Figure(f"{mode}_refused", middle(runs, "refused"), workload.bound)]


def _slower(workload: Workload, runs: Sequence[tuple[Done, ...]], bare: Sequence[tuple[Done, ...]]) -> float:
    """Against the time without, or that in which a share of less than all of the card is enough for it."""
    enough = middle(bare, "used_ns") * 100 / workload.share if workload.share < WHOLE else 0.0
    return middle(runs, "took_ns") / max(middle(bare, "took_ns"), enough)


def _use(
    workload: Workload, mode: Mode, runs: Sequence[tuple[Done, ...]], bare: Sequence[tuple[Done, ...]]
) -> list[Figure]:
    wanted = min(percent_used(bare), workload.share)
    used, charged = middle(runs, "used_ns"), middle(runs, "charged_ns")
    return [
        Figure(f"{mode}_use_off_points", abs(percent_used(runs) - wanted), workload.bound),
        Figure(f"{mode}_charge_off_percent", 100 * abs(charged / used - 1), CHARGED),
    ]
