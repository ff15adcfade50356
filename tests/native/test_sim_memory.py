"""Memory of the simulated driver: what each kind costs, who gives it back, and what does not fit."""

import signal
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.sims import ask, read_until, run_python, start, wait_for

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("commands", "charged_mib"),
    [
        (["alloc", 1], 2),
        (["alloc", MIB, "alloc", MIB], 2),
        (["alloc", MIB + 1], 2),
        (["alloc", 3 * MIB], 4),
        (["pitch", 1, 4096], 2),
        (["managed", 64 * MIB], 0),
        (["async", 1], 32),
        (["async", 33 * MIB], 64),
        (["pool", 1], 32),
        (["create", 4 * MIB], 4),
        (["map", 4 * MIB], 4),
        (["array", 4096, 1024], 4),
        (["host", 64 * MIB], 0),
    ],
)
def test_each_kind_of_memory_costs_what_it_does_on_a_card(
    machine: SimMachine, commands: list[object], charged_mib: int
):
    """Blocks of 2 MiB, shared by small allocations; pools in steps of 32 MiB; the host's memory costs nothing."""
    *_, info = ask(machine, *commands, "info")
    assert info["total"] - info["free"] == charged_mib * MIB


@pytest.mark.parametrize("kind", ["alloc 5", "pitch 9 9", "managed 5", "async 5", "pool 5", "map 2097152"])
def test_memory_holds_what_is_written(machine: SimMachine, kind: str):
    """A fill is read back from every kind of device memory."""
    assert ask(machine, *kind.split(), "fill", 7)[-1] == {"do": "fill", "result": 0, "same": True}


@pytest.mark.parametrize("free", ["free", "freeasync"])
@pytest.mark.parametrize("kind", ["alloc 5", "managed 5", "async 5", "pool 5"])
def test_every_free_takes_every_pointer(machine: SimMachine, kind: str, free: str):
    """CUDA frees device memory by either route, whichever way it came, and pools give it back at the next wait."""
    *_, freed, _, info = ask(machine, *kind.split(), free, "sync", "info")
    assert freed["result"] == 0
    assert info["free"] == info["total"]


def test_a_card_is_full_when_its_blocks_are(machine: SimMachine):
    """Exactly as many blocks fit as the card has; then CUDA_ERROR_OUT_OF_MEMORY."""
    assert ask(machine, "until", 1024 * MIB)[-1] == {"do": "until", "result": 2, "count": 16}


def test_processes_share_a_card(machine: SimMachine):
    """What one holds the other cannot have; both see the same free bytes; the judge knows who has what."""
    uuid = machine.cards[0].uuid
    holder = start(machine, "alloc", 10240 * MIB, "wait")
    read_until(holder, "wait")
    info, denied = ask(machine, "info", "alloc", 7168 * MIB)
    assert info["free"] == 6144 * MIB
    assert denied["result"] == 2
    assert machine.processes(uuid) == {holder.pid: 10240 * MIB}
    holder.communicate()
    assert machine.memory_used(uuid) == 0


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_process_gives_its_memory_back(machine: SimMachine, reaped: bool):
    """Whoever comes next collects it, even while the dead one is still a zombie."""
    uuid = machine.cards[0].uuid
    victim = start(machine, "alloc", 16384 * MIB, "wait")
    read_until(victim, "wait")
    assert machine.memory_used(uuid) == 16384 * MIB
    victim.send_signal(signal.SIGKILL)
    if reaped:
        victim.wait()
    wait_for(lambda: machine.memory_used(uuid) == 0, "the memory of the dead")
    assert ask(machine, "alloc", 16384 * MIB)[0]["result"] == 0
    victim.communicate()


def test_a_stopped_process_blocks_nobody(machine: SimMachine):
    """A process stopped in the middle of allocating keeps its memory and nobody else from theirs."""
    busy = start(machine, "repeat", 10**9, 4 * MIB)
    uuid = machine.cards[0].uuid
    wait_for(lambda: busy.pid in machine.processes(uuid), "the busy process")
    for _ in range(20):
        busy.send_signal(signal.SIGSTOP)
        assert ask(machine, "repeat", 10, 4 * MIB)[0]["done"] == 10
        busy.send_signal(signal.SIGCONT)
    busy.kill()
    busy.communicate()


def test_memory_is_shared_between_mapping_and_release(machine: SimMachine):
    """Physical memory lives until it is released and unmapped everywhere; two mappings show the same bytes."""
    program = """
start()
MIB = 1 << 20
prop = cuda.CUmemAllocationProp()
prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
free = lambda: check(cuda.cuMemGetInfo())[0] // MIB
before = free()
handle = check(cuda.cuMemCreate(2 * MIB, prop, 0))
base = int(check(cuda.cuMemAddressReserve(4 * MIB, 0, 0, 0)))
for at in (base, base + 2 * MIB):
    check(cuda.cuMemMap(at, 2 * MIB, 0, handle, 0))
check(cuda.cuMemRelease(handle))
check(cuda.cuMemsetD8(base, 5, 100))
copy = bytearray(100)
check(cuda.cuMemcpyDtoH(copy, base + 2 * MIB, 100))
print(bytes(copy) == bytes([5]) * 100, before - free())
check(cuda.cuMemUnmap(base, 2 * MIB))
print(before - free())
check(cuda.cuMemUnmap(base + 2 * MIB, 2 * MIB))
print(before - free())
"""
    assert run_python(machine, program).split() == ["True", "2", "2", "0"]


def test_a_large_card_costs_no_memory_of_the_host(tmp_path: Path):
    """Allocations are backed when they are touched, so a card may be larger than the host."""
    machine = SimMachine(tmp_path / "large", [SimCard(memory_mib=143771, reserved_mib=771)])
    machine.create()
    answers = ask(machine, "alloc", 140000 * MIB, "info")
    assert answers[0]["result"] == 0
    assert answers[1] == {"do": "info", "result": 0, "free": 3000 * MIB, "total": 143000 * MIB}


def test_contexts_cost_what_the_scenario_says(tmp_path: Path):
    """A context's own memory is charged while it lives."""
    machine = SimMachine(tmp_path / "costly", [SimCard(context_mib=300)])
    machine.create()
    assert ask(machine, "info")[0]["free"] == (16384 - 300) * MIB
    assert machine.memory_used(machine.cards[0].uuid) == 0


def test_what_is_freed_twice_or_unknown_is_an_invalid_value(machine: SimMachine):
    """Nothing crashes on garbage: pointers, handles, sizes."""
    program = """
start()
p = check(cuda.cuMemAlloc(1000))
check(cuda.cuMemFree(p))
print(*[int(answer[0]) for answer in (
    cuda.cuMemFree(p), cuda.cuMemFree(12345), cuda.cuMemRelease(99), cuda.cuMemAlloc(0),
    cuda.cuStreamSynchronize(cuda.CUstream(4096)), cuda.cuEventQuery(cuda.CUevent(8)),
    cuda.cuModuleUnload(cuda.CUmodule(77)), cuda.cuMemUnmap(0, 1 << 21), cuda.cuArrayDestroy(cuda.CUarray(5)),
)])
"""
    assert run_python(machine, program).split() == ["1", "1", "1", "1", "400", "400", "400", "1", "400"]


def test_nothing_is_left_of_the_program_before_an_exec(machine: SimMachine):
    """The process lives on under its number and start time, but its memory was that of the old program."""
    program = """
import os
start()
if len(sys.argv) == 1:
    check(cuda.cuMemAlloc(64 << 20))
    os.execv(sys.executable, [*sys.orig_argv, "again"])
free, total = check(cuda.cuMemGetInfo())
print(total - free)
"""
    assert run_python(machine, program) == "0\n"
