"""Leases as a tenant's processes see them. The arbiter is the test; the judge is the simulated card's own record."""

import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack

import pytest

from libshim._pages import lib
from libshim.pages import CardLimit
from sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.leases import Lessor, Work
from tests.native.shells import Shell
from tests.native.sims import wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, SPIN_PTX, TOLERANCE, share, start, working
from tests.native.test_tickets import PRELUDE

MS = 1_000_000
SECOND_NS = 1_000_000_000
SILENT_MS = 60
SHARE = 30
"""Percent of the card: what a tenant gets while its arbiter is silent."""


@pytest.fixture
def leased(machine: SimMachine, tenant: Callable[..., Tenant]) -> Callable[..., Tenant]:
    """Makes tenants of cards that are leased: `leased(cards=1)`."""

    def make(cards: int = 1) -> Tenant:
        return tenant(
            limits=[
                CardLimit(card.uuid, GIB, core_share_bp=SHARE * 100, core_most_percent=SHARE)
                for card in machine.cards[:cards]
            ]
        )

    return make


Begin = Callable[..., tuple[Lessor, subprocess.Popen[str]]]


def say(process: subprocess.Popen[str], line: str) -> None:
    """Tells a process something."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str], line: str) -> None:
    """Waits until a process says something."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def told_to_go(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The process, once it was told."""
    say(process, "go")
    return process


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is to be ended with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def begin(leased: Callable[..., Tenant], ends: ExitStack) -> Begin:
    """Starts a process under an open lease: `begin(microseconds, together, window_us=..., lease_ns=...)`."""

    def make(microseconds: int, together: int, **terms: int) -> tuple[Lessor, subprocess.Popen[str]]:
        lessor = ends.enter_context(Lessor(leased()))
        lessor.open(**terms)
        process = start(lessor.tenant, "kernel", microseconds, together, seconds=60)
        ends.callback(process.communicate)
        ends.callback(process.kill)
        return lessor, told_to_go(process)

    return make


def latest(machine: SimMachine) -> int:
    """When the first card last ran anything."""
    return max((run.end_ns for run in machine.busy(machine.cards[0].uuid)), default=0)


def goes_on(machine: SimMachine) -> None:
    """The card runs something from now on."""
    now = time.monotonic_ns()
    wait_for(lambda: latest(machine) > now, "work under the lease")


def busy_between(machine: SimMachine, begin: int, end: int, pids: Container[int]) -> int:
    """For how many nanoseconds the first card ran the processes."""
    runs = [run for run in machine.busy(machine.cards[0].uuid) if run.pid in pids]
    return sum(max(0, min(run.end_ns, end) - max(run.start_ns, begin)) for run in runs)


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
    before, begun = lessor.tenant.usage().cards[0].busy_ns, time.monotonic_ns()
    say(first, "300")
    wait_for(lambda: busy_between(machine, begun, time.monotonic_ns(), {first.pid}) > 200 * MS, "most of it")
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
    assert lessor.tenant.usage().cards[0].busy_ns - before == pytest.approx(truth, rel=0.1)


# ---- processes, threads, cards ----


def test_every_process_of_a_tenant_has_its_own_word(
    machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack
):
    """Two wait at a closed gate, one is killed there, one takes its slot and has nothing to do with the card."""
    lessor = ends.enter_context(Lessor(leased()))
    lessor.close()
    first, second = (told_to_go(start(lessor.tenant, "kernel", 1000, seconds=60)) for _ in range(2))
    for process in (first, second):
        ends.callback(process.communicate)
        ends.callback(process.kill)
    wait_for(lambda: lessor.works() == [Work.WAITING] * 2, "both")
    first.kill()
    first.wait()
    assert lessor.works() == [Work.WAITING] * 2  # the dead leave theirs behind
    with Shell(lessor.tenant).begin() as shell:
        shell.ok("cuMemAlloc_v2", "&", 4096)
        assert lessor.works() == [Work.WAITING]
        lessor.open()
        goes_on(machine)


PARTNERS = (
    PRELUDE
    + """
second = int(sys.argv[3]) if len(sys.argv) > 3 else 0
check(cuda.cuCtxSetCurrent(contexts[0]))
print("ready", flush=True)
sys.stdin.readline()
spin(kernels[0], 0, int(sys.argv[2]))
print("first", flush=True)
check(cuda.cuCtxSetCurrent(contexts[second]))
stream = check(cuda.cuStreamCreate(1))
sys.stdin.readline()
spin(kernels[second], stream, int(sys.argv[2]))
print("second", flush=True)
"""
)


def test_the_arbiter_is_told_when_the_last_work_is_over(leased: Callable[..., Tenant], ends: ExitStack):
    """By a program that does nothing any more; and rung for when the gate is closed."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(PARTNERS, SPIN_PTX, 500_000)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    told_to_go(process)
    assert process.stdout.readline() == "first\n"
    assert lessor.works() == [Work.IN_FLIGHT]
    lessor.close()
    rung = lessor.rung()
    wait_for(lambda: lessor.works() == [], "the end of the kernel")
    wait_for(lambda: lessor.rung() == rung + 1, "the bell")


def test_a_process_that_ends_leaves_no_word(leased: Callable[..., Tenant]):
    """Its slot is free and says nothing."""
    with Lessor(leased()) as lessor:
        lessor.open()
        process = start(lessor.tenant, "kernel", 1000, seconds=0)
        with working(process):
            pass
        assert lessor.works() == []


FORKS = (
    PRELUDE
    + """
import os
check(cuda.cuCtxSetCurrent(contexts[0]))
spin(kernels[0], 0, 3_000_000)
child = os.fork()
if not child:
    sys.exit(7)  # through every exit handler
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("forked", flush=True)
sys.stdin.readline()
"""
)


def test_a_forked_child_says_nothing_of_its_parents_work(leased: Callable[..., Tenant], ends: ExitStack):
    """Neither in its own name nor in the parent's, whose word stays as it is when the child ends."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(FORKS, SPIN_PTX)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "forked\n"
    assert lessor.works() == [Work.IN_FLIGHT]


def test_work_that_outlasts_its_expected_end_is_told_from_that_of_a_stopped_process(begin: Begin):
    """A live process says again and again that its work should be over now; a stopped one falls behind."""
    lessor, process = begin(5_000_000, 1)

    def behind_ns() -> int:
        now = time.monotonic_ns()
        return min((-word.after_ns(now) for word in lessor.words()), default=0)

    began = time.monotonic_ns()
    while time.monotonic_ns() < began + SECOND_NS:
        assert behind_ns() < SECOND_NS // 2
    assert lessor.works() == [Work.IN_FLIGHT]
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: behind_ns() > SECOND_NS // 2, "the process to fall behind")


def test_a_stopped_process_is_seen_in_flight_until_it_goes_on(machine: SimMachine, begin: Begin):
    """Nobody else can say that its work is over; when it runs again it says so."""
    lessor, process = begin(1000, 10_000)
    goes_on(machine)
    os.kill(process.pid, signal.SIGSTOP)
    lessor.close()
    stopped = latest(machine)
    wait_for(lambda: time.monotonic_ns() > stopped + 200 * MS, "the card to be idle")
    held = lessor.works()
    os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: lessor.works() == [Work.WAITING], "the process to see it")
    assert len(held) == 1


TWO_CARDS = (
    PRELUDE
    + """
import threading
begun = [0, 0]

def use(card):
    check(cuda.cuCtxSetCurrent(contexts[card]))
    while True:
        spin(kernels[card], 0)
        begun[card] += 1
        check(cuda.cuCtxSynchronize())

for card in range(2):
    threading.Thread(target=use, args=(card,), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(*begun, flush=True)
"""
)


def test_each_card_has_its_gate(leased: Callable[..., Tenant], ends: ExitStack):
    """A thread that waits for the one does not hold up a thread that works on the other."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(TWO_CARDS, SPIN_PTX)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def begun() -> list[int]:
        told_to_go(process)
        return [int(word) for word in process.stdout.readline().split()]

    lessor.close(1)
    wait_for(lambda: lessor.works(1) == [Work.WAITING], "the thread on the second card")
    first, second = begun()
    wait_for(lambda: begun()[0] > first + 100, "the thread on the first card")
    assert begun()[1] == second
    lessor.open(1)
    wait_for(lambda: begun()[1] > second + 10, "the thread on the second card")


CAPTURE = (
    PRELUDE
    + """
check(cuda.cuCtxSetCurrent(contexts[0]))
stream = check(cuda.cuStreamCreate(1))
print("ready", flush=True)
sys.stdin.readline()
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(1000):
    spin(kernels[0], stream)
graph = check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(stream)), 0))
print("captured", flush=True)
check(cuda.cuGraphLaunch(graph, stream))
print("launched", flush=True)
check(cuda.cuCtxSynchronize())
"""
)


def test_a_capture_never_waits(leased: Callable[..., Tenant], ends: ExitStack):
    """With the gate closed a graph is made; its launch waits."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(CAPTURE, SPIN_PTX)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    lessor.close()
    told_to_go(process)
    assert process.stdout.readline() == "captured\n"
    wait_for(lambda: lessor.works() == [Work.WAITING], "the launch")
    lessor.open()
    assert process.stdout.readline() == "launched\n"


@pytest.mark.parametrize(("card", "least_ms"), [(0, 90), (1, 18)])
def test_what_makes_no_progress_gets_its_partner(
    leased: Callable[..., Tenant], ends: ExitStack, card: int, least_ms: int
):
    """A kernel that does not end may wait for another, on any card: after a while that is let in, lease or no lease."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process = lessor.tenant.start(PARTNERS, SPIN_PTX, 3_000_000, card)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    told_to_go(process)
    assert process.stdout.readline() == "first\n"
    lessor.close(0)
    lessor.close(1)
    began = time.monotonic_ns()
    told_to_go(process)
    assert process.stdout.readline() == "second\n"
    assert least_ms * MS < time.monotonic_ns() - began < 2 * SECOND_NS


# ---- races ----


def windows_of(lessors: list[Lessor], seconds: float, chance: random.Random) -> list[list[tuple[int, int]]]:
    """Leases the card for random times, each when the one before has drained; returns when each tenant had it."""
    windows: list[list[tuple[int, int]]] = [[] for _ in lessors]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        index = chance.randrange(len(lessors))
        lessor, granted = lessors[index], time.monotonic_ns()
        lessor.open(window_us=chance.choice([500, 2000, 8000]), lease_ns=10 * MS)
        time.sleep(chance.uniform(0, 0.02))
        lessor.close()
        wait_for(lessor.is_drained, "the holder to drain")
        windows[index].append((granted, time.monotonic_ns()))
    return windows


@pytest.mark.parametrize("microseconds", [(50, 1000), (100, 20_000)], ids=str)
def test_nobody_works_without_a_lease(
    machine: SimMachine, leased: Callable[..., Tenant], ends: ExitStack, microseconds: tuple[int, int]
):
    """Two tenants of two processes each, handed the card in turns at random: each ran in its own turns alone."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    lessors, pids = [], []
    for length in microseconds:
        lessor = ends.enter_context(Lessor(leased()))
        lessor.close()
        processes = [start(lessor.tenant, how, length, 64, seconds=60) for how in ("kernel", "streams")]
        for process in processes:
            ends.callback(process.communicate)
            ends.callback(process.kill)
            told_to_go(process)
        lessors.append(lessor)
        pids.append({process.pid for process in processes})

    def attempt() -> float:
        began = time.monotonic_ns()
        windows = windows_of(lessors, 2, random.Random(seed))
        inside = total = 0
        for own, granted in zip(pids, windows, strict=True):
            inside += sum(busy_between(machine, begin, end, own) for begin, end in granted)
            total += busy_between(machine, began, time.monotonic_ns(), own)
        assert total > SECOND_NS // 10
        return (total - inside) / total

    assert min(attempts(attempt, 0, 0.005)) < 0.01
