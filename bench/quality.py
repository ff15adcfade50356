"""How much of a real cluster's cards placement fills, by replaying Alibaba's GPU traces of 2023 (docs/placement.md).

Prints a line of JSON per case: the mean over paired seeds, the floor, and whether it is kept. Exits with 1 where
one is not, with 2 where a trace is missing. Two processes at most, and at the lowest priority but one: nothing is
timed.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aliquot.policy import Policy, Preference, read_policy
from scheduler_ext.replay.study import Spread, Study
from scheduler_ext.replay.trace import read_nodes, read_pods

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


def run(case: Case, traces: Path, policy: Policy, seed: int) -> float:
    """Percent allocated for one seed."""
    nodes, pods = read_nodes(traces / NODES), read_pods(traces / case.pods)
    study = Study(nodes, pods, Preference(policy, policy), 1.0, case.sample, case.departing)
    return study.run(seed)["allocated" if case.departing else "100"]


def missing(cases: list[Case], traces: Path) -> list[str]:
    """The files that are not there."""
    wanted = {NODES, *(case.pods for case in cases)}
    return sorted(name for name in wanted if not (traces / name).is_file())


def measure(cases: list[Case], traces: Path, policy: Policy, seeds: int) -> Iterator[dict[str, object]]:
    """One figure after the other."""
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), initializer=os.nice, initargs=(15,)) as workers:
        runs = {
            case: [workers.submit(run, case, traces, policy, seed) for seed in range(1, seeds + 1)]
            for case in cases
        }
        for case, waiting in runs.items():
            found = Spread.of([one.result() for one in waiting])
            yield {
                "name": f"quality.{case.name}",
                "value": round(found.mean, 2),
                "sd": round(found.sd, 2),
                "seeds": seeds,
                "policy": str(policy),
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
    options = parser.parse_args()
    unknown = set(options.cases) - {case.name for case in CASES}
    if unknown or options.seeds < 1:
        parser.error(
            f"no such case: {', '.join(sorted(unknown))}" if unknown else "--seeds must be 1 or more"
        )
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    traces = Path(options.traces)
    absent = missing(cases, traces) if options.traces else [NODES]
    if absent:
        sys.stderr.write(
            f"bench-quality: {options.traces or 'TRACES is empty'}: no {', '.join(absent)}. The traces are not part of "
            "this repository (docs/placement.md says where they are); set TRACES to a directory that has them.\n"
        )
        return 2
    met = True
    for figure in measure(cases, traces, options.policy, options.seeds):
        print(json.dumps(figure), flush=True)
        met = met and bool(figure["met"])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
