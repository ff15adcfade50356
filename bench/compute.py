"""Whether tenants get the compute time they bought, judged by the simulated card's own record of who ran when.

    python bench/compute.py                 the table; CASES="single* pair/50*" some of it, SECONDS=8, RUNS=3
    python bench/compute.py bare            the same without the interceptor: what it is good for
    python bench/compute.py soak            random mixes of tenants; MIXES=10, SEED=1, SECONDS=8, CASES="mix/1/7"
    python bench/compute.py --busy 2        a table of its own, with so many busy loops a core beside each run

Prints one JSON object a line: what each tenant got in percent of the card, how far that is off in points, the standard
deviation over windows of 100 ms, each figure with its bound. Figures are medians of the runs. A run in which this
machine woke sleeping threads later than 2 ms (99th percentile) says nothing about the interceptor: it is repeated, and
counted as discarded. So is one beside busy loops in which other programs had more than 5 % of the CPUs. A summary goes
to stderr; the exit status is 1 if a bound was not met or a case not measured.
"""

import argparse
import fnmatch
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from timeshare.busy_cases import busy_cases
from timeshare.cases import Case, all_cases
from timeshare.mixes import mix
from timeshare.run import Programs, Run, programs, run
from timeshare.verdict import Figure, answers, control_of, median, mix_errors

TRIES = 4


@dataclass
class Measured:
    """The runs of a case that count, each with its control where there is one."""

    case: Case
    runs: list[tuple[Run, Run | None]] = field(default_factory=list)
    discarded: int = 0

    def figures(self) -> list[Figure]:
        """Medians."""
        answered = [answers(self.case, one, control) for one, control in self.runs]
        return [median(same) for same in zip(*answered, strict=True)]

    @property
    def is_met(self) -> bool:
        """Whether it was measured and every figure is within its bound."""
        figures = self.figures()
        return bool(figures) and all(figure.is_met for figure in figures)


def measure(tools: Programs, case: Case, seconds: float, runs: int, busy: int = 0) -> Measured:
    """Runs a case, and its control, until there are so many runs that count, or TRIES times as many were made."""
    measured = Measured(case)
    control = control_of(case)
    while len(measured.runs) < runs and measured.discarded + len(measured.runs) < runs * TRIES:
        pair = run(tools, case, seconds, busy), run(tools, control, seconds, busy) if control else None
        if all(one.is_quiet for one in pair if one):
            measured.runs.append(pair)
        else:
            measured.discarded += 1
    return measured


# ---- reporting ----


def number(value: float) -> float | None:
    """As JSON has it."""
    return round(value, 3) if math.isfinite(value) else None


def tenants(measured: Measured) -> Iterator[dict[str, object]]:
    """What each of them got."""
    for index, tenant in enumerate(measured.case.tenants):
        runs = [one for one, _ in measured.runs]
        got = statistics.median(one.percent(index) for one in runs)
        deviations = [one.tenants[index].timeline.deviation(one.begin_ns, one.end_ns) for one in runs]
        yield {
            "mode": tenant.mode,
            "share": number(tenant.share),
            "got": number(got),
            "error": number(got - tenant.share),
            "deviation_100ms": number(statistics.median(deviations)),
        }


def others(measured: Measured) -> dict[str, object]:
    """What other programs had of the CPUs, beside busy loops."""
    found = [one.others_percent for one, _ in measured.runs if one.others_percent is not None]
    return {"others": number(max(found))} if found else {}


def line(measured: Measured, seconds: float) -> dict[str, object]:
    """A case's JSON object."""
    told: dict[str, object] = {
        "case": measured.case.name,
        "seconds": seconds,
        "runs": len(measured.runs),
        "discarded": measured.discarded,
    }
    if measured.runs:
        told |= {
            "tenants": list(tenants(measured)),
            "idle": number(statistics.median(one.idle_percent for one, _ in measured.runs)),
            "wake_p99_us": number(max(one.wake_p99_us for one, _ in measured.runs)),
        }
        told |= others(measured)
    figures = [
        {"name": one.name, "value": number(one.value), "bound": number(one.bound), "met": one.is_met}
        for one in measured.figures()
    ]
    return told | {"figures": figures, "met": measured.is_met}


def summary(measured: Measured) -> str:
    """A case's line for people."""
    word = "PASS" if measured.is_met else "FAIL" if measured.runs else "NOISE"
    figures = ", ".join(
        f"{one.name} {one.value:.2f} ({'≥' if one.at_least else '≤'} {one.bound:g})"
        for one in measured.figures()
    )
    noise = f", {measured.discarded} discarded" if measured.discarded else ""
    return f"{word:5} {measured.case.name:44} {figures}{noise}"


def report(measured: Measured, seconds: float) -> bool:
    """Prints a case; returns whether it is met."""
    print(json.dumps(line(measured, seconds)), flush=True)
    print(summary(measured), file=sys.stderr, flush=True)
    return measured.is_met


# ---- what can be asked for ----


def is_wanted(case: Case) -> bool:
    """Whether CASES names it, or nothing."""
    return any(fnmatch.fnmatch(case.name, one) for one in os.environ.get("CASES", "").split() or ["*"])


def table(tools: Programs, *, bare: bool = False, busy: int = 0) -> bool:
    """The cases; beside so many busy loops a core those for that."""
    seconds, runs = float(os.environ.get("SECONDS", "8")), int(os.environ.get("RUNS", "3"))
    cases = [case for case in (busy_cases(busy) if busy else all_cases()) if is_wanted(case)]
    cases = [case.bare() for case in cases] if bare else cases
    met = [report(measure(tools, case, seconds, runs, busy), seconds) for case in cases]
    print(f"{sum(met)} of {len(met)} cases met", file=sys.stderr)
    return bool(met) and all(met)


def soak(tools: Programs) -> bool:
    """Random mixes, each against the same without the interceptor."""
    mixes, seed = int(os.environ.get("MIXES", "10")), int(os.environ.get("SEED", "1"))
    seconds = float(os.environ.get("SECONDS", "8"))
    met, worst, worst_control = [], 0.0, 0.0
    cases = [case for case in (mix(seed, count) for count in range(mixes)) if is_wanted(case)]
    for case in cases:
        measured = measure(tools, case, seconds, 1)
        met.append(report(measured, seconds))
        for one, control in measured.runs:
            assert control is not None
            worst = max(worst, *mix_errors(measured.case, one))
            worst_control = max(worst_control, *mix_errors(measured.case, control))
    print(
        json.dumps(
            {
                "soak": len(cases),
                "seed": seed,
                "largest_error": number(worst),
                "largest_error_without": number(worst_control),
                "met": bool(met) and all(met),
            }
        ),
        flush=True,
    )
    return bool(met) and all(met)


def main() -> None:
    """Measures the table, or what the argument says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["table", "bare", "soak"], default="table")
    parser.add_argument("--busy", type=int, default=0, metavar="LOOPS")
    options = parser.parse_args()
    if options.busy < 0 or (options.busy and options.what == "soak"):
        parser.error("--busy takes a number of loops a core, and goes with the table, or bare")
    with programs() as tools:
        bare = options.what == "bare"
        done = soak(tools) if options.what == "soak" else table(tools, bare=bare, busy=options.busy)
    sys.exit(not done)


if __name__ == "__main__":
    main()
