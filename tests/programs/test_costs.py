"""Rows of `make -C bench programs` that hold: a slice, and leases, cost such programs no more than is said there."""

import pytest

from bench.timeshare.workload_run import Tools, run
from bench.timeshare.workload_verdict import figures
from bench.timeshare.workloads import Mode, all_workloads
from tests.native.attempts import attempts

pytestmark = pytest.mark.timing

IN_A_SLICE = ("shapes/ring", "shapes/managed-pool")
IN_EVERY_MODE = (
    "streams/long-beside-short",
    "streams/4-streams",
    "shapes/serving-threads",
    "shapes/decode",
    "shapes/decode-graphs",
    "shapes/fill-the-cache",
    "shapes/serving-processes",
    "shapes/autotuner",
    "shapes/profiled",
)


def hold(tools: Tools, name: str, *modes: Mode) -> None:
    """All figures of a row hold in one measurement, of several: a busy machine only makes programs slower."""
    (workload,) = (one for one in all_workloads() if one.name == name)

    def missed() -> int:
        found = figures(workload, {mode: [run(tools, workload, mode)] for mode in (Mode.BARE, *modes)})
        print(", ".join(f"{figure.name} {figure.value:.3f}" for figure in found))
        assert found
        return sum(not figure.is_met for figure in found)

    assert attempts(missed, 0, 1)[-1] == 0


@pytest.mark.parametrize("name", IN_A_SLICE)
def test_a_slice_costs_no_more_than_its_bound(tools: Tools, name: str):
    """Of rows of which a lease costs more."""
    hold(tools, name, Mode.SLICE)


@pytest.mark.parametrize("name", IN_EVERY_MODE)
def test_a_slice_and_a_lease_cost_no_more_than_their_bound(tools: Tools, name: str):
    """Of the other rows that hold."""
    hold(tools, name, Mode.SLICE, Mode.LEASE)


def test_ranks_beside_rivals_make_as_many_steps_as_with_the_drivers_time_slices(tools: Tools):
    """Two pods of a group have their cards at the same time; each for itself they make a tenth of that."""
    hold(tools, "ranks/beside-rivals", Mode.LEASE)
