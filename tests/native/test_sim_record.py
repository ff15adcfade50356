"""The card's record: who had it when, over any interval, or a loud error."""

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from aliquot.sandbox.gpus import SOURCES, SimMachine, SimulationError
from aliquot.sandbox.record import ENTRY, RAN, SWITCHED, Busy, Record
from tests.native.sims import ask, read_until, run_python, start, wait_for

MS = 1_000_000
CLIENT = Path(__file__).parent / "clients" / "full_record.c"


def record_of(*entries: tuple[int, int, int, int], to_ns: int = 1000) -> Record:
    """A record of made-up entries that begins at 100."""
    return Record(100, to_ns, np.array(list(entries), ENTRY))


OVERLAPPING = (
    (9, RAN, 120, 140),
    (7, RAN, 100, 300),
    (8, RAN, 200, 350),
    (7, RAN, 600, 750),
    (8, SWITCHED, 750, 800),
)


@pytest.mark.parametrize(
    ("pid", "busy", "windows"),
    [
        (7, 350, [200, 0, 100, 50]),
        (8, 150, [100, 50, 0, 0]),
        (9, 20, [20, 0, 0, 0]),
        (6, 0, [0, 0, 0, 0]),
        (None, 400, [200, 50, 100, 50]),
    ],
)
def test_time_is_counted_by_process_and_window(pid: int | None, busy: int, windows: list[int]):
    """What several processes ran at once counts once for all of them together; the last, short window is left out."""
    record = record_of(*OVERLAPPING)
    assert record.busy_ns(pid) == busy
    assert record.windows(200, pid).tolist() == windows


def test_idle_time_holds_what_handovers_took():
    """A card that nobody had was idle, whatever for."""
    record = record_of(*OVERLAPPING)
    assert (record.idle_ns(), record.switching_ns()) == (500, 50)


def test_a_record_without_runs_is_idle():
    """Of a card that did nothing."""
    assert record_of().idle_ns() == 900
    assert record_of().windows(300).tolist() == [0, 0, 0]


def test_a_record_is_clipped_to_its_interval(machine: SimMachine):
    """A kernel that began before and goes on counts for what lies within, to the nanosecond; what was over does not."""
    ask(machine, "launch", MS, 1, "sync")
    client = start(machine, "launch", 10_000 * MS, 1, "wait")
    read_until(client, "launch")
    began = machine.busy(machine.cards[0].uuid)[1].start_ns
    end = began + 30 * MS
    wait_for(lambda: time.monotonic_ns() > end, "the end of the interval")
    record = machine.record(machine.cards[0].uuid, began + 10 * MS, end)
    assert record.intervals() == [Busy(client.pid, began + 10 * MS, end)]
    assert record.windows(10 * MS, client.pid).tolist() == [10 * MS, 10 * MS]
    client.kill()
    client.communicate()


def test_an_interval_that_is_not_over_is_refused(machine: SimMachine):
    """There is no record of the future."""
    with pytest.raises(SimulationError, match="no record of GPU-"):
        machine.record(machine.cards[0].uuid, 0, time.monotonic_ns() + 1000 * MS)


GAPS = """
import ctypes
start()
from pathlib import Path
spin = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry spin(.param .u64 ns)\\n{\\nret;\\n}\\n\\0"
kernel = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(spin)), b"spin"))
arguments = ((1000,), (ctypes.c_uint64,))
for _ in range(int(sys.argv[1])):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0))
    check(cuda.cuCtxSynchronize())
"""


def test_every_kernel_between_gaps_is_an_entry(machine: SimMachine):
    """Kernels that a program waits for one by one are apart on the record."""
    begin = time.monotonic_ns()
    run_python(machine, GAPS, 2000)
    record = machine.record(machine.cards[0].uuid, begin, time.monotonic_ns())
    assert record.busy_ns() == 2000 * 1000
    assert len(record.runs) == 2000


@pytest.mark.slow
def test_what_the_ring_has_lost_is_a_loud_error(machine: SimMachine, tmp_path: Path):
    """An interval of which an entry was overwritten is refused; what is behind it is whole."""
    uuid = machine.cards[0].uuid
    begin = time.monotonic_ns()
    ask(machine, "launch", 1000, 1, "sync")
    program = tmp_path / "full_record"
    subprocess.run(
        [
            "cc",
            "-D_GNU_SOURCE",
            "-pthread",
            f"-I{SOURCES}",
            "-o",
            program,
            CLIENT,
            *SOURCES.glob("machine/*.c"),
        ],
        check=True,
    )
    assert machine.record(uuid, begin, time.monotonic_ns()).busy_ns() == 1000
    subprocess.run([program, machine.root, "7"], check=True)
    end = time.monotonic_ns()
    with pytest.raises(SimulationError, match="too late"):
        machine.record(uuid, begin, end)
    lost = machine.busy(uuid)[0].start_ns
    assert machine.record(uuid, lost, end).busy_ns(7) == 1 << 19
