"""Streams of one program beside each other: what one has in flight keeps the others from the card no more than bare."""

from collections.abc import Callable, Iterator

import pytest

from tests.native.leases import Lessor, hear, say
from tests.native.sims import PRELUDE, wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX

MEET_PTX = SPIN_PTX.with_name("meet.ptx")
ROUNDS = 10
PATIENCE_MS = 50
"""Of a submission, in the median of the rounds. Work that makes no progress is believed after 100 ms."""

COMMON = """
import ctypes, os, statistics, threading, time
spin_path, meet_path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
start()

def load(path, name):
    module = check(cuda.cuModuleLoadData(open(path, "rb").read() + b"\\0"))
    return check(cuda.cuModuleGetFunction(module, name))

kernel, meeting = load(spin_path, b"aliquot_spin"), load(meet_path, b"aliquot_meet")
streams = [check(cuda.cuStreamCreate(1)) for _ in range(9)]
words = check(cuda.cuMemHostAlloc(4096, 3))
ctypes.memset(words, 0, 4096)

def word(number):
    return ctypes.c_uint32.from_address(words + 64 * number)

def spin(stream, ms, width=1):
    length = ((round(ms * 1_000_000),), (ctypes.c_uint64,))
    check(cuda.cuLaunchKernel(kernel, width, 1, 1, 1, 1, 1, 0, stream, length, 0))

def meet(stream, value):
    arguments = ((0, words, words + 64, value), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
    check(cuda.cuLaunchKernel(meeting, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

def wait_for_all():
    for stream in (streams[0], *streams[2:]) if threading.active_count() > 1 else streams:
        check((*cuda.cuStreamSynchronize(stream), None))

def measured(act):
    taken = []
    for number in range(1, rounds + 1):
        begin = time.monotonic()
        act(number)
        taken.append((time.monotonic() - begin) * 1000)
        wait_for_all()
    print(statistics.median(taken))
"""

BESIDE_A_LONG_KERNEL = """
def act(number):
    spin(streams[0], 300)
    for _ in range(10):
        spin(streams[1], 1)
    check((*cuda.cuStreamSynchronize(streams[1]), None))
measured(act)
"""

BESIDE_A_KERNEL_THAT_WAITS_FOR_THE_HOST = """
def act(number):
    meet(streams[0], number)
    for _ in range(20):
        spin(streams[1], 0.1)
    check((*cuda.cuStreamSynchronize(streams[1]), None))
    word(1).value = number
measured(act)
"""

CONSUMER_BEFORE_PRODUCER = """
def act(number):
    check(cuda.cuStreamWaitValue32(streams[0], words, number, 0))
    for _ in range(4):
        spin(streams[0], 10)
    spin(streams[1], 10)
    check(cuda.cuStreamWriteValue32(streams[1], words, number, 0))
measured(act)
"""

BEHIND_A_WAIT_BESIDE_A_BUSY_STREAM = """
over = threading.Event()

def keep_busy():
    start()
    while not over.is_set():
        spin(streams[1], 1)

def act(number):
    check(cuda.cuStreamWaitValue32(streams[0], words, number, 0))
    for _ in range(6):
        spin(streams[0], 5)
    word(0).value = number

spin(streams[0], 5)
wait_for_all()
busy = threading.Thread(target=keep_busy)
busy.start()
try:
    measured(act)
finally:
    over.set()
    busy.join()
"""

THREADS_WITH_DEFAULT_STREAMS_OF_THEIR_OWN = """
PER_THREAD = 2
ready, over = threading.Semaphore(0), threading.Semaphore(0)

def keep_busy():
    start()
    for _ in range(rounds):
        ready.acquire()
        spin(PER_THREAD, 300)
        over.release()

other = threading.Thread(target=keep_busy)
other.start()

taken = []
for _ in range(rounds):
    ready.release()
    over.acquire()
    begin = time.monotonic()
    for _ in range(10):
        spin(PER_THREAD, 1)
    check((*cuda.cuStreamSynchronize(PER_THREAD), None))
    taken.append((time.monotonic() - begin) * 1000)
    check((*cuda.cuCtxSynchronize(), None))
other.join()
print(statistics.median(taken))
"""

OTHERS_BEHIND_MUCH_WAITING_WORK = """
taken = []
SMALL, MEDIUM, LONG = (0.01, 2), (0.1, 3), (200, 4)
for kind in (SMALL, MEDIUM, LONG) * 2:
    spin(streams[1], *kind)
    wait_for_all()
for number in range(1, rounds + 1):
    check(cuda.cuStreamWaitValue32(streams[0], words, number, 0))
    for _ in range(64):
        spin(streams[0], *SMALL)
    begin = time.monotonic()
    spin(streams[1], *LONG)
    for _ in range(10):
        spin(streams[2], *MEDIUM)
    taken.append((time.monotonic() - begin) * 1000)
    word(0).value = number
    wait_for_all()
print(statistics.median(taken))
"""

ONE_KERNEL_ON_EACH = """
def act(number):
    for stream in streams[:8]:
        spin(stream, 20)
measured(act)
"""

MUCH_BEHIND_A_WAIT = """
def act(number):
    check(cuda.cuStreamWaitValue32(streams[0], words, number, 0))
    for _ in range(16):
        spin(streams[0], 5)
    word(0).value = number
spin(streams[0], 5)
wait_for_all()
measured(act)
"""

WAITS_FOR_THE_HOST = """
spin(streams[0], 1)
wait_for_all()
check(cuda.cuStreamWaitValue32(streams[0], words, 1, 0))
spin(streams[0], 1)
print("waits", flush=True)
sys.stdin.readline()
word(0).value = 1
wait_for_all()
"""

PROGRAMS = {
    "short kernels beside a long one": BESIDE_A_LONG_KERNEL,
    "short kernels beside one that waits for the host": BESIDE_A_KERNEL_THAT_WAITS_FOR_THE_HOST,
    "consumers before their producer": CONSUMER_BEFORE_PRODUCER,
    "work behind a wait beside a busy stream": BEHIND_A_WAIT_BESIDE_A_BUSY_STREAM,
    "others behind much work that waits": OTHERS_BEHIND_MUCH_WAITING_WORK,
    "threads with default streams of their own": THREADS_WITH_DEFAULT_STREAMS_OF_THEIR_OWN,
    "a long kernel on each of eight": ONE_KERNEL_ON_EACH,
}


@pytest.fixture(params=["by its own clock", "under a lease"])
def alone(
    tenant: Callable[..., Tenant], leased: Callable[..., Tenant], request: pytest.FixtureRequest
) -> Iterator[Tenant]:
    """A tenant that has the card for itself, with a cap or with a lease that does not end."""
    if request.param == "by its own clock":
        yield tenant(1 << 30, 99)
        return
    with Lessor(leased()) as lessor:
        lessor.open()
        yield lessor.tenant


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_stream_is_kept_from_the_card_by_what_is_in_its_way_alone(alone: Tenant, program: str):
    """The median of its rounds is far below the time for which the interceptor waits where it does not know better."""
    assert float(alone.run(PRELUDE + COMMON + program, SPIN_PTX, MEET_PTX, ROUNDS)) < PATIENCE_MS


def test_behind_a_wait_no_more_than_a_window_is_submitted_at_once(alone: Tenant):
    """All of it may begin at any moment. Beyond that one goes every 2 ms, and from 64 ms on every 100."""
    assert float(alone.run(PRELUDE + COMMON + MUCH_BEHIND_A_WAIT, SPIN_PTX, MEET_PTX, 1)) > 200


def test_no_lease_is_held_up_by_a_stream_that_waits_for_the_host(leased: Callable[..., Tenant]):
    """Nothing of it is on the card, so an arbiter that closes the gate need not wait for it."""
    with Lessor(leased()) as lessor:
        lessor.open()
        process = lessor.tenant.start(PRELUDE + COMMON + WAITS_FOR_THE_HOST, SPIN_PTX, MEET_PTX, 1)
        hear(process, "waits")
        lessor.close()
        wait_for(lessor.is_drained, "a card with nothing in flight", 20)
        say(process, "go on")
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert lessor.tenant.usage().cards[0].busy_ns > 0
