"""Managed memory of the simulated driver: where it is, as the card's used bytes show."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native import shells
from tests.native.conftest import CARD_MIB
from tests.native.sims import PRELUDE, environment, run_python

PROGRAM = """
import ctypes
start()
MIB = 1 << 20
Advice = cuda.CUmem_advise
PTX = (b".version 7.0\\n.target sm_70\\n.address_size 64\\n"
       b".visible .entry touch(.param .u64 ns, .param .u64 memory)\\n{\\nret;\\n}\\n\\0")
function = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(PTX)), b"touch"))
seen = []
def place(device):
    location = cuda.CUmemLocation()
    host = device is None
    kinds = cuda.CUmemLocationType
    location.type = kinds.CU_MEM_LOCATION_TYPE_HOST if host else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0 if host else device
    return location
def look():
    check(cuda.cuCtxSynchronize())
    free, total = check(cuda.cuMemGetInfo())
    seen.append((total - free) >> 10)
def managed(mib):
    return int(check(cuda.cuMemAllocManaged(int(mib * MIB), 1)))
def prefetch(address, mib, device):
    check(cuda.cuMemPrefetchAsync(address, int(mib * MIB), place(device), 0, 0))
def advise(address, mib, what, device=None):
    check(cuda.cuMemAdvise(address, int(mib * MIB), getattr(Advice, "CU_MEM_ADVISE_" + what), place(device)))
def touch(address):
    parameters = ((0, address), (ctypes.c_uint64, ctypes.c_uint64))
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0))
    look()
"""
MIB = 1024


def seen(machine: SimMachine, program: str) -> list[int]:
    """The KiB that a program saw used on the card wherever it looked."""
    return [int(word) for word in run_python(machine, PROGRAM + program + "\nprint(*seen)").split()]


def test_it_is_on_the_host_until_a_kernel_touches_it(machine: SimMachine):
    """An allocation whose address is a kernel's parameter comes to the card, and goes when it is freed."""
    program = "a = managed(9); look(); touch(a + 100); touch(a); check(cuda.cuMemFree(a)); look()"
    assert seen(machine, program) == [0, 9 * MIB, 9 * MIB, 0]


def test_small_allocations_take_pages_of_64_kib(machine: SimMachine):
    """Whole blocks of 2 MiB, and of the last one what is needed."""
    assert seen(machine, "touch(managed(1 / 1024)); touch(managed(2.01))") == [64, 64 + 2 * MIB + 64]


def test_a_fill_by_the_card_brings_it_there(machine: SimMachine):
    """Fills run on the card, as kernels do."""
    assert seen(machine, "a = managed(4); check(cuda.cuMemsetD8(a, 1, 100)); look()") == [4 * MIB]


def test_prefetching_moves_the_blocks_of_a_range(machine: SimMachine):
    """To the card and back, block by block of 2 MiB."""
    program = """
a = managed(16)
prefetch(a, 4, 0); look()
prefetch(a + 7 * MIB, 2, 0); look()
prefetch(a, 2, None); look()
prefetch(a, 16, 0); look()
prefetch(a, 16, None); look()
"""
    assert seen(machine, program) == [n * MIB for n in (4, 8, 6, 16, 0)]


@pytest.mark.parametrize(
    ("advice", "resident"),
    [
        ('advise(a, 8, "SET_PREFERRED_LOCATION")', 0),
        ('advise(a, 8, "SET_PREFERRED_LOCATION", 0)', 8),
        ('advise(a, 8, "SET_ACCESSED_BY", 0)', 0),
        ('advise(a, 4, "SET_ACCESSED_BY", 0)', 4),
        ('advise(a, 8, "SET_READ_MOSTLY")', 8),
        ('advise(a, 8, "SET_ACCESSED_BY", 0); advise(a, 8, "UNSET_ACCESSED_BY", 0)', 8),
        ('advise(a, 8, "SET_PREFERRED_LOCATION"); advise(a, 8, "UNSET_PREFERRED_LOCATION")', 8),
    ],
)
def test_advice_keeps_it_on_the_host(machine: SimMachine, advice: str, resident: int):
    """A host preferred, or a device that accesses it where it is: then a kernel does not move it."""
    assert seen(machine, f"a = managed(8); {advice}; touch(a)") == [resident * MIB]


def test_what_is_mostly_read_is_copied(machine: SimMachine):
    """A copy on the card stays when the host gets one, and goes with the advice; what is no copy stays."""
    program = """
a = managed(8)
advise(a, 8, "SET_READ_MOSTLY"); prefetch(a, 8, 0); prefetch(a, 8, None); look()
advise(a, 8, "UNSET_READ_MOSTLY"); look()
prefetch(a, 8, 0); advise(a, 8, "UNSET_READ_MOSTLY"); look()
"""
    assert seen(machine, program) == [8 * MIB, 0, 8 * MIB]


def test_a_full_card_puts_the_memory_used_longest_ago_on_the_host(machine: SimMachine):
    """Other managed memory makes room for managed memory and for plain memory; plain memory never does."""
    program = """
plain = check(cuda.cuMemAlloc(16284 * MIB))
a, b = managed(60), managed(60)
touch(a); touch(b); touch(a)
more = check(cuda.cuMemAlloc(80 * MIB)); look()
assert cuda.cuMemAlloc(101 * MIB)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY; look()
check(cuda.cuMemFree(more)); look()
touch(b)
"""
    full = 16384 * MIB
    assert seen(machine, program) == [
        full - 40 * MIB, full, full, full, full, full - 80 * MIB, full - 20 * MIB
    ]  # fmt: skip


def test_memory_larger_than_the_card_is_there_in_part(machine: SimMachine):
    """As much as there is room for; a kernel that touches it runs all the same."""
    program = "plain = check(cuda.cuMemAlloc(16376 * MIB)); a = managed(64); touch(a); touch(a)"
    assert seen(machine, program) == [16384 * MIB, 16384 * MIB]


def test_batches_prefetch_to_several_places(machine: SimMachine):
    """Each location is for the ranges from its index on; discarding moves nothing."""
    program = """
a, b, c = (cuda.CUdeviceptr(managed(4)) for _ in range(3))
sizes = [4 * MIB] * 3
check(cuda.cuMemPrefetchBatchAsync([a, b, c], sizes, 3, [place(0), place(1)], [0, 2], 2, 0, 0)); look()
check(cuda.cuMemDiscardBatchAsync([a, b, c], sizes, 3, 0, 0)); look()
check(cuda.cuMemDiscardAndPrefetchBatchAsync([a, b], sizes[:2], 2, [place(None)], [0], 1, 0, 0)); look()
"""
    assert seen(machine, program) == [8 * MIB, 8 * MIB, 0]


def test_ranges_tell_what_was_advised(machine: SimMachine):
    """Where a range's blocks disagree there is no answer: -2."""
    program = """
a = managed(8)
Range = cuda.CUmem_range_attribute
def ask(what, mib=8, size=4):
    return check(cuda.cuMemRangeGetAttribute(size, getattr(Range, "CU_MEM_RANGE_ATTRIBUTE_" + what), a, mib * MIB))
advise(a, 8, "SET_READ_MOSTLY"); advise(a, 4, "SET_PREFERRED_LOCATION", 0)
advise(a, 8, "SET_ACCESSED_BY", 1); advise(a, 8, "SET_ACCESSED_BY"); prefetch(a, 8, None)
print(ask("READ_MOSTLY"), ask("PREFERRED_LOCATION"), ask("PREFERRED_LOCATION", 4),
      ask("LAST_PREFETCH_LOCATION"), *ask("ACCESSED_BY", size=12))
"""
    assert seen(machine, program) == [1, -2, 0, -1, -1, 1, -2]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("cuda.cuMemPrefetchAsync(a, 0, place(0), 0, 0)", 1),
        ("cuda.cuMemPrefetchAsync(a, 9 * MIB, place(0), 0, 0)", 1),
        ("cuda.cuMemPrefetchAsync(a, MIB, place(7), 0, 0)", 101),
        ("cuda.cuMemPrefetchAsync(check(cuda.cuMemAlloc(MIB)), MIB, place(0), 0, 0)", 1),
        ("cuda.cuMemPrefetchAsync(a, MIB, place(0), 1, 0)", 1),
        ("cuda.cuMemAdvise(a, MIB, Advice.CU_MEM_ADVISE_SET_ACCESSED_BY, place(9))", 101),
        ("cuda.cuMemPrefetchBatchAsync([cuda.CUdeviceptr(a)], [MIB], 1, [place(0)], [1], 1, 0, 0)", 1),
        ("cuda.cuMemDiscardBatchAsync([cuda.CUdeviceptr(a)], [9 * MIB], 1, 0, 0)", 1),
    ],
)
def test_what_makes_no_sense_is_refused(machine: SimMachine, call: str, code: int):
    """Ranges outside of managed memory, devices that are none, flags that mean nothing."""
    assert seen(machine, f"a = managed(8); print(int(({call})[0]))") == [code]


NEIGHBOUR = """
a = managed(int(sys.argv[1]))
touch(a)
print("there", flush=True)
for line in sys.stdin:
    touch(a)
    print(seen[-1], flush=True)
"""


@pytest.fixture
def neighbour(machine: SimMachine) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts processes that have so many MiB on the card, and use them again whenever they are told to."""
    with ExitStack() as ends:

        def start(mib: int) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + PROGRAM + NEIGHBOUR, str(mib)],
                env=environment(machine),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ends.callback(process.communicate)
            ends.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            return process

        yield start


def use_again(process: subprocess.Popen[str]) -> int:
    """Has a neighbour use its memory; returns the MiB on the card afterwards."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline()) // MIB


@pytest.mark.slow
def test_a_full_card_takes_the_memory_of_the_process_that_used_its_own_the_longest_ago(
    machine: SimMachine, neighbour: Callable[[int], subprocess.Popen[str]]
):
    """As much as is missing; who lost some has it brought back when a kernel uses it, at the cost of the next one."""
    card = machine.cards[0].uuid
    first, second = neighbour(6000), neighbour(6000)
    third = neighbour(6000)
    sizes = [machine.processes(card)[process.pid] >> 20 for process in (first, second, third)]
    assert sizes == [CARD_MIB - 12000, 6000, 6000]
    assert use_again(first) == CARD_MIB
    sizes = [machine.processes(card)[process.pid] >> 20 for process in (first, second, third)]
    assert sizes == [6000, CARD_MIB - 12000, 6000]
    for process in (first, third):
        process.kill()
        process.communicate()
    assert use_again(second) == 6000


def test_other_memory_drives_managed_memory_of_any_process_off(
    machine: SimMachine, neighbour: Callable[[int], subprocess.Popen[str]]
):
    """What is allocated cannot be taken off; what is managed makes room for it."""
    other = neighbour(12000)
    assert seen(machine, "check(cuda.cuMemAlloc(10000 * MIB)); look()") == [CARD_MIB * MIB]
    assert use_again(other) == 12000


def test_it_may_end_while_other_threads_name_it(tmp_path: Path):
    """With its context or by a free: a hint finds it or does not, and nothing of it stays on the card."""
    machine = SimMachine(tmp_path / "machine", [SimCard(memory_mib=CARD_MIB)])
    machine.create()
    command = [shells.program("managed_race"), "4"]
    done = subprocess.run(
        command, env=environment(machine), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


TIMES = {
    "comes": ("", 1000),
    "is there": ("touch(a)", 0),
    "stays where it is": ('advise(a, 1024, "SET_PREFERRED_LOCATION"); touch(a)', 1000),
    "leaves for others": ("b = managed(16384); touch(b)", 2000),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", TIMES)
def test_a_kernel_holds_the_card_while_its_memory_comes_over_the_bus(tmp_path: Path, case: str):
    """A GiB at 1 GiB a second; twice that where as much has to leave first; for each kernel what may not come."""
    machine = SimMachine(tmp_path / "slow", [SimCard(memory_mib=CARD_MIB, copy_gib_s=1)])
    machine.create()
    before, milliseconds = TIMES[case]
    program = f"a = managed(1024)\n{before}\nprint(time.monotonic_ns())\ntouch(a)\nprint(time.monotonic_ns())"
    begin, end = map(int, run_python(machine, f"import time\n{PROGRAM}{program}").split())
    card = machine.cards[0].uuid
    assert machine.record(card, begin, end).busy_ns() / 1e6 == pytest.approx(milliseconds, abs=5)
