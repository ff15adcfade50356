"""An arbiter that is killed, or stopped for a while, in the middle of work. The judge is the card's own record."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from aliquot.libshim._pages import ffi
from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.sims import wait_for
from tests.native.spinners import spinning
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, TOLERANCE

MS = 1_000_000
SHARE = 30
KERNEL_US = 1000
WATCHED_NS = 1000 * MS
SETTLED_NS = 160 * MS
"""The silence of 60 ms, a window of work, and what an idle tenant is credited by its own clock."""

AGENT = """
import sys
from pathlib import Path
from aliquot.arbiter import Arbiter, Terms
arbiter = Arbiter()
arbiter.start()
card, share, *pages = sys.argv[1:]
for index in range(0, len(pages), 2):
    terms = Terms(card, share_bp=int(share) * 100, most_percent=100, priority=0)
    arbiter.enter(f"tenant{index}", Path(pages[index]), Path(pages[index + 1]), [terms])
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def agent(machine: SimMachine, tenants: list[Tenant]) -> Iterator[subprocess.Popen[str]]:
    """A process that leases the first card to tenants."""
    pages = [page for tenant in tenants for page in (tenant.control, tenant.usage_page)]
    command = [sys.executable, "-c", AGENT, machine.cards[0].uuid, str(SHARE), *pages]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def gate_of(tenant: Tenant) -> int:
    """The word of its first card's gate."""
    offset = ffi.offsetof("aq_control_page", "cards") + ffi.offsetof("aq_control_card", "gate")
    with tenant.control.open("rb") as page:
        return int.from_bytes(os.pread(page.fileno(), 4, offset), "little")


def percents(machine: SimMachine, begin: int, pids: list[int]) -> list[float]:
    """Of the time from then on that is watched, what each process had."""
    wait_for(lambda: time.monotonic_ns() > begin + WATCHED_NS, "the time to pass")
    record = machine.record(machine.cards[0].uuid, begin, begin + WATCHED_NS)
    return [100 * record.busy_ns(pid) / WATCHED_NS for pid in pids]


House = tuple[list[Tenant], subprocess.Popen[str], list[int]]


@pytest.fixture
def house(machine: SimMachine, tenant: Callable[..., Tenant]) -> Iterator[House]:
    """Two tenants that may have all of the card when the other leaves it, always with work; and their agent."""
    limit = CardLimit(machine.cards[0].uuid, GIB, core_share_bp=SHARE * 100, core_most_percent=100)
    tenants = [tenant(limits=[limit]) for _ in range(2)]
    with agent(machine, tenants) as process, ExitStack() as ends:
        spinners = [ends.enter_context(spinning(own)) for own in tenants]
        for spinner in spinners:
            spinner.tell(f"1000000 {KERNEL_US} 1 0")
        wait_for(lambda: len({run.pid for run in machine.busy(machine.cards[0].uuid)}) == 2, "both at work")
        yield tenants, process, [spinner.pid for spinner in spinners]


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_tenants_of_a_silent_arbiter_are_held_to_their_shares(
    machine: SimMachine, house: House, blow: signal.Signals
):
    """Whichever gate it left open, and with whatever lease: each has its share and no more, from a moment on."""
    tenants, process, pids = house
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    time.sleep(random.Random(seed).uniform(0.2, 0.4))
    process.send_signal(blow)
    struck = time.monotonic_ns()
    print("gates", [gate_of(own) for own in tenants])
    got = percents(machine, struck + SETTLED_NS, pids)
    print(got)
    assert max(got) < SHARE + TOLERANCE
    assert min(got) > SHARE / 3


def test_an_arbiter_that_comes_back_leases_again(machine: SimMachine, house: House):
    """Under new numbers for all, and what the two leave one another is lent again."""
    tenants, process, pids = house

    def attempt() -> float:
        gates = [gate_of(own) for own in tenants]
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic_ns()
        wait_for(lambda: time.monotonic_ns() > stopped + SETTLED_NS, "silence")
        process.send_signal(signal.SIGCONT)
        wait_for(
            lambda: all(gate_of(own) != gate for own, gate in zip(tenants, gates, strict=True)), "new numbers"
        )
        return sum(percents(machine, time.monotonic_ns(), pids))

    assert max(attempts(attempt, 100, 25)) > 2 * SHARE + TOLERANCE
