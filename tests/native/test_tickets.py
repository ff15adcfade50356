"""Tickets: launches of a capped tenant that ask nobody. What they cost, and that nothing goes uncounted."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, update_control
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.shells import LIBSHIM, program
from tests.native.sims import busy_ns, wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, SPIN_PTX, gets, start, working

ROOT = Path(__file__).resolve().parents[2]
SECOND_NS = 1_000_000_000
PAUSED = 0.6
"""A program that is kept from running between two events is charged for the pause; this much of its work, in one of a
few attempts at the most."""


PRELUDE = """
import ctypes, sys, time
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]

def kernel_in(context):
    check(cuda.cuCtxSetCurrent(context))
    module = check(cuda.cuModuleLoadData(open(sys.argv[1], "rb").read() + b"\\0"))
    return check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))

def spin(kernel, stream, microseconds=100):
    arguments = ((microseconds * 1000,), (ctypes.c_uint64,))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

cuda.cuInit(0)
contexts = [check(cuda.cuDevicePrimaryCtxRetain(device)) for device in range(2)]
kernels = [kernel_in(context) for context in contexts]
for context, kernel in zip(contexts, kernels):  # from now on their cost is known
    check(cuda.cuCtxSetCurrent(context))
    for _ in range(5):
        spin(kernel, 0)
        check(cuda.cuCtxSynchronize())
"""

SWITCHES = (
    PRELUDE
    + """
for _ in range(200):
    check(cuda.cuCtxSetCurrent(contexts[0]))
    spin(kernels[0], 0)
    check(cuda.cuCtxPushCurrent(contexts[1]))
    for _ in range(4):
        spin(kernels[1], 0)
    check(cuda.cuCtxSynchronize())
    check(cuda.cuCtxPopCurrent())
    check(cuda.cuCtxSynchronize())
"""
)

CAPTURES = (
    PRELUDE
    + """
check(cuda.cuCtxSetCurrent(contexts[0]))
streams = [check(cuda.cuStreamCreate(1)) for _ in range(2)]
fork, join = (check(cuda.cuEventCreate(2)) for _ in range(2))
relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

def begin(stream):
    if sys.argv[2] != "begins in a graph":
        return check(cuda.cuStreamBeginCapture(stream, relaxed))
    graph = check(cuda.cuGraphCreate(0))
    return check(cuda.cuStreamBeginCaptureToGraph(stream, graph, None, None, 0, relaxed))

for round in range(200):
    origin, other = reversed(streams) if sys.argv[2] == "joins" else streams
    if sys.argv[2] == "joins":
        begin(origin)
    spin(kernels[0], streams[0])
    if sys.argv[2] != "joins":
        begin(origin)
    check(cuda.cuEventRecord(fork, origin))
    check(cuda.cuStreamWaitEvent(other, fork, 0))
    for _ in range(4):
        spin(kernels[0], streams[0])
    time.sleep(0.002)  # a program that thinks: what is behind an end event now is charged by its past
    check(cuda.cuEventRecord(join, other))
    check(cuda.cuStreamWaitEvent(origin, join, 0))
    check(cuda.cuGraphDestroy(check(cuda.cuStreamEndCapture(origin))))
    check(cuda.cuCtxSynchronize())
"""
)


def is_charged_what_it_runs(machine: SimMachine, own: Tenant, cards: Sequence[int], *program: str) -> None:
    """On each card never less than it runs, and more in no more than some attempts."""

    def accounts() -> list[tuple[int, int]]:
        return [(own.usage().cards[card].busy_ns, busy_ns(machine, card)) for card in cards]

    def attempt() -> float:
        before = accounts()
        own.run(program[0], SPIN_PTX, *program[1:])
        ratios = [(c1 - c0) / (t1 - t0) for (c0, t0), (c1, t1) in zip(before, accounts(), strict=True)]
        assert min(ratios) > 0.9
        return max(ratios)

    assert attempts(attempt, 1, PAUSED)[-1] < 1 + PAUSED


@pytest.fixture
def both_cards(machine: SimMachine, tenant: Callable[..., Tenant]) -> Tenant:
    """A tenant with a share of each card that it does not use up."""
    return tenant(limits=[CardLimit(card.uuid, GIB, 99) for card in machine.cards])


@pytest.mark.timing
def test_a_ticket_is_good_in_the_context_it_was_given_in(machine: SimMachine, both_cards: Tenant):
    """Work for the default stream of another card's context is charged there, not where the ticket is from."""
    is_charged_what_it_runs(machine, both_cards, (0, 1), SWITCHES)


@pytest.mark.timing
@pytest.mark.parametrize("how", ["begins", "begins in a graph", "joins"])
def test_captured_work_is_paid_by_no_ticket(machine: SimMachine, both_cards: Tenant, how: str):
    """A stream with a ticket that begins a capture, or joins one, costs nothing until the graph runs."""
    is_charged_what_it_runs(machine, both_cards, (0,), CAPTURES, how)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_launch_costs_no_more_instructions_than_it_may():
    """Every flavour of launch, with a limit on and the gate open, adds at most 25 instructions; counted by valgrind."""
    assert shutil.which("valgrind"), "this test counts with valgrind, which is not installed"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "shim.py", "launch_instructions"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(figures) > 10
    assert [figure for figure in figures if not figure["met"]] == []


@pytest.mark.slow
def test_a_ticket_ends_when_it_must(tenant: Callable[..., Tenant]):
    """It pays until limits, context, capture, stream or process are others, and is then asked for anew."""
    own = tenant(GIB, 99)
    sources = sorted(path.name for path in (LIBSHIM / "src").glob("*.c"))
    command = [program("ticket_state", *sources, optimise="-O0"), SPIN_PTX, own.control]
    done = subprocess.run(
        command, env=own.env(LD_PRELOAD=""), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timing
@pytest.mark.parametrize("_round", range(3))
def test_no_interleaving_loses_work_or_disturbs_it(
    machine: SimMachine, tenant: Callable[..., Tenant], _round: int
):
    """Threads, streams, contexts that change and end, captures: every call succeeds and all time is counted."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    own = tenant(GIB, 60)
    command = [program("ticket_race"), SPIN_PTX, str(seed), "3", "1.5"]
    done = subprocess.run(command, env=own.env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    runs = machine.busy(machine.cards[0].uuid)
    busy = sum(run.end_ns - run.start_ns for run in runs)
    assert own.usage().cards[0].busy_ns > 0.9 * busy
    assert busy < 0.7 * (max(run.end_ns for run in runs) - min(run.start_ns for run in runs))


@pytest.mark.timing
def test_a_cap_that_is_lowered_holds_within_a_ticket(machine: SimMachine, tenant: Callable[..., Tenant]):
    """A program in the middle of short kernels that were all paid for is held to its new share at once."""

    def attempt() -> float:
        own = tenant(GIB, 90)
        process = start(own, "kernel", 10, together=200, seconds=3)
        with working(process):
            wait_for(lambda: own.usage().cards[0].busy_ns > SECOND_NS // 2, "work at the old share")
            update_control(own.control, Control("test/tenant", (CardLimit(machine.cards[0].uuid, GIB, 10),)))
            settled = time.monotonic_ns() + SECOND_NS // 4
        after = [run for run in machine.busy(machine.cards[0].uuid) if run.start_ns > settled]
        busy = sum(run.end_ns - run.start_ns for run in after)
        return 100 * busy / (after[-1].end_ns - settled)

    gets(10, attempt)
