"""Rows of `make -C bench programs` that hold: a slice, and leases, cost such programs no more than is said there."""

import pytest

from bench.timeshare.workload_run import Tools, run
from bench.timeshare.workload_verdict import figures
from bench.timeshare.workloads import Mode, all_workloads
from tests.native.attempts import attempts

pytestmark = pytest.mark.timing

HOLD = (
    "shapes/decode-graphs",
    "shapes/fill-the-cache",
    "shapes/serving-processes",
    "shapes/autotuner",
)


@pytest.mark.parametrize("name", HOLD)
def test_a_slice_costs_no_more_than_its_bound(tools: Tools, name: str):
    """All of the row's figures in one measurement, of several: a busy machine only makes programs slower."""
    (workload,) = (one for one in all_workloads() if one.name == name)

    def missed() -> int:
        found = figures(workload, {mode: [run(tools, workload, mode)] for mode in Mode})
        print(", ".join(f"{figure.name} {figure.value:.3f}" for figure in found))
        return sum(not figure.is_met for figure in found)

    assert attempts(missed, 0, 1)[-1] == 0
