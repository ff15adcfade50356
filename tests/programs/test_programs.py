"""What programs of real shapes do is the same without a slice, in one, and under leases. How soon: `test_costs.py`."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.timeshare.processes import RunError
from bench.timeshare.workload_run import Tools, run
from bench.timeshare.workloads import Job, Mode, Question, Tenant, Workload, alone, beyond_the_card

MS = 1_000_000
BENCH = Path(__file__).resolve().parents[2] / "bench" / "programs.py"
IN_ONE_LINE = {
    "periodic": {"count": 100},
    "interrupted": {"pause_ms": 1},
    "interrupted by an event": {"pause_ms": 1, "by": "event"},
    "consumer": {"rounds": 2, "produce_us": 1000, "consume_us": 1000},
    "kv_cache": {"steps": 2},
    "decode": {"tokens": 2, "layers": 2},
    "autotune": {"candidates": 2},
    "profiled": {"kernels": 20},
}
"""Programs whose kernels come one after the other, and options that make them short."""


def program(name: str, **options: str | int) -> Workload:
    """One process, alone on its card."""
    return alone(name, name.split(maxsplit=1)[0], Question.TIME, 1.0, **options)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", IN_ONE_LINE)
def test_a_program_uses_the_card_for_as_long_as_its_kernels_run(tools: Tools, name: str, mode: Mode):
    """All of them run, each once, by the card's own record; nothing is refused, nor charged without a slice."""
    (done,) = run(tools, program(name, **IN_ONE_LINE[name]), mode)
    assert done.used_ns == done.told["launched_ns"] > 0
    assert done.refused == 0
    assert done.charged_ns == 0 or mode is not Mode.BARE


@pytest.mark.parametrize("mode", Mode)
def test_a_graph_runs_all_that_was_captured(tools: Tools, mode: Mode):
    """Two tokens are two launches of the same kernels."""
    (done,) = run(tools, program("decode", tokens=2, layers=2, graph=1), mode)
    assert done.used_ns == 2 * 2 * 150_000


def test_streams_of_a_program_without_a_slice_overlap(tools: Tools):
    """Which is what a slice must not take away: two kernels of a second take less than two."""
    (done,) = run(tools, program("streams", work="1x1000000,1x1000000"), Mode.BARE)
    assert 1000 * MS <= done.used_ns < 2000 * MS


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("training", {"steps": 2, "kernels": 12}),
        ("streams", {"work": "1xin,1xout,4x1000"}),
        ("waiting_kernel", {"count": 3}),
        ("ring", {"rounds": 4}),
        ("offload", {"layers": 4}),
        ("serving", {"instances": 2, "requests": 2}),
        ("managed_pool", {"queries": 2}),
    ],
)
def test_a_program_of_several_streams_ends(
    tools: Tools, name: str, options: dict[str, str | int], mode: Mode
):
    """However they wait for one another."""
    (done,) = run(tools, program(name, **options), mode)
    assert done.used_ns > 0
    assert done.refused == 0


@pytest.mark.parametrize("mode", Mode)
def test_ranks_of_two_pods_meet(tools: Tools, mode: Mode):
    """On a card each, in a tenant each."""
    jobs = [Job("ranks", {"rank": rank, "words": "{scratch}/words", "for_ms": 50}) for rank in range(2)]
    tenants = tuple(Tenant((job,), card=card) for card, job in enumerate(jobs))
    first, second = run(tools, Workload("ranks", tenants, cards=2), mode)
    assert first.told["launched_ns"] == second.told["launched_ns"] > 0


def test_a_cache_fills_the_slice_and_not_the_card(tools: Tools):
    """Nine tenths of 8 GiB, less 2 GiB of weights, where it would be nine tenths of 16."""
    (bare,), (own,) = (run(tools, program("kv_cache", steps=1), mode) for mode in (Mode.BARE, Mode.SLICE))
    assert own.told["cache_mib"] == pytest.approx(0.9 * 8192 - 2048, abs=64)
    assert bare.told["cache_mib"] == pytest.approx(0.9 * 16384 - 2048, abs=64)
    assert own.refused == 0


def test_a_program_that_is_refused_memory_says_so(tools: Tools):
    """It ends, and its run is not taken for one that was quick."""
    tenant = Tenant((Job("kv_cache"),), memory_mib=1024)
    with pytest.raises(RunError, match="ended with 1"):
        run(tools, Workload("too large", (tenant,)), Mode.SLICE)


@pytest.mark.parametrize("mode", Mode)
def test_a_managed_pool_may_be_larger_than_the_card(tools: Tools, mode: Mode):
    """In a slice that says so it runs to its end, as it does without."""
    (done,) = run(tools, beyond_the_card(), mode)
    assert done.used_ns > 0
    assert done.refused == 0


@pytest.mark.parametrize("mode", [Mode.SLICE, Mode.LEASE])
def test_a_managed_pool_is_refused_beyond_a_slice_by_default(tools: Tools, mode: Mode):
    """All of it is charged."""
    workload = beyond_the_card()
    (tenant,) = workload.tenants
    with pytest.raises(RunError, match="ended with 1"):
        run(tools, replace(workload, tenants=(replace(tenant, resident=False),)), mode)


def test_the_bench_tells_what_it_did_not_run(tmp_path: Path):
    """Without a driver there is no card: no figure, and no success."""
    command = [sys.executable, BENCH, "card"]
    environment = {**os.environ, "LD_LIBRARY_PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 2:
        pytest.skip("this machine has a card")
    assert "*** NOT RUN: no NVIDIA driver" in done.stderr
    assert not done.stdout
