"""What a tenant's processes may have in flight that nobody knows the length of. The judge is the card's own record."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.leases import Lessor, Work
from tests.native.sims import wait_for
from tests.native.spinners import Spinner, spinning
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB

MS = 1_000_000
WINDOW_US = 2000
LAUNCHES = WINDOW_US * 1000 // 31_250
"""That may be in flight under a lease, however short they are."""
SHORT_US, LONG_US = 10, 5000

Leased = Callable[[], Tenant]


@pytest.fixture
def leased(machine: SimMachine, tenant: Callable[..., Tenant]) -> Leased:
    """Makes tenants of the first card, which is leased."""
    limit = CardLimit(machine.cards[0].uuid, GIB, core_share_bp=3000, core_most_percent=30)
    return lambda: tenant(limits=[limit])


@contextmanager
def spinner_under_lease(own: Tenant) -> Iterator[tuple[Lessor, Spinner]]:
    """A process with an open lease."""
    with Lessor(own) as lessor, spinning(own) as spinner:
        lessor.open(window_us=WINDOW_US)
        yield lessor, spinner


def long_runs_ns(machine: SimMachine, since: int) -> int:
    """How long the first card has been busy with long kernels."""
    lengths = (
        run.end_ns - run.start_ns for run in machine.busy(machine.cards[0].uuid) if run.start_ns > since
    )
    return sum(length for length in lengths if length > MS)


def overrun_ms(
    machine: SimMachine, lessor: Lessor, spinner: Spinner, lines: Sequence[str], after_ns: int
) -> float:
    """For how long the card still runs the process when the gate is closed after so much of the long kernels."""
    told = time.monotonic_ns()
    spinner.tell(*lines)
    wait_for(lambda: long_runs_ns(machine, told) > after_ns, "long kernels")
    closed = time.monotonic_ns()
    lessor.close()
    wait_for(lambda: lessor.works() == [Work.WAITING], "the last of it")
    return (max(run.end_ns for run in machine.busy(machine.cards[0].uuid)) - closed) / MS


def kernels(count: int, microseconds: int, grid: int = 1, pause_us: int = 0) -> str:
    """What a spinner is told."""
    return f"{count} {microseconds} {grid} {pause_us}"


KNOWN = (kernels(300, SHORT_US), "sync") * 3


def longest_overrun(
    machine: SimMachine,
    leased: Leased,
    bound: float,
    known: Sequence[str],
    lines: Sequence[str],
    *,
    after_ns: int = MS,
) -> float:
    """Of a program that knows some kernels when it is told to launch others; the best of a few attempts, in ms."""

    def attempt() -> float:
        with spinner_under_lease(leased()) as (lessor, spinner):
            spinner.do(*known)
            return overrun_ms(machine, lessor, spinner, lines, after_ns)

    return min(attempts(attempt, 0, bound))


@pytest.mark.timing
@pytest.mark.parametrize("waits", [True, False])
def test_kernels_that_turn_long_run_on_no_longer_than_so_many(
    machine: SimMachine, leased: Leased, waits: bool
):
    """Known to be short, and thousands of the new length in one go: as many are in flight as the window has places."""
    bound = (LAUNCHES + 1) * LONG_US / 1000
    before = () if waits else (kernels(300, SHORT_US),)
    assert longest_overrun(machine, leased, bound, KNOWN, (*before, kernels(2000, LONG_US))) < bound


@pytest.mark.timing
def test_nothing_joins_work_that_takes_longer_than_it_should(machine: SimMachine, leased: Leased):
    """A program that pauses between its kernels has few in flight when the first of the new length is overdue."""
    bound = LAUNCHES / 4 * LONG_US / 1000
    lines = (kernels(2000, LONG_US, pause_us=50),)
    assert longest_overrun(machine, leased, bound, KNOWN, lines, after_ns=4 * LONG_US * 1000) < bound


@pytest.mark.timing
def test_a_kernel_is_known_by_the_width_of_its_grid(machine: SimMachine, leased: Leased):
    """Short with a narrow grid and long with a wide one: of the latter there is one in flight, and the next."""
    known = (*KNOWN, kernels(2, LONG_US, grid=64), "sync", *KNOWN)
    lines = (kernels(300, SHORT_US), kernels(2000, LONG_US, grid=64))
    bound = WINDOW_US / 1000 + 3 * LONG_US / 1000
    assert longest_overrun(machine, leased, bound, known, lines) < bound


@pytest.mark.timing
def test_kernels_that_were_never_seen_go_one_by_one(machine: SimMachine, leased: Leased):
    """However much is known of others of the same function."""
    bound = WINDOW_US / 1000 + 2 * LONG_US / 1000
    lines = tuple(kernels(1, LONG_US, grid=grid) for grid in range(2, 200))
    assert longest_overrun(machine, leased, bound, KNOWN, lines) < bound


def gap_after_short_ms(machine: SimMachine, since: int) -> float:
    """How long the card waits for the next kernel when a short one is over; the median."""
    runs = sorted(
        (run for run in machine.busy(machine.cards[0].uuid) if run.start_ns > since),
        key=lambda run: run.start_ns,
    )
    gaps = [after.start_ns - run.end_ns for run, after in pairwise(runs) if run.end_ns - run.start_ns < MS]
    return statistics.median(gaps) / MS


@pytest.mark.timing
def test_a_kernel_of_no_known_length_is_not_waited_for_as_for_the_longest(
    machine: SimMachine, leased: Leased
):
    """One that takes 0.1 or 5 ms goes alone each time, and the next one soon after it, however short it was."""
    unlike = (kernels(1, LONG_US), kernels(3, 100)) * 20

    def attempt() -> float:
        with spinner_under_lease(leased()) as (_, spinner):
            spinner.do(*unlike, "sync")
            told = time.monotonic_ns()
            spinner.do(*unlike, "sync")
            return gap_after_short_ms(machine, told)

    gaps = attempts(attempt, 0, 1)
    print(gaps)
    assert min(gaps) < 1


def idle_part(machine: SimMachine, since: int) -> float:
    """Of the time from the first kernel to the last one, the part in which the card ran nothing."""
    runs = [run for run in machine.busy(machine.cards[0].uuid) if run.start_ns > since]
    busy = sum(run.end_ns - run.start_ns for run in runs)
    return 1 - busy / (max(run.end_ns for run in runs) - min(run.start_ns for run in runs))


@pytest.mark.timing
def test_kernels_of_two_lengths_keep_the_card_busy(machine: SimMachine, leased: Leased):
    """Each could be the short one, and be over before anything more could be submitted: there is enough behind it."""
    odd = (kernels(1, 1000), kernels(1, 100)) * 7 + (kernels(1, 1000), "sync")

    def attempt() -> float:
        with spinner_under_lease(leased()) as (_, spinner):
            spinner.do(*odd * 5)
            told = time.monotonic_ns()
            spinner.do(*odd * 5)
            return idle_part(machine, told)

    idle = attempts(attempt, 0, 0.1)
    print(idle)
    assert min(idle) < 0.1


@pytest.mark.timing
def test_who_waits_for_a_lease_sees_that_a_short_kernel_is_over(machine: SimMachine, leased: Leased):
    """Where nothing more may begin beside what is in flight, the next comes when that is over, not when it might be."""
    in_turn = (kernels(1, 3000), kernels(1, 100)) * 20

    def attempt() -> float:
        with spinner_under_lease(leased()) as (lessor, spinner):
            spinner.do(*in_turn, "sync")
            lessor.open(window_us=4 * WINDOW_US, lease_ns=0)
            told = time.monotonic_ns()
            spinner.do(*in_turn, "sync")
            return gap_after_short_ms(machine, told)

    gaps = attempts(attempt, 0, 1)
    print(gaps)
    assert min(gaps) < 1


def test_work_that_nobody_waits_for_is_in_flight_until_it_is_over(machine: SimMachine, leased: Leased):
    """What came by a ticket, behind the last event, of a program that then does other things."""

    def early_ms(lessor: Lessor, spinner: Spinner) -> float:
        spinner.do(kernels(5, 100))
        lessor.close()
        while not lessor.is_drained():
            pass
        said = time.monotonic_ns()
        spinner.do("nap 10")
        lessor.open(window_us=WINDOW_US)
        return (max(run.end_ns for run in machine.busy(machine.cards[0].uuid)) - said) / MS

    with spinner_under_lease(leased()) as (lessor, spinner):
        spinner.do(*(kernels(1, 100), "sync") * 5)
        early = [early_ms(lessor, spinner) for _ in range(20)]
    print(early)
    assert max(early) < 0.03
