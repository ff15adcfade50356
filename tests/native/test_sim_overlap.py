"""Streams of one process on a simulated card: what runs side by side, and what waits for what."""

import pytest

from aliquot.sandbox.gpus import SOURCES, SimMachine
from tests.native.sims import busy_ns, run_python

MS = 1_000_000
SPIN = SOURCES.parent / "kernels" / "spin.ptx"

PROGRAM = """
import ctypes, threading
start()
from pathlib import Path
module = check(cuda.cuModuleLoadData(Path(sys.argv[1]).read_bytes() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
free = [check(cuda.cuStreamCreate(1)) for _ in range(3)]
blocking = [check(cuda.cuStreamCreate(0)) for _ in range(2)]
WHOLE, HALF, TINY = (264, 1024), (132, 1024), (1, 32)
def spin(stream, ms, size=TINY):
    blocks, threads = size
    arguments = ((int(ms * 1e6),), (ctypes.c_uint64,))
    check(cuda.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0))
def mark(stream):
    event = check(cuda.cuEventCreate(0))
    check(cuda.cuEventRecord(event, stream))
    return event
def wait(stream, event):
    check(cuda.cuStreamWaitEvent(stream, event, 0))
spin(free[0], 0.1)  # what the first launch takes is no part of what is measured
check(cuda.cuCtxSynchronize())
begin = mark(free[0])
"""

GATE = """
gate, word = check(cuda.cuStreamCreate(1)), ctypes.c_uint32.from_address(int(check(cuda.cuMemHostAlloc(64, 0))))
check(cuda.cuStreamWaitValue32(gate, ctypes.addressof(word), 1, 0))
opened = mark(gate)
for stream in (0, *blocking, *free):
    wait(stream, opened)
"""
"""The streams begin when all is submitted, however slowly the program does so."""

DONE = """
word.value = 1
check(cuda.cuCtxSynchronize())
"""

CASES = {
    "grids that fit run side by side": ("spin(free[0], 40); spin(free[1], 40)", 40),
    "two whole cards run one after the other": ("spin(free[0], 40, WHOLE); spin(free[1], 40, WHOLE)", 80),
    "a third half waits for one of two": ("for s in free: spin(s, 40, HALF)", 80),
    "a small grid waits for a whole card": ("spin(free[0], 40, WHOLE); spin(free[1], 40)", 80),
    "a small grid fits beside a half": ("for i in range(4): spin(free[0], 10, HALF)\nspin(free[1], 40)", 40),
    "streams keep their own order": ("spin(free[0], 40); spin(free[0], 40); spin(free[1], 40)", 80),
    "a stream waits for an event": ("spin(free[0], 40); wait(free[1], mark(free[0])); spin(free[1], 40)", 80),
    "an event of an idle stream holds nothing up": (
        "spin(free[0], 40); wait(free[1], mark(free[2])); spin(free[1], 40)", 40
    ),
    "the default stream waits for blocking ones": ("spin(blocking[0], 40); spin(blocking[1], 40); spin(0, 40)", 80),
    "blocking streams wait for the default one": ("spin(0, 40); spin(blocking[0], 40); spin(blocking[1], 40)", 80),
    "others do not": ("spin(0, 40); spin(free[0], 40)", 40),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_how_long_the_streams_of_a_process_take(machine: SimMachine, case: str):
    """The card is busy with the union of its kernels, whose order streams, events and the default stream keep."""
    work, milliseconds = CASES[case]
    run_python(machine, PROGRAM + GATE + work + DONE, SPIN)
    busy = busy_ns(machine) - MS // 10
    late = busy - milliseconds * MS  # another order takes 40 ms more, or less
    assert -4 * MS < late < 30 * MS


STOPPED = {
    "blocking streams": "spin(0, 400); spin(blocking[0], 400); spin(blocking[1], 400)",
    "streams that wait for an event": (
        "spin(free[2], 400); over = mark(free[2])\nfor s in free[:2]: wait(s, over); spin(s, 400)"
    ),
}  # fmt: skip
STOP = """
word.value = 1
time.sleep(0.1)
subprocess.run(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 0.6; kill -CONT {os.getpid()}"], check=True)
check(cuda.cuCtxSynchronize())
"""


@pytest.mark.parametrize("case", STOPPED)
def test_a_process_that_is_stopped_loses_nothing(machine: SimMachine, case: str):
    """What waits for a kernel begins when that ends, though the process sees the end 0.3 s late."""
    run_python(machine, "import os, subprocess, time" + PROGRAM + GATE + STOPPED[case] + STOP, SPIN)
    busy = busy_ns(machine)
    assert 800 * MS <= busy < 900 * MS  # one after the other: 1,200 ms


def test_waiting_for_an_event_costs_the_card_nothing(machine: SimMachine):
    """Kernels that go to and fro between two streams by events leave no gap, however late the process wakes."""
    work = """
for i in range(40):
    spin(free[i % 2], 0.5)
    wait(free[1 - i % 2], mark(free[i % 2]))
end = mark(free[0])
word.value = 1
check(cuda.cuEventSynchronize(end))
print(check(cuda.cuEventElapsedTime(start_of_work, end)))
"""
    elapsed = float(run_python(machine, PROGRAM + GATE + "start_of_work = mark(free[0])" + work, SPIN))
    runs = [run for run in machine.busy(machine.cards[0].uuid) if run.end_ns - run.start_ns > MS // 5]
    assert sum(run.end_ns - run.start_ns for run in runs) == 20 * MS
    assert len(runs) == 1
    assert 20 <= elapsed < 40


def test_a_host_function_holds_up_its_own_stream_only(machine: SimMachine):
    """Other streams run while it waits, and what is behind it runs after it."""
    work = """
gate = threading.Event()
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: gate.wait())
check(cuda.cuLaunchHostFunc(free[0], cuda.CUhostFn(ctypes.cast(call, ctypes.c_void_p).value), 0))
spin(free[0], 5)
spin(free[1], 5)
check(cuda.cuStreamSynchronize(free[1]))
print(int(cuda.cuStreamQuery(free[0])[0]))
gate.set()
check(cuda.cuStreamSynchronize(free[0]))
"""
    assert run_python(machine, PROGRAM + work, SPIN).split() == ["600"]
    runs = [run for run in machine.busy(machine.cards[0].uuid) if run.end_ns - run.start_ns > MS]
    assert [run.end_ns - run.start_ns for run in runs] == [5 * MS, 5 * MS]


def test_a_drain_waits_for_the_oldest_work(machine: SimMachine):
    """However much other streams have done since."""
    work = """
spin(free[0], 200)
busy = True
def hurry():
    while busy:
        spin(free[1], 0.01)
        check(cuda.cuStreamSynchronize(free[1]))
def enter():
    check(cuda.cuCtxSetCurrent(context))
    hurry()
context = check(cuda.cuCtxGetCurrent())
thread = threading.Thread(target=enter)
thread.start()
check(cuda.cuCtxSynchronize())
print(int(cuda.cuStreamQuery(free[0])[0]))
busy = False
thread.join()
"""
    assert run_python(machine, PROGRAM + work, SPIN).split() == ["0"]
