"""Who runs when on a simulated card, judged by the card's own record."""

import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SOURCES, SimCard, SimMachine
from aliquot.sandbox.record import Busy
from tests.native.sims import ask, read_until, run_python, start, wait_for

MS = 1_000_000


def overlap(records: list[Busy], pid: int, begin: int, end: int) -> int:
    """Nanoseconds of a window in which a process ran."""
    return sum(max(0, min(r.end_ns, end) - max(r.start_ns, begin)) for r in records if r.pid == pid)


def shares(records: list[Busy], pids: list[int]) -> list[float]:
    """Each process's share of the time in which all of them had work."""
    begin = max(min(r.start_ns for r in records if r.pid == pid) for pid in pids)
    end = min(max(r.end_ns for r in records if r.pid == pid) for pid in pids)
    return [overlap(records, pid, begin, end) / (end - begin) for pid in pids]


def race(machine: SimMachine, *work: tuple[int, int]) -> tuple[list[Busy], list[int]]:
    """Runs processes with so many kernels of so many nanoseconds at once; returns the record and their pids."""
    processes = [start(machine, "launch", ns, count, "sync") for ns, count in work]
    for process in processes:
        process.communicate(timeout=60)
    return machine.busy(machine.cards[0].uuid), [process.pid for process in processes]


def test_a_kernel_takes_the_time_it_says(machine: SimMachine):
    """The record holds the sum of all kernels, to the nanosecond, however late the process woke."""
    ask(machine, "launch", 10_000, 500, "launchex", MS, 3, "sync", "graph", MS, 4, "sync")
    assert sum(r.end_ns - r.start_ns for r in machine.busy(machine.cards[0].uuid)) == 12 * MS


@pytest.mark.timing
def test_processes_take_turns_of_two_milliseconds(machine: SimMachine):
    """Contexts with work share a card evenly, whatever the length of their kernels, and never run at once."""
    records, pids = race(machine, (MS, 200), (100_000, 2000), (50 * MS, 4))
    assert all(later.start_ns >= earlier.end_ns for earlier, later in pairwise(records))
    assert shares(records, pids) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert Counter(r.end_ns - r.start_ns for r in records).most_common(1)[0][0] == 2 * MS


@pytest.mark.timing
def test_concurrent_cards_run_all_at_once(tmp_path: Path):
    """As under MPS: nobody waits for a neighbour."""
    machine = SimMachine(tmp_path / "mps", [SimCard(concurrent=True)])
    machine.create()
    records, pids = race(machine, (10 * MS, 20), (10 * MS, 20))
    assert shares(records, pids) == pytest.approx([1, 1], abs=0.02)


@pytest.mark.timing
def test_handing_the_card_over_takes_its_time(tmp_path: Path):
    """Between the turns of two processes nobody has it; one process's turns go on without a gap."""
    machine = SimMachine(tmp_path / "slow", [SimCard(switch_us=500)])
    machine.create()
    records, _ = race(machine, (MS, 60), (MS, 60))
    record = machine.record(machine.cards[0].uuid, records[0].start_ns, records[-1].end_ns)
    handovers = sum(later.pid != earlier.pid for earlier, later in pairwise(records))
    assert handovers > 20
    assert record.switching_ns() == handovers * MS // 2
    for earlier, later in pairwise(records):
        if later.pid != earlier.pid:
            assert later.start_ns - earlier.end_ns >= MS // 2
    assert record.busy_ns() == 120 * MS


def test_a_stopped_process_keeps_its_place_and_no_more(machine: SimMachine):
    """What it had queued runs in its turns; a neighbour gets the rest."""
    stopped = start(machine, "launch", MS, 50, "wait")
    read_until(stopped, "wait")
    stopped.send_signal(signal.SIGSTOP)
    assert ask(machine, "launch", MS, 50, "sync")[1]["result"] == 0
    stopped.send_signal(signal.SIGCONT)
    stopped.communicate()
    records = machine.busy(machine.cards[0].uuid)
    assert sum(r.end_ns - r.start_ns for r in records if r.pid == stopped.pid) == 50 * MS


def test_the_work_of_the_dead_is_dropped(machine: SimMachine):
    """A killed process's kernels end with it, and the card is free."""
    victim = start(machine, "launch", 3_600_000 * MS, 1, "wait")
    read_until(victim, "wait")
    victim.kill()
    victim.communicate()
    assert ask(machine, "launch", MS, 1, "sync")[1]["result"] == 0


@pytest.mark.timing
def test_events_measure_the_cards_time(machine: SimMachine):
    """Ten kernels of a millisecond are ten milliseconds between two events, in the card's time and not the CPU's."""
    program = """
import ctypes
start()
from pathlib import Path
module = check(cuda.cuModuleLoadData(Path(sys.argv[1]).read_bytes() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))
stream = check(cuda.cuStreamCreate(1))
first, last = (check(cuda.cuEventCreate(0)) for _ in range(2))
ns = ctypes.c_uint64(1000000)
params = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
launch = lambda: check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, ctypes.addressof(params), 0))
launch()
check(cuda.cuEventRecord(first, stream))
for _ in range(10):
    launch()
check(cuda.cuEventRecord(last, stream))
print(cuda.cuEventQuery(last)[0].name, cuda.cuStreamQuery(stream)[0].name)
check(cuda.cuEventSynchronize(last))
print(check(cuda.cuEventElapsedTime(first, last)))
print(cuda.cuEventQuery(last)[0].name)
"""

    spin = SOURCES.parent / "kernels" / "spin.ptx"
    early, busy, elapsed, done = run_python(machine, program, spin).split()
    assert (early, busy, done) == ("CUDA_ERROR_NOT_READY", "CUDA_ERROR_NOT_READY", "CUDA_SUCCESS")
    assert float(elapsed) == pytest.approx(10, abs=0.2)


def test_the_queue_of_a_stream_is_bounded(machine: SimMachine):
    """After 1,024 launches the next one waits, as on real drivers."""
    client = start(machine, "launch", MS, 1100, "wait")
    read_until(client, "launch")
    done = sum(r.end_ns - r.start_ns for r in machine.busy(machine.cards[0].uuid))
    assert done >= 70 * MS
    client.kill()
    client.communicate()


def test_cards_do_not_disturb_each_other(machine: SimMachine):
    """Work on one card is not on the other's record."""
    ask(machine, "--device", 1, "launch", MS, 5, "sync")
    first, second = (machine.busy(card.uuid) for card in machine.cards)
    assert first == []
    assert sum(r.end_ns - r.start_ns for r in second) == 5 * MS


def test_the_judge_sees_turns_under_way(machine: SimMachine):
    """A long kernel is on the record while it runs."""
    client = start(machine, "launch", 10_000 * MS, 1, "wait")
    read_until(client, "wait")
    wait_for(lambda: len(machine.busy(machine.cards[0].uuid)) == 1, "the running kernel")
    client.kill()
    client.communicate()
