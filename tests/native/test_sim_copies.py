"""What copies and fills take of a simulated card's time, and of its bus."""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.sandbox.record import COPIED_IN, COPIED_OUT, RAN, Record
from tests.native.sims import PRELUDE, environment, run_python
from tests.native.test_sim_overlap import PROGRAM, SPIN

US, MS = 1_000, 1_000_000
MIB = 1 << 20
BUS, MEMORY = 1, 4  # GiB a second

COPY = f"""
MIB, SIZE = {MIB}, {32 * MIB}
device, other = (check(cuda.cuMemAlloc(SIZE)) for _ in range(2))
host, out = (int(check(cuda.cuMemHostAlloc(SIZE, 0))) for _ in range(2))
free = [check(cuda.cuStreamCreate(1)) for _ in range(2)]
gate, word = check(cuda.cuStreamCreate(1)), ctypes.c_uint32.from_address(out)
check(cuda.cuStreamWaitValue32(gate, out, 1, 0))
opened = mark(gate)
for stream in free:
    wait(stream, opened)
"""


def spawn(machine: SimMachine, program: str, argument: int) -> subprocess.Popen[str]:
    """Starts a Python program, up to where it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(argument)],
        env=environment(machine),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def took(bytes_moved: int, gib_s: int) -> float:
    """Nanoseconds."""
    return bytes_moved / (gib_s << 30) * 1e9


@pytest.fixture
def slow(tmp_path: Path) -> SimMachine:
    """A card with a slow bus and slow memory."""
    made = SimMachine(tmp_path / "slow", [SimCard(copy_gib_s=BUS, memory_gib_s=MEMORY)])
    made.create()
    return made


def after(machine: SimMachine, work: str) -> tuple[Record, str]:
    """The card's record of a program that has the memory and streams of `COPY`, and what it printed.

    The streams begin when all is submitted, however slowly the program does so.
    """
    begin = time.monotonic_ns()
    printed = run_python(
        machine, PROGRAM + COPY + work + "\nword.value = 1\ncheck(cuda.cuCtxSynchronize())", SPIN
    )
    return machine.record(machine.cards[0].uuid, begin, time.monotonic_ns()), printed


def lengths(record: Record, kind: int) -> list[int]:
    """Of the entries of a kind that are longer than what the program begins with."""
    entries = record.of_kind(kind)
    return [length for length in (entries["end"] - entries["start"]).tolist() if length > MS // 5]


SIZES = {
    "to the card": ("cuda.cuMemcpyHtoDAsync(device, host, SIZE, free[0])", COPIED_IN, took(32 * MIB, BUS)),
    "from the card": ("cuda.cuMemcpyDtoHAsync(out, device, SIZE, free[0])", COPIED_OUT, took(32 * MIB, BUS)),
    "by addresses": ("cuda.cuMemcpyAsync(device, host, SIZE, free[0])", COPIED_IN, took(32 * MIB, BUS)),
    "within it": ("cuda.cuMemcpyDtoDAsync(other, device, SIZE, free[0])", RAN, took(64 * MIB, MEMORY)),
    "fill": ("cuda.cuMemsetD8Async(device, 7, SIZE, free[0])", RAN, took(32 * MIB, MEMORY)),
    "fill of words": ("cuda.cuMemsetD32Async(device, 7, SIZE // 4, free[0])", RAN, took(32 * MIB, MEMORY)),
    "rows": ("cuda.cuMemsetD2D8Async(device, MIB, 7, MIB // 2, 32, free[0])", RAN, took(16 * MIB, MEMORY)),
}  # fmt: skip


@pytest.mark.parametrize("case", SIZES)
def test_bytes_take_time_where_they_move(slow: SimMachine, case: str):
    """Over the bus beside the process's turns, within the card's memory in them."""
    call, kind, expected = SIZES[case]
    record, _ = after(slow, f"check({call})")
    measured = {each: lengths(record, each) for each in (RAN, COPIED_IN, COPIED_OUT)}
    assert measured.pop(kind) == [pytest.approx(expected, abs=30 * US)]
    assert not any(measured.values())


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("cuda.cuMemcpyHtoDAsync(device, host, SIZE, free[0])", "(spin(free[1], 30),)", True),
        (
            "cuda.cuMemcpyHtoDAsync(device, host, SIZE, free[0])",
            "cuda.cuMemcpyDtoHAsync(out, other, SIZE, free[1])",
            True,
        ),
        (
            "cuda.cuMemcpyHtoDAsync(device, host, SIZE, free[0])",
            "cuda.cuMemcpyHtoDAsync(other, host, SIZE, free[1])",
            False,
        ),
        ("cuda.cuMemcpyHtoDAsync(device, host, SIZE, free[0])", "(spin(free[0], 30),)", False),
    ],
    ids=["kernel beside copy", "in beside out", "in behind in", "kernel behind copy"],
)
def test_what_goes_on_at_once(slow: SimMachine, first: str, second: str, *, together: bool):
    """Each direction of the bus and the card itself do one thing at a time, beside each other."""
    record, _ = after(slow, f"{first}; {second}")
    entries = record.entries[record.entries["end"] - record.entries["start"] > MS // 5]
    span = int(entries["end"].max() - entries["start"].min())
    whole = int((entries["end"] - entries["start"]).sum())
    assert span <= 0.7 * whole if together else span == pytest.approx(whole, abs=5 * MS)


@pytest.mark.parametrize("case", ["fill", "within it"])
def test_what_moves_in_the_cards_memory_has_the_card_to_itself(slow: SimMachine, case: str):
    """Kernels of other streams wait for it."""
    call, _, expected = SIZES[case]
    record, _ = after(slow, f"check({call}); spin(free[1], 30)")
    assert sum(lengths(record, RAN)) == pytest.approx(expected + 30 * MS, abs=MS)


def test_a_kernel_behind_a_copy_begins_when_the_copy_ends(slow: SimMachine):
    """On an idle card not a nanosecond is lost, however late the process wakes."""
    work = """
for _ in range(20):
    check(cuda.cuMemcpyHtoDAsync(device, host, MIB, free[0]))
    spin(free[0], 1)
"""
    record, _ = after(slow, work)
    entries = record.entries[record.entries["end"] - record.entries["start"] > MS // 5]
    assert len(entries) == 40
    assert all(later["start"] == earlier["end"] for earlier, later in pairwise(entries))


def test_calls_that_copy_wait_for_the_bus(slow: SimMachine):
    """And for what is before them in the default stream."""
    work = """
import time
begin = time.monotonic()
check(cuda.cuMemcpyDtoH(out, device, SIZE))
print(time.monotonic() - begin)
begin = time.monotonic()
spin(0, 30)
check(cuda.cuMemcpyHtoD(device, host, MIB))
print(time.monotonic() - begin)
"""
    _, printed = after(slow, work)
    alone, behind = map(float, printed.split())
    assert alone >= took(32 * MIB, BUS) / 1e9 - 30e-6
    assert behind >= 0.0309


def test_processes_share_the_bus(tmp_path: Path):
    """A copy begins when that of another process in the same direction has ended, not before."""
    machine = SimMachine(tmp_path / "slower", [SimCard(copy_gib_s=0.1)])
    machine.create()
    program = """
start()
SIZE = int(sys.argv[1])
device, host = check(cuda.cuMemAlloc(SIZE)), int(check(cuda.cuMemHostAlloc(SIZE, 0)))
print("ready", flush=True)
sys.stdin.readline()
check(cuda.cuMemcpyHtoDAsync(device, host, SIZE, 0))
print("queued", flush=True)
check(cuda.cuCtxSynchronize())
"""
    first, second = (spawn(machine, program, 64 * MIB) for _ in range(2))
    begin = time.monotonic_ns()
    for process in (first, second):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "queued\n"
    for process in (first, second):
        process.communicate(timeout=60)
    copies = machine.record(machine.cards[0].uuid, begin, time.monotonic_ns()).of_kind(COPIED_IN)
    assert sorted(copies["pid"].tolist()) == sorted([first.pid, second.pid])
    assert copies[1]["start"] >= copies[0]["end"]


def test_small_copies_take_no_time(machine: SimMachine):
    """Less than a microsecond is nothing."""
    record, _ = after(
        machine, "for _ in range(50): check(cuda.cuMemcpyHtoDAsync(device, host, 4096, free[0]))"
    )
    assert len(record.of_kind(COPIED_IN)) == 0
