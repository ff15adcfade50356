"""Leases as a tenant's process sees them. The arbiter is the test; the judge is the simulated card's own record."""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from aliquot.libshim._pages import lib
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.leases import (
    MS,
    SECOND_NS,
    SHARE,
    Begin,
    Lessor,
    Work,
    busy_between,
    goes_on,
    hear,
    latest,
    say,
    told_to_go,
)
from tests.native.sims import wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX, TOLERANCE, share, start, working
from tests.native.test_tickets import PRELUDE

pytestmark = pytest.mark.timing

SILENT_MS = 60


# ---- the gate ----


@pytest.mark.parametrize("microseconds", [200, 5000])
def test_a_closed_gate_stops_a_program_within_the_window(
    machine: SimMachine, begin: Begin, microseconds: int
):
    """No more runs than was in flight; then the process says that it waits, and nothing else, and has rung."""
    lessor, process = begin(microseconds, 10_000, window_us=2000)
    bound = max(2000, microseconds) / 1000

    def attempt() -> float:
        goes_on(machine)
        rung, closed = lessor.rung(), time.monotonic_ns()
        lessor.close()
        wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
        wait_for(lambda: lessor.rung() > rung, "the bell")
        overrun = latest(machine) - closed
        assert busy_between(machine, closed + overrun, time.monotonic_ns(), {process.pid}) == 0
        lessor.open(window_us=2000)
        return overrun / MS

    assert min(attempts(attempt, 0, bound + 1)) < 2 * bound + 1


def test_more_than_the_window_is_never_in_flight(machine: SimMachine, begin: Begin):
    """A wide window lets the program queue more than a narrow one does."""

    def overrun(window_us: int) -> float:
        lessor, process = begin(200, 10_000, window_us=window_us)
        longest = 0
        for _ in range(5):
            goes_on(machine)
            closed = time.monotonic_ns()
            lessor.close()
            wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
            longest = max(longest, latest(machine) - closed)
            lessor.open(window_us=window_us)
        process.kill()
        process.wait()
        return longest / MS

    assert min(attempts(lambda: overrun(8000), 8, 2)) > min(attempts(lambda: overrun(1000), 1, 1)) + 3


def test_work_does_not_outlast_the_lease(machine: SimMachine, begin: Begin):
    """Though there is room for 8 ms in flight, at the lease's end no more than 2 ms are."""

    def attempt() -> float:
        end = time.monotonic_ns() + 30 * MS
        lessor.open(window_us=8000, lease_ns=30 * MS)
        time.sleep(max(0, end - time.monotonic_ns()) / 1e9)  # the arbiter's timer
        closed = time.monotonic_ns()
        lessor.close()
        wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
        return (latest(machine) - closed) / MS

    lessor, _ = begin(500, 10_000, window_us=8000)
    goes_on(machine)
    lessor.close()
    wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
    assert statistics.median(attempt() for _ in range(9)) < 4


def test_a_lease_that_is_over_lets_one_kernel_after_the_other_in(machine: SimMachine, begin: Begin):
    """While the arbiter has not closed the gate the card is used, but there is never more than one in flight."""
    lessor, process = begin(5000, 10_000, window_us=8000, lease_ns=0)

    def attempt() -> float:
        goes_on(machine)
        closed = time.monotonic_ns()
        lessor.close()
        wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
        overrun = latest(machine) - closed
        lessor.open(window_us=8000, lease_ns=0)
        return overrun / MS

    assert min(attempts(attempt, 0, 5.5)) < 7.5
    now = time.monotonic_ns()
    wait_for(lambda: latest(machine) > now + SECOND_NS // 2, "half a second of it")
    assert busy_between(machine, now, now + SECOND_NS // 2, {process.pid}) > SECOND_NS // 10


def test_the_expected_end_of_what_is_in_flight_is_told(machine: SimMachine, begin: Begin):
    """A kernel of 50 ms is expected to be over when the card's record says that it was."""
    lessor, _ = begin(50_000, 1)

    def attempt() -> float:
        goes_on(machine)
        wait_for(lambda: any(word.work == Work.IN_FLIGHT for word in lessor.words()), "a word")
        (word,) = lessor.words()
        seen = time.monotonic_ns()
        wait_for(lambda: latest(machine) > seen + 60 * MS, "its end")
        ends = [run.end_ns for run in machine.busy(machine.cards[0].uuid) if run.end_ns > seen]
        return abs(word.after_ns(ends[0])) / MS

    goes_on(machine)
    wait_for(lambda: latest(machine) > time.monotonic_ns() - 10 * MS, "kernels of known length")
    assert min(attempts(attempt, 0, 5)) < 20


# ---- no arbiter, or none that sees the process ----


def is_held_to_its_share(attempt: Callable[[], float]) -> None:
    """Never more; and it is not stopped, though a machine without CPU for it may give it less."""
    shares = attempts(attempt, SHARE, TOLERANCE)
    assert max(shares) < SHARE + TOLERANCE
    assert max(shares) > SHARE / 3


def share_of(machine: SimMachine, own: Tenant) -> float:
    """Percent of the card that a program gets which always has work."""
    process = start(own, "kernel", 1000)
    with working(process):
        pass
    return share(machine, process)


def test_a_silent_arbiter_leaves_the_share_as_a_cap(machine: SimMachine, leased: Callable[..., Tenant]):
    """Though it has left the gate open, and the lease without an end."""

    def attempt() -> float:
        own = leased()
        with Lessor(own) as lessor:
            lessor.open()
        return share_of(machine, own)

    is_held_to_its_share(attempt)


def test_an_arbiter_that_falls_silent_stops_nobody(machine: SimMachine, leased: Callable[..., Tenant]):
    """A process that waits at a gate which nobody will open goes on at its share, within a moment."""

    def attempt() -> float:
        own = leased()
        with Lessor(own) as lessor:
            lessor.close()
            process = start(own, "kernel", 1000)
            told_to_go(process)
            wait_for(lambda: lessor.works() == [Work.WAITING], "a process that waits")
            lessor.fall_silent()
            silent = time.monotonic_ns()
            goes_on(machine)
            first = min(run.start_ns for run in machine.busy(machine.cards[0].uuid) if run.pid == process.pid)
            assert first - silent < 10 * SILENT_MS * MS
            process.communicate()
        return share(machine, process)

    is_held_to_its_share(attempt)


@pytest.mark.parametrize("beats", [True, False])
def test_a_gate_of_which_nobody_ever_spoke_leaves_the_share_as_a_cap(
    machine: SimMachine, leased: Callable[..., Tenant], beats: bool
):
    """An arbiter that has not come to this tenant yet, or is not there, has no lease to end."""

    def attempt() -> float:
        own = leased()
        with Lessor(own) as lessor:
            if not beats:
                lessor.fall_silent()
            return share_of(machine, own)

    is_held_to_its_share(attempt)


def test_a_usage_file_of_an_older_agent_keeps_to_the_cap(machine: SimMachine, leased: Callable[..., Tenant]):
    """Nobody could see that its process is in flight, so no closed gate holds it, nor does an open one free it."""

    def attempt() -> float:
        own = leased()
        own.shorten_usage(lib.AQ_USAGE_SIZE)
        with Lessor(own) as lessor:
            lessor.open()
            return share_of(machine, own)

    is_held_to_its_share(attempt)


def test_time_under_a_lease_is_counted_and_owed_by_nobody(machine: SimMachine, begin: Begin):
    """All of the card is used, the page says so, and when the arbiter falls silent there is no debt to pay first."""
    lessor, process = begin(20_000, 16, window_us=8000)
    goes_on(machine)
    now = time.monotonic_ns()
    wait_for(lambda: latest(machine) > now + SECOND_NS, "a second of it")
    truth = busy_between(machine, 0, time.monotonic_ns(), {process.pid})
    assert busy_between(machine, now, now + SECOND_NS, {process.pid}) > (SHARE + 10) / 100 * SECOND_NS
    assert lessor.tenant.usage().cards[0].busy_ns > 0.95 * truth
    lessor.fall_silent()
    silent = time.monotonic_ns()
    wait_for(lambda: latest(machine) > silent + SECOND_NS, "a second at the share")
    assert (
        busy_between(machine, silent + SECOND_NS // 10, silent + SECOND_NS, {process.pid}) > 0.1 * SECOND_NS
    )


LONG = (
    PRELUDE
    + """
check(cuda.cuCtxSetCurrent(contexts[0]))
spin(kernels[0], 0, 100_000)  # from now on known to be long
check(cuda.cuCtxSynchronize())
print("ready", flush=True)
for line in sys.stdin:
    for milliseconds in line.split():
        spin(kernels[0], 0, int(milliseconds) * 1000)
    check(cuda.cuCtxSynchronize())
    print("over", flush=True)
"""
)


def test_what_others_charged_of_earlier_time_pays_for_nothing(
    machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack
):
    """Kernels that begin while another process's long one ends are paid for as far as they overlap with it.

    Under the second of them that process has a short one more, which leaves gaps.
    """
    lessor = ends.enter_context(Lessor(leased()))
    lessor.open(window_us=1_000_000)
    first, second = (lessor.tenant.start(LONG, SPIN_PTX) for _ in range(2))
    for process in (first, second):
        ends.callback(process.communicate)
        ends.callback(process.kill)
        hear(process, "ready")

    def charged_to_truth() -> float:
        before, begun = lessor.tenant.usage().cards[0].busy_ns, time.monotonic_ns()
        say(first, "300")
        wait_for(
            lambda: busy_between(machine, begun, time.monotonic_ns(), {first.pid}) > 200 * MS, "most of it"
        )
        say(second, "100 300")
        hear(first, "over")
        wait_for(
            lambda: busy_between(machine, begun, time.monotonic_ns(), {second.pid}) > 300 * MS, "most of them"
        )
        say(first, "20")
        hear(first, "over")
        hear(second, "over")
        wait_for(lessor.is_drained, "their charges")
        truth = machine.record(machine.cards[0].uuid, begun, time.monotonic_ns()).busy_ns()
        return (lessor.tenant.usage().cards[0].busy_ns - before) / truth

    assert attempts(charged_to_truth, 1, 0.1)[-1] == pytest.approx(1, abs=0.1)
