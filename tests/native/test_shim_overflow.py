"""What a burst tenant asks for beyond its grant goes to the host, and the card never holds more than the grant."""

import os
import signal
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from aliquot.libshim.control_page import CardLimit, read_control, update_control
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import INVALID_VALUE, OUT, OUT_OF_MEMORY, SUCCESS, Shell, two_cards
from tests.native.tenants import Tenant, truth

MIB = 1 << 20
GRANT, LIMIT = 64 * MIB, 256 * MIB
DEVICE_MEMORY = "x" + struct.pack("<iiii72x", 1, 0, 1, 0).hex()
IS_MANAGED, MEMORY_TYPE, HOST_POINTER = 8, 2, 4
OVERFLOW = 8

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def burst(machine: SimMachine, tenant: TenantMaker) -> Tenant:
    """A slice of 256 MiB with a grant of 64, and as much of the host as the slice."""
    return tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=GRANT, overflow_bytes=LIMIT)])


def used(slice_: Tenant) -> tuple[int, int]:
    """What the usage page says is in use: of the card, and of the host for it."""
    cards = slice_.usage().cards
    return cards[0].memory_used_bytes, cards[OVERFLOW].memory_used_bytes


WAYS = {
    "plain": lambda s, size: s.call("cuMemAlloc_v2", OUT, size),
    "pitched": lambda s, size: s.call("cuMemAllocPitch_v2", OUT, OUT, 512, size // 512, 4),
    "async": lambda s, size: s.call("cuMemAllocAsync", OUT, size, 0),
    "async, per thread": lambda s, size: s.call("cuMemAllocAsync_ptsz", OUT, size, 0),
    "own pool": lambda s, size: s.call(
        "cuMemAllocFromPoolAsync", OUT, size, s.ok("cuMemPoolCreate", OUT, DEVICE_MEMORY), 0
    ),
}
FREES = {
    "cuMemFree_v2": lambda s, block: s.ok("cuMemFree_v2", block),
    "cuMemFreeAsync": lambda s, block: s.ok("cuMemFreeAsync", block, 0),
    "cuMemFreeAsync_ptsz": lambda s, block: s.ok("cuMemFreeAsync_ptsz", block, 0),
    "another stream": lambda s, block: s.ok("cuMemFreeAsync", block, s.ok("cuStreamCreate", OUT, 1)),
}


@pytest.mark.parametrize("free", FREES)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_grant_does_not_hold_goes_to_the_host(burst: Tenant, way: str, free: str):
    """By every way to allocate and to free; nothing of it is on the card, and nothing is left at the end."""
    with Shell(burst).begin() as shell:
        first = shell.ok("cuMemAlloc_v2", OUT, GRANT)
        status, block, *_ = WAYS[way](shell, GRANT)
        assert status == SUCCESS
        assert used(burst) == (GRANT, GRANT)
        shell.ok("cuMemsetD8_v2", block, 1, GRANT)
        shell.ok("cuCtxSynchronize")
        assert truth(burst) == GRANT
        assert burst.usage().cards[0].allocations_denied == 0
        FREES[free](shell, block)
        shell.ok("cuCtxSynchronize")
        assert used(burst) == (GRANT, 0)
        assert shell.call("cuMemFree_v2", block)[0] == INVALID_VALUE
        shell.ok("cuMemFree_v2", first)
        assert used(burst) == (0, 0)


def test_the_slice_bounds_what_overflows(burst: Tenant):
    """Card and host together hold the slice, and no byte more."""
    with Shell(burst).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - GRANT)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert burst.usage().cards[0].allocations_denied == 1


def test_what_is_on_the_host_stays_part_of_the_slice(machine: SimMachine, burst: Tenant):
    """A grant that is raised later gives the card's part no more than the host's leaves, and the program is told so."""
    with Shell(burst).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, 2 * GRANT)
        raised = CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=LIMIT, overflow_bytes=0)
        update_control(burst.control, replace(read_control(burst.control), cards=(raised,)))
        assert shell.memory_info() == (GRANT, LIMIT)
        assert shell.call("cuMemAlloc_v2", OUT, GRANT + 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        assert shell.memory_info() == (0, LIMIT)
        assert used(burst) == (2 * GRANT, 2 * GRANT)


def test_the_hosts_part_has_a_limit_of_its_own(machine: SimMachine, tenant: TenantMaker):
    """What it does not hold is refused."""
    limits = [CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=GRANT, overflow_bytes=MIB)]
    with Shell(tenant(limits=limits)).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


def test_without_the_agents_leave_nothing_overflows(machine: SimMachine, tenant: TenantMaker):
    """Beyond the grant is out of memory."""
    with Shell(tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=GRANT)])).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


def test_the_program_sees_what_it_asked_for(burst: Tenant):
    """Not managed, not reachable from the host, memory of the device."""
    with Shell(burst).begin() as shell:
        plain = shell.ok("cuMemAlloc_v2", OUT, GRANT)
        overflown = shell.ok("cuMemAlloc_v2", OUT, GRANT)
        for attribute in (IS_MANAGED, MEMORY_TYPE, HOST_POINTER):
            answers = [
                shell.call("cuPointerGetAttribute", OUT, attribute, block + 512)
                for block in (plain, overflown)
            ]
            assert answers[0] == answers[1]
        assert shell.call("cuMemPrefetchAsync", overflown, GRANT, 0, 0)[0] == INVALID_VALUE
        assert truth(burst) == GRANT


ATTRIBUTES = """
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]

cuda.cuInit(0)
check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
Attribute = cuda.CUpointer_attribute
wanted = [Attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, Attribute.CU_POINTER_ATTRIBUTE_HOST_POINTER]
answers = []
for _ in range(2):
    memory = check(cuda.cuMemAlloc(64 << 20))
    answers.append([int(one) for one in check(cuda.cuPointerGetAttributes(2, wanted, memory))])
print(answers[0] == answers[1], answers)
"""


def test_the_program_sees_what_it_asked_for_in_one_question(burst: Tenant):
    """Several attributes at a time are hidden like one."""
    assert burst.run(ATTRIBUTES).startswith("True")
    assert used(burst) == (0, 0)


def test_what_the_killed_had_on_the_host_is_there_for_the_next(burst: Tenant):
    """The account of the host's memory is as safe as that of the card's."""
    with Shell(burst).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - GRANT)
        os.kill(shell.pid, signal.SIGKILL)
        shell.process.wait()
    with Shell(burst).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - GRANT)


def test_what_overflowed_ends_with_its_context(burst: Tenant):
    """Also what was freed in stream order and not looked at since."""
    with Shell(burst).begin() as shell:
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        shell.ok("cuMemFreeAsync", shell.ok("cuMemAlloc_v2", OUT, MIB), 0)
        shell.ok("cuCtxDestroy_v2", context)
        assert used(burst) == (0, 0)


NON_BLOCKING = 1
UNSET_PREFERRED, UNSET_ACCESSED, HERE = 4, 6, 0


@pytest.mark.parametrize("freed", [False, True])
def test_no_advice_brings_to_the_card_what_overflowed(burst: Tenant, freed: bool):
    """Nor where it was freed in a stream that has not come to it: until then the memory is there."""
    with Shell(burst).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, GRANT)
        block, word = shell.ok("cuMemAlloc_v2", OUT, GRANT), shell.ok("cuMemHostAlloc", OUT, 4, 2)
        stream = shell.ok("cuStreamCreate", OUT, NON_BLOCKING)
        if freed:
            shell.ok("cuStreamWaitValue32", stream, word, 1, 1)
            shell.ok("cuMemFreeAsync", block, stream)
        for advice in (UNSET_PREFERRED, UNSET_ACCESSED):
            assert shell.call("cuMemAdvise", block, GRANT, advice, HERE)[0] == INVALID_VALUE
        shell.ok("cuMemsetD8_v2", block, 1, GRANT)
        shell.ok("cuStreamSynchronize", 0)
        assert truth(burst) <= GRANT
        if freed:
            shell.ok("cuStreamWriteValue32", 0, word, 1, 0)
            shell.ok("cuStreamSynchronize", stream)
        assert used(burst) == (GRANT, 0 if freed else GRANT)


def test_what_has_the_address_of_memory_that_overflowed_takes_advice(burst: Tenant):
    """It is managed memory like any other."""
    with Shell(burst).begin() as shell:
        plain = shell.ok("cuMemAlloc_v2", OUT, GRANT)
        for free in ("cuMemFree_v2", "cuMemFreeAsync"):
            block = shell.ok("cuMemAlloc_v2", OUT, MIB)
            shell.ok(*((free, block) if free == "cuMemFree_v2" else (free, block, 0)))
            shell.ok("cuStreamSynchronize", 0)
            shell.ok("cuMemFree_v2", plain)
            managed = shell.ok("cuMemAllocManaged", OUT, MIB, 1)
            assert shell.call("cuMemAdvise", managed, MIB, UNSET_PREFERRED, HERE)[0] == SUCCESS
            shell.ok("cuMemFree_v2", managed)
            plain = shell.ok("cuMemAlloc_v2", OUT, GRANT)
