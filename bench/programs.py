"""What a slice costs programs that have the shape of real ones: bare, in a slice, and under leases alone on the card.

    python bench/programs.py                the table, on simulated cards; WHAT="pauses/* streams/*" some of it, RUNS=3
    python bench/programs.py card           the same on this machine's cards, where the time used is what was launched

Prints one JSON object a line: for each mode the time that the programs took, the time that the card was used, the time
that was charged and the allocations that were refused (medians of the runs), then the figures with their bounds. The
table for people goes to stderr. A run in which this machine woke sleeping threads later than 2 ms (99th percentile)
says little: it is repeated, until twice as many were made as were asked for. If too few were quiet then, all count,
and the line says so. The exit status is 1 if a bound was not met.
"""

import fnmatch
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timeshare.machines import NoCardError, Real, Simulated
from timeshare.processes import RunError
from timeshare.verdict import Figure
from timeshare.wakes import QUIET_US, SOURCE, compile_program, watched
from timeshare.workload_run import Done, Tools, run
from timeshare.workload_verdict import figures, middle, told
from timeshare.workloads import Mode, Workload, all_workloads

TRIES = 2
MS = 1e6


@contextmanager
def tools(*, real: bool) -> Iterator[tuple[Tools, Path]]:
    """What runs the programs, and the program that watches wake-ups; they go afterwards."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as scratch:
        root = Path(scratch)
        wakes = compile_program(root / "wakes", SOURCE)
        machine = Real if real else Simulated
        yield Tools(root, machine(root, all_workloads()[0]).driver, machine), wakes


@dataclass
class Measured:
    """The runs of a workload, by mode, and how late threads were woken in each round of them."""

    workload: Workload
    rounds: list[tuple[dict[Mode, tuple[Done, ...]], float]] = field(default_factory=list)

    @property
    def quiet(self) -> int:
        """How many rounds were."""
        return sum(wake_us <= QUIET_US for _, wake_us in self.rounds)

    def counted(self, wanted: int) -> list[tuple[dict[Mode, tuple[Done, ...]], float]]:
        """The quiet rounds, or all where these are too few."""
        enough = self.quiet >= wanted
        return [one for one in self.rounds if one[1] <= QUIET_US or not enough]

    def runs(self, wanted: int) -> dict[Mode, list[tuple[Done, ...]]]:
        """Those that count, by mode."""
        return {mode: [done[mode] for done, _ in self.counted(wanted)] for mode in Mode}


def measure(made: Tools, wakes: Path, workload: Workload, runs: int) -> Measured:
    """Runs a workload in all modes, one after the other, again and again."""
    measured = Measured(workload)
    while measured.quiet < runs and len(measured.rounds) < runs * TRIES:
        with watched(wakes) as wake_us:
            done = {mode: run(made, workload, mode) for mode in Mode}
        measured.rounds.append((done, wake_us[0]))
    return measured


# ---- reporting ----

OWN = (Mode.SLICE, Mode.LEASE)
EACH, EACH_OWN = (" ".join(f"{mode:>8}" for mode in modes) for modes in (Mode, OWN))
HEAD = f"""
{"":5} {"":27} share | {"time, ms":^26} | {"card used, ms":^26} | {"charged, ms":^17} | refused
{"":5} {"":27} {"%":>5} | {EACH} | {EACH} | {EACH_OWN} |
"""


def number(value: float) -> float:
    """As JSON has it."""
    return round(value, 3)


def of_mode(mode: Mode, runs: Sequence[tuple[Done, ...]]) -> dict[str, float]:
    """A mode's figures; without the interceptor nothing is charged."""
    values = {"ms": middle(runs, "took_ns") / MS, "used_ms": middle(runs, "used_ns") / MS}
    if mode in OWN:
        values |= {"charged_ms": middle(runs, "charged_ns") / MS, "refused": middle(runs, "refused")}
    names = [name for name in sorted(runs[0][0].told) if not name.endswith("_ns")]
    values |= {name: told(runs, name) for name in names}
    return {name: number(value) for name, value in values.items()}


def line(measured: Measured, wanted: int, found: Sequence[Figure]) -> dict[str, object]:
    """A workload's JSON object."""
    runs = measured.runs(wanted)
    return {
        "program": measured.workload.name,
        "share": measured.workload.share,
        "runs": len(runs[Mode.BARE]),
        "wake_p99_us": number(max(wake_us for _, wake_us in measured.counted(wanted))),
        "quiet": measured.quiet >= wanted,
        **{mode.value: of_mode(mode, runs[mode]) for mode in Mode},
        "figures": [
            {"name": one.name, "value": number(one.value), "bound": one.bound, "met": one.is_met}
            for one in found
        ],
        "met": all(one.is_met for one in found),
    }


def row(measured: Measured, wanted: int, found: Sequence[Figure]) -> str:
    """A workload's line of the table for people."""
    runs = measured.runs(wanted)
    word = "PASS" if all(one.is_met for one in found) else "FAIL" if measured.quiet >= wanted else "NOISE"

    def cells(what: str, modes: Iterable[Mode]) -> str:
        return " ".join(f"{middle(runs[mode], what) / MS:8.1f}" for mode in modes)

    refused = "/".join(f"{middle(runs[mode], 'refused'):.0f}" for mode in OWN)
    return " | ".join(
        (
            f"{word:5} {measured.workload.name:27} {measured.workload.share:5}",
            cells("took_ns", Mode),
            cells("used_ns", Mode),
            cells("charged_ns", OWN),
            f"{refused:>7}",
            ", ".join(
                f"{one.name} {one.value:.2f} ({'≥' if one.at_least else '≤'} {one.bound:g})" for one in found
            ),
        )
    )


def report(made: Tools, wakes: Path, workload: Workload, wanted: int) -> bool:
    """Measures and prints a workload; returns whether it is met."""
    try:
        measured = measure(made, wakes, workload, wanted)
    except RunError as error:
        print(json.dumps({"program": workload.name, "error": str(error), "met": False}), flush=True)
        print(f"FAIL  {workload.name}: {error}", file=sys.stderr, flush=True)
        return False
    found = figures(workload, measured.runs(wanted))
    print(json.dumps(line(measured, wanted, found)), flush=True)
    print(row(measured, wanted, found), file=sys.stderr, flush=True)
    return all(one.is_met for one in found)


def is_wanted(workload: Workload) -> bool:
    """Whether WHAT names it, or nothing."""
    return any(fnmatch.fnmatch(workload.name, one) for one in os.environ.get("WHAT", "").split() or ["*"])


def table(*, real: bool) -> bool:
    """Measures the table, or what WHAT names, as far as there are cards for it; returns whether all is met."""
    wanted, met = int(os.environ.get("RUNS", "3")), []
    with tools(real=real) as (made, wakes):
        print(HEAD, file=sys.stderr)
        for workload in filter(is_wanted, all_workloads()):
            try:
                met.append(report(made, wakes, workload, wanted))
            except NoCardError as error:
                print(f"*** NOT RUN: {error}", file=sys.stderr)
    print(f"{sum(met)} of {len(met)} programs met", file=sys.stderr)
    return bool(met) and all(met)


def main() -> None:
    """Measures on simulated cards, or on this machine's."""
    if sys.argv[1:] not in ([], ["card"]):
        sys.exit(__doc__)
    try:
        sys.exit(not table(real=bool(sys.argv[1:])))
    except NoCardError as error:
        print(f"*** NOT RUN: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
