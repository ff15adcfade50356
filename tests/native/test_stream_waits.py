"""What a stream waits for besides its own work: the card does nothing for it meanwhile, and nothing is charged."""

from collections.abc import Callable

import pytest

from tests.native.sims import PRELUDE, busy_ns, wait_for
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX

MS = 1_000_000
ROUNDS = 10
WAIT_MS = 30

PROGRAM = """
import ctypes, os, threading, time
path, how, rounds, wait_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
start()
module = check(cuda.cuModuleLoadData(open(path, "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
stream, other = check(cuda.cuStreamCreate(1)), check(cuda.cuStreamCreate(1))
event = check(cuda.cuEventCreate(2))
word = check(cuda.cuMemHostAlloc(64, 3))
ctypes.memset(word, 0, 64)
nap = cuda.CUhostFn(ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value)

def spin(to):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, to, ((100_000,), (ctypes.c_uint64,)), 0))

def wait_in(to, number):
    if how == "word":
        check(cuda.cuStreamWaitValue32(to, word, number, 0))
        threading.Timer(wait_ms / 1000, ctypes.memset, (word, number, 1)).start()
    else:
        check(cuda.cuLaunchHostFunc(to, nap, wait_ms * 1000))

for number in range(1, rounds + 1):
    for _ in range(4):
        spin(stream)
    if how == "event":
        wait_in(other, number)
        check(cuda.cuEventRecord(event, other))
        check(cuda.cuStreamWaitEvent(stream, event, 0))
    else:
        wait_in(stream, number)
    for _ in range(4):
        spin(stream)
    check(cuda.cuStreamSynchronize(stream))
print(os.getpid(), flush=True)
"""


@pytest.mark.parametrize("how", ["host", "event", "word"])
def test_a_stream_that_waits_between_two_kernels_is_charged_for_the_kernels(
    tenant: Callable[..., Tenant], how: str
):
    """Four kernels of 0.1 ms, 30 ms of waiting for the host, and four more: the wait is none of the card's."""
    made = tenant(1 << 30, 99)
    pid = int(made.run(PRELUDE + PROGRAM, SPIN_PTX, how, ROUNDS, WAIT_MS))
    used = sum(
        run.end_ns - run.start_ns for run in made.machine.busy(made.machine.cards[0].uuid) if run.pid == pid
    )
    assert used == 8 * ROUNDS * MS // 10
    wait_for(lambda: made.usage().cards[0].busy_ns > 0, "a charge")
    assert 0.5 * used < made.usage().cards[0].busy_ns < 2 * used


MANY = """
import ctypes
start()
module = check(cuda.cuModuleLoadData(open(sys.argv[1], "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
streams = [check(cuda.cuStreamCreate(1)) for _ in range(2)]
word = check(cuda.cuMemHostAlloc(64, 3))
ctypes.memset(word, 0, 64)

def spin(stream):
    check(cuda.cuLaunchKernel(kernel, 10000, 1, 1, 256, 1, 1, 0, stream, ((100_000,), (ctypes.c_uint64,)), 0))

for _ in range(4):
    spin(streams[0])
    check((*cuda.cuStreamSynchronize(streams[0]), None))
for number in range(300):
    check(cuda.cuStreamWaitValue32(streams[number % 2], word, 1, 0))
    spin(streams[number % 2])
ctypes.memset(word, 1, 1)
for stream in streams:
    check((*cuda.cuStreamSynchronize(stream), None))
"""


def test_what_is_submitted_while_very_much_is_in_flight_is_charged_as_well(tenant: Callable[..., Tenant]):
    """Each kernel behind a wait is a batch of its own. When there is none left, work is charged by its past."""
    made = tenant(1 << 30, 99)
    made.run(PRELUDE + MANY, SPIN_PTX)
    used = busy_ns(made.machine)
    assert used == 304 * MS // 10
    assert made.usage().cards[0].busy_ns > 0.95 * used
