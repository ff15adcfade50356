"""What several processes of a tenant are charged together. The judge is the simulated card's own record."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.plugin.sharing.unreported_time import UnreportedTime
from aliquot.plugin.sharing.watchdog import LOOK_EVERY_S
from aliquot.sandbox.gpus import SimMachine
from tests.native.leases import Lessor
from tests.native.sims import wait_for
from tests.native.spinners import spinning
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB

MS = 1_000_000
ANY_WINDOW_US = 1_000_000


def ran_ns(machine: SimMachine, pid: int, since: int) -> int:
    """For how long the first card has run a process."""
    runs = machine.busy(machine.cards[0].uuid)
    return sum(run.end_ns - run.start_ns for run in runs if run.pid == pid and run.start_ns > since)


@pytest.mark.timing
def test_what_is_charged_late_pays_for_nothing_that_came_after_it(
    machine: SimMachine, tenant: Callable[..., Tenant]
):
    """A process is stopped while its kernel ends, charges that under another's kernel, then has a short one."""
    own = tenant(limits=[CardLimit(machine.cards[0].uuid, GIB, core_share_bp=3000, core_most_percent=30)])
    with Lessor(own) as lessor, spinning(own) as late, spinning(own) as other:
        lessor.open(window_us=ANY_WINDOW_US)
        for spinner in (late, other):
            spinner.do("1 10000 1 0", "sync")
        wait_for(lessor.is_drained, "what is charged by now")
        begun, before = time.monotonic_ns(), own.usage().cards[0].busy_ns

        def charged_ns() -> int:
            return own.usage().cards[0].busy_ns - before

        late.do("1 80000 2 0")
        wait_for(lambda: ran_ns(machine, late.pid, begun) > 40 * MS, "half of it")
        os.kill(late.pid, signal.SIGSTOP)
        stopped = time.monotonic_ns()
        wait_for(lambda: time.monotonic_ns() > stopped + 60 * MS, "its end, and a pause")
        other.do("1 200000 3 0")
        wait_for(lambda: ran_ns(machine, other.pid, begun) > 20 * MS, "the other's kernel")
        os.kill(late.pid, signal.SIGCONT)
        wait_for(lambda: charged_ns() > 70 * MS, "the late charge")
        wait_for(lambda: ran_ns(machine, other.pid, begun) > 80 * MS, "the other's monitor")
        late.do("1 10000 1 0", "sync")
        other.do("sync")
        wait_for(lessor.is_drained, "the last charges")
        truth = machine.record(machine.cards[0].uuid, begun, time.monotonic_ns()).busy_ns()
        assert charged_ns() == pytest.approx(truth, rel=0.1)


def test_work_behind_a_launch_that_was_refused_is_charged(machine: SimMachine, tenant: Callable[..., Tenant]):
    """Though the refused one, of which as much was expected, costs nothing."""
    own = tenant(limits=[CardLimit(machine.cards[0].uuid, GIB, 50)])
    with spinning(own) as spinner:
        spinner.do("4 400 1 0", "sync", "nap 50")
        begun, before = time.monotonic_ns(), own.usage().cards[0].busy_ns
        for _ in range(30):
            spinner.do("refused 1 400", "sync", "nap 5")
        truth = machine.record(machine.cards[0].uuid, begun, time.monotonic_ns()).busy_ns()
        wait_for(lambda: own.usage().cards[0].busy_ns - before >= 0.9 * truth, "what they cost")


def test_a_long_kernel_is_not_taken_for_silence(machine: SimMachine, tenant: Callable[..., Tenant]):
    """What the agent sees of it while it runs, by the card's record, is believed to be said when it ends."""
    own = tenant(limits=[CardLimit(machine.cards[0].uuid, GIB, core_share_bp=3000, core_most_percent=30)])
    arrears, looked, said = UnreportedTime(), time.monotonic_ns(), 0
    with Lessor(own) as lessor, spinning(own) as spinner:
        lessor.open()
        spinner.do("1 2000000 1 0")
        while said < 1500 * MS:
            time.sleep(LOOK_EVERY_S)  # as the agent does
            now, usage = time.monotonic_ns(), own.usage()
            seen = machine.record(machine.cards[0].uuid, looked, now).busy_ns() / 1e9
            busy = usage.cards[0].busy_ns
            arrears.enter(
                (now - looked) / 1e9, {"0": seen}, {"0": (busy - said) / 1e9}, set(map(str, usage.in_flight))
            )
            assert not arrears.doubtful
            looked, said = now, busy
