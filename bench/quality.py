"""How much of a real cluster's cards placement fills, by replaying Alibaba's GPU traces of 2023 (docs/placement.md).

Prints a line of JSON per case: the mean over paired seeds, the floor, and whether it is kept. Exits with 1 where
one is not, with 2 where a trace is missing. Two at a time at most, and at the lowest priority but one: nothing is
timed. With `--via-http` each seed has an extender and an API server of its own, and pods that leave are left out.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aliquot.cli.commands.replay_http import OverHttp
from aliquot.request.placement_policy import Policy, Preference, read_policy
from aliquot.scheduler_ext.replay.run import InProcess, quiet
from aliquot.scheduler_ext.replay.study import Spread, Study
from aliquot.scheduler_ext.replay.trace import read_nodes, read_pods

NODES = "openb_node_list_gpu_node.csv"


@dataclass(frozen=True)
class Case:
    """One figure: a trace, how it is replayed, and the least that must be allocated, in percent."""

    name: str
    trace: str
    floor: float
    sample: int = 100
    departing: bool = False

    @property
    def pods(self) -> str:
        """The file of its pods."""
        return f"openb_pod_list_{self.trace}.csv"


CASES = (
    Case("default", "default", 95.2),
    Case("gpuspec33", "gpuspec33", 93.5),
    Case("gpushare100", "gpushare100", 86.5),
    Case("multigpu20", "multigpu20", 95.6),
    Case("sampled-default", "default", 94.8, sample=10),
    Case("churn-default", "default", 94.0, departing=True),
    Case("churn-gpuspec33", "gpuspec33", 89.0, departing=True),
)


@dataclass(frozen=True)
class Way:
    """How all cases are replayed."""

    traces: Path
    policy: Policy
    seeds: int
    via_http: bool = False


def run(case: Case, way: Way, seed: int) -> float:
    """Percent allocated for one seed."""
    nodes, pods = read_nodes(way.traces / NODES), read_pods(way.traces / case.pods)
    study = Study(nodes, pods, Preference(way.policy, way.policy), 1.0, case.sample, case.departing)
    with ExitStack() as stack:
        over = (lambda known, said: stack.enter_context(OverHttp(known, said))) if way.via_http else InProcess
        return study.run(seed, quiet, over)["allocated" if case.departing else "100"]


def missing(cases: list[Case], traces: Path) -> list[str]:
    """The files that are not there."""
    wanted = {NODES, *(case.pods for case in cases)}
    return sorted(name for name in wanted if not (traces / name).is_file())


def measure(cases: list[Case], way: Way) -> Iterator[dict[str, object]]:
    """One figure after the other."""
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), initializer=os.nice, initargs=(15,)) as workers:
        runs = {
            case: [workers.submit(run, case, way, seed) for seed in range(1, way.seeds + 1)] for case in cases
        }
        for case, waiting in runs.items():
            found = Spread.of([one.result() for one in waiting])
            yield {
                "name": f"quality.{'http.' if way.via_http else ''}{case.name}",
                "value": round(found.mean, 2),
                "sd": round(found.sd, 2),
                "seeds": way.seeds,
                "policy": str(way.policy),
                "unit": "%",
                "better": "higher",
                "bound": case.floor,
                "met": found.mean >= case.floor,
            }


def main() -> int:
    """Print the figures; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(case.name for case in CASES))
    parser.add_argument("--traces", required=True, help="directory of the traces' CSV files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--policy", type=read_policy, default=Policy.FRAG_AWARE)
    parser.add_argument("--via-http", action="store_true", help="through a real extender; no pods leave")
    options = parser.parse_args()
    unknown = set(options.cases) - {case.name for case in CASES}
    if unknown or options.seeds < 1:
        parser.error(
            f"no such case: {', '.join(sorted(unknown))}" if unknown else "--seeds must be 1 or more"
        )
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    cases = [case for case in cases if not (options.via_http and case.departing)]
    traces = Path(options.traces)
    absent = missing(cases, traces) if options.traces else [NODES]
    if absent:
        sys.stderr.write(
            f"bench-quality: {options.traces or 'TRACES is empty'}: no {', '.join(absent)}. The traces are not part of "
            "this repository (docs/placement.md says where they are); set TRACES to a directory that has them.\n"
        )
        return 2
    met = True
    for figure in measure(cases, Way(traces, options.policy, options.seeds, options.via_http)):
        print(json.dumps(figure), flush=True)
        met = met and bool(figure["met"])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
