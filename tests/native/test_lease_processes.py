"""Leases of tenants with several processes, threads and cards; and of several tenants in turn."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from aliquot.libshim._pages import lib
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.leases import MS, SECOND_NS, Begin, Lessor, Work, busy_between, goes_on, latest, told_to_go
from tests.native.shells import Shell
from tests.native.sims import wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX, start, working
from tests.native.test_tickets import PRELUDE


def begun(
    ends: ExitStack, tenant: Tenant, program: str, *arguments: object
) -> tuple[subprocess.Popen[str], Callable[[], str]]:
    """A program that ends with the test, and what it says next."""
    process = tenant.start(program, *arguments)
    ends.callback(process.communicate)
    ends.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline


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
        assert lib.AQ_MONITOR_ENDED not in lessor.monitors()
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
    process, hear = begun(ends, lessor.tenant, PARTNERS, SPIN_PTX, 2_000_000)
    assert hear() == "ready\n"
    told_to_go(process)
    assert hear() == "first\n"
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


PAUSE = "34" if os.uname().machine == "x86_64" else "73"
"""How /proc/PID/syscall names a call of pause(3), which is ppoll where there is no pause."""
FORKS = (
    PRELUDE
    + """
import os
check(cuda.cuCtxSetCurrent(contexts[0]))
spin(kernels[0], 0, 60_000_000)
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
    _, hear = begun(ends, lessor.tenant, FORKS, SPIN_PTX)
    assert hear() == "forked\n"
    assert lessor.works() == [Work.IN_FLIGHT]
    assert [thread != lib.AQ_MONITOR_ENDED for thread in lessor.monitors()] == [True]


EXECS = (
    PRELUDE
    + """
import os
check(cuda.cuCtxSetCurrent(contexts[0]))
spin(kernels[0], 0, 60_000_000)
print("ready", flush=True)
sys.stdin.readline()
os.execvp("cat", ["cat"])
"""
)


LINGERS = (
    """
import ctypes
libc = ctypes.CDLL(None)
# It runs after the handlers that come later.
assert libc.__cxa_atexit(ctypes.cast(libc.pause, ctypes.c_void_p), None, None) == 0
"""
    + PRELUDE
    + """
check(cuda.cuCtxSetCurrent(contexts[0]))
spin(kernels[0], 0, 1_000_000)
check(cuda.cuCtxSynchronize())
print("ready", flush=True)
"""
)


def test_a_process_that_takes_long_to_end_has_not_ended(leased: Callable[..., Tenant], ends: ExitStack):
    """Its last handlers may have work on the card, and its memory is still its own."""
    lessor = ends.enter_context(Lessor(leased()))
    lessor.open()
    process, hear = begun(ends, lessor.tenant, LINGERS, SPIN_PTX)
    assert hear() == "ready\n"
    task = Path("/proc") / str(process.pid) / "syscall"
    wait_for(lambda: task.read_text().split()[0] == PAUSE, "its last handler")
    assert [thread != lib.AQ_MONITOR_ENDED for thread in lessor.monitors()] == [True]
    process.kill()
    wait_for(lambda: lessor.monitors() == [lib.AQ_MONITOR_ENDED], "the mark")


@pytest.mark.parametrize("end", ["kill", "exec"])
def test_the_kernel_marks_the_end_of_a_process_in_its_page(
    leased: Callable[..., Tenant], ends: ExitStack, end: str
):
    """Whatever it was about to do; also of one that lives on as another program."""
    lessor = ends.enter_context(Lessor(leased()))
    lessor.open()
    process, hear = begun(ends, lessor.tenant, EXECS, SPIN_PTX)
    assert hear() == "ready\n"
    (thread,) = lessor.monitors()
    assert (Path("/proc") / str(process.pid) / "task" / str(thread) / "comm").read_text() == "aliquot-core\n"
    if end == "kill":
        process.kill()
    else:
        told_to_go(process)
    wait_for(lambda: lessor.monitors() == [lib.AQ_MONITOR_ENDED], "the mark")
    assert lessor.works() == [Work.IN_FLIGHT]


def test_who_has_not_worked_yet_names_no_time_that_is_far(leased: Callable[..., Tenant], ends: ExitStack):
    """The end of work is told in few bits: nought would be hours ago, or hours ahead."""
    lessor = ends.enter_context(Lessor(leased()))
    lessor.close()
    process = told_to_go(start(lessor.tenant, "kernel", 1000, seconds=60))
    ends.callback(process.communicate)
    ends.callback(process.kill)
    wait_for(lambda: lessor.works() == [Work.WAITING], "a process that waits")
    (word,) = lessor.words()
    assert abs(word.after_ns(time.monotonic_ns())) < 60 * SECOND_NS


@pytest.mark.timing
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

    def only_first_works() -> bool:
        first, second = begun()
        wait_for(lambda: begun()[0] > first + 100, "the thread on the first card")
        return begun()[1] == second

    lessor.close(1)
    wait_for(lambda: lessor.works(1) == [Work.WAITING], "the thread on the second card")
    wait_for(only_first_works, "the thread on the second card to be held up")
    second = begun()[1]
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
    process, hear = begun(ends, lessor.tenant, CAPTURE, SPIN_PTX)
    assert hear() == "ready\n"
    lessor.close()
    told_to_go(process)
    assert hear() == "captured\n"
    wait_for(lambda: lessor.works() == [Work.WAITING], "the launch")
    lessor.open()
    assert hear() == "launched\n"


@pytest.mark.parametrize(("card", "least_ms"), [(0, 90), (1, 18)])
def test_what_makes_no_progress_gets_its_partner(
    leased: Callable[..., Tenant], ends: ExitStack, card: int, least_ms: int
):
    """A kernel that does not end may wait for another, on any card: after a while that is let in, lease or no lease."""
    lessor = ends.enter_context(Lessor(leased(2)))
    lessor.open(0)
    lessor.open(1)
    process, hear = begun(ends, lessor.tenant, PARTNERS, SPIN_PTX, 60_000_000, card)
    assert hear() == "ready\n"
    told_to_go(process)
    assert hear() == "first\n"
    lessor.close(0)
    lessor.close(1)
    began = time.monotonic_ns()
    told_to_go(process)
    assert hear() == "second\n"
    assert least_ms * MS < time.monotonic_ns() - began < 30 * SECOND_NS


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


@pytest.mark.slow
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
        assert total > 0
        return (total - inside) / total

    assert min(attempts(attempt, 0, 0.005)) < 0.01
