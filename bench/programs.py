"""What a slice costs programs that have the shape of real ones: bare, in a slice, and under leases alone on the card.

    python bench/programs.py                    the table
    WHAT="pauses/* streams/*" RUNS=3            some of it; how often each is measured

Prints one JSON object a line: for each mode the time that the programs took, the time that the card was used, the time that
was charged and the allocations that were refused (medians of the runs), then the figures with their bounds. The table for
people goes to stderr. A run in which this machine woke sleeping threads later than 2 ms (99th percentile) says little: it is
repeated, at most so often that twice as many runs are made; if still too few were quiet, all count, and the line says so.
The exit status is 1 if a bound was not met.
"""

import fnmatch
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.sandbox.gpus import SimCard, SimMachine
from timeshare.verdict import Figure
from timeshare.wakes import QUIET_US, SOURCE, compile_program, watched
from timeshare.workload_run import Builder, Done, run
from timeshare.workload_verdict import figures, middle
from timeshare.workloads import Mode, Workload, all_workloads

TRIES = 2
MS = 1e6


@dataclass(frozen=True)
class Tools:
    """What compiles the programs, and the compiled one that watches wake-ups."""

    builder: Builder
    wakes: Path


@contextmanager
def tools() -> Iterator[Tools]:
    """They go afterwards."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as scratch:
        root = Path(scratch)
        machine = SimMachine(root / "machine", [SimCard()])
        machine.create()
        yield Tools(
            Builder(root, machine.lib_dir / "libcuda.so.1"), compile_program(root / "wakes", SOURCE)
        )


@dataclass
class Measured:
    """The runs of a workload, by mode, and how late threads were woken in each round of them."""

    workload: Workload
    rounds: list[tuple[dict[Mode, tuple[Done, ...]], float]] = field(default_factory=list)

    @property
    def quiet(self) -> int:
        """How many rounds were."""
        return sum(wake_us <= QUIET_US for _, wake_us in self.rounds)

    def runs(self, wanted: int) -> dict[Mode, list[tuple[Done, ...]]]:
        """Those that count."""
        enough = self.quiet >= wanted
        chosen = [done for done, wake_us in self.rounds if wake_us <= QUIET_US or not enough]
        return {mode: [done[mode] for done in chosen] for mode in Mode}


def measure(made: Tools, workload: Workload, runs: int) -> Measured:
    """Runs a workload in all modes, one after the other, again and again."""
    measured = Measured(workload)
    while measured.quiet < runs and len(measured.rounds) < runs * TRIES:
        with watched(made.wakes) as wake_us:
            done = {mode: run(made.builder, workload, mode) for mode in Mode}
        measured.rounds.append((done, wake_us[0]))
    return measured


# ---- reporting ----


def number(value: float) -> float | None:
    """As JSON has it."""
    return round(value, 3) if math.isfinite(value) else None


def of_mode(mode: Mode, runs: Sequence[tuple[Done, ...]]) -> dict[str, object]:
    """A mode's figures; without the interceptor nothing is charged."""
    times = {"ms": "took_ns", "used_ms": "used_ns"} | ({} if mode is Mode.BARE else {"charged_ms": "charged_ns"})
    told: dict[str, object] = {name: number(middle(runs, what) / MS) for name, what in times.items()}
    if mode is not Mode.BARE:
        told["refused"] = round(middle(runs, "refused"))
    own = {name for name in runs[0][0].told if name not in {"begin_ns", "end_ns"}}
    return told | {name: number(runs[-1][0].told[name]) for name in sorted(own)}


def line(measured: Measured, wanted: int) -> tuple[dict[str, object], list[Figure]]:
    """A workload's JSON object, and its figures."""
    runs = measured.runs(wanted)
    found = figures(measured.workload, runs)
    told: dict[str, object] = {
        "program": measured.workload.name,
        "share": measured.workload.tenants[0].share,
        "runs": len(runs[Mode.BARE]),
        "wake_p99_us": number(max(wake_us for _, wake_us in measured.rounds)),
        "quiet": measured.quiet >= wanted,
    }
    told |= {mode.value: of_mode(mode, runs[mode]) for mode in Mode}
    told["figures"] = [
        {"name": one.name, "value": number(one.value), "bound": number(one.bound), "met": one.is_met}
        for one in found
    ]
    return told | {"met": all(one.is_met for one in found)}, found


def summary(measured: Measured, wanted: int, found: Sequence[Figure]) -> str:
    """A workload's line of the table."""
    runs = measured.runs(wanted)
    met = all(one.is_met for one in found)
    word = "PASS" if met else "FAIL" if measured.quiet >= wanted else "NOISE"

    def cell(what: str, *modes: Mode) -> str:
        return " ".join(f"{middle(runs[mode], what) / MS:8.1f}" for mode in modes)

    own = (Mode.SLICE, Mode.LEASE)
    refused = "/".join(str(round(middle(runs[mode], "refused"))) for mode in own)
    told = ", ".join(f"{one.name} {one.value:.2f} ({'≥' if one.at_least else '≤'} {one.bound:g})" for one in found)
    name = measured.workload.name
    times = f"{cell('took_ns', *Mode)} | {cell('used_ns', *own)} | {cell('charged_ns', *own)} | {refused:>5}"
    return f"{word:5} {name:28} {measured.workload.tenants[0].share:3} | {times} | {told}"


def is_wanted(workload: Workload) -> bool:
    """Whether WHAT names it, or nothing."""
    return any(fnmatch.fnmatch(workload.name, one) for one in os.environ.get("WHAT", "").split() or ["*"])


HEAD = (
    f"{'':5} {'':28} {'%':>3} | {'bare':>8} {'slice':>8} {'lease':>8} | {'slice':>8} {'lease':>8} | {'slice':>8} {'lease':>8} |\n"
    f"{'':38} | {'time, ms':>26} | {'card used, ms':>17} | {'charged, ms':>17} | refused"
)


def main() -> None:
    """Measures the table, or what WHAT names."""
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    wanted, met = int(os.environ.get("RUNS", "3")), []
    print(HEAD, file=sys.stderr)
    with tools() as made:
        for workload in filter(is_wanted, all_workloads()):
            measured = measure(made, workload, wanted)
            told, found = line(measured, wanted)
            print(json.dumps(told), flush=True)
            print(summary(measured, wanted, found), file=sys.stderr, flush=True)
            met.append(told["met"])
    print(f"{sum(map(bool, met))} of {len(met)} programs met", file=sys.stderr)
    sys.exit(not met or not all(met))


if __name__ == "__main__":
    main()
