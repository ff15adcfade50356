"""Managed memory that may be larger than the slice: the card holds no more of it, whatever the program asks for."""

import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Enforcement, read_control, update_control
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import INVALID_VALUE, OUT, OUT_OF_MEMORY, SUCCESS, Shell, library, program, two_cards
from tests.native.tenants import Tenant, truth, used
from tests.native.test_shim_managed import HINTS, place

MIB = 1 << 20
BLOCK = 2 * MIB
SLICE, LARGE = 64 * MIB, 96 * MIB
READ_MOSTLY, UNSET_READ_MOSTLY, PREFERRED, UNSET_PREFERRED, ACCESSED, UNSET_ACCESSED = range(1, 7)
PREFERRED_LOCATION = 2
HERE, HOST, NOWHERE = 0, -1, -2
NON_BLOCKING, GLOBAL, RELAXED, RELEASE_THRESHOLD = 1, 0, 2, 4

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def resident(machine: SimMachine, tenant: TenantMaker) -> Tenant:
    """A slice of 64 MiB of the first card whose managed memory may be larger, and as much of the second card."""
    return tenant(limits=[CardLimit(card.uuid, SLICE, managed_resident=True) for card in machine.cards])


@pytest.fixture
def shell(resident: Tenant) -> Iterator[Shell]:
    """A program of it."""
    with Shell(resident).begin() as one:
        yield one


def touch(shell: Shell, *allocations: int) -> None:
    """Has the card use all of them: so the simulated driver takes what any kernel touches."""
    for allocation in allocations:
        shell.ok("cuMemsetD8_v2", allocation, 1, 1)
    shell.ok("cuCtxSynchronize")


def kept(shell: Shell, address: int) -> int:
    """Where a block is preferred to be: the host, or nowhere in particular."""
    status, word = shell.call("cuMemRangeGetAttribute", OUT, 4, PREFERRED_LOCATION, address, 1)
    assert status == SUCCESS
    return int(struct.unpack("<i", struct.pack("<I", word & 0xFFFFFFFF))[0])


def free_to_come(shell: Shell, address: int, size: int) -> list[int]:
    """The numbers of those blocks of 2 MiB that are not kept on the host."""
    return [n for n in range(size // BLOCK) if kept(shell, address + n * BLOCK) != HOST]


def test_managed_memory_may_be_larger_than_the_slice(resident: Tenant, shell: Shell):
    """The card holds the slice, however much is touched, and all of it is charged."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    assert used(resident) == SLICE
    touch(shell, memory)
    assert used(resident) == truth(resident) == SLICE
    assert shell.memory_info() == (0, SLICE)
    assert resident.usage().cards[0].allocations_denied == 0
    shell.ok("cuMemFree_v2", memory)
    assert used(resident) == truth(resident) == 0


def test_by_default_it_may_not(machine: SimMachine, tenant: TenantMaker):
    """Every byte is charged."""
    with Shell(tenant(limits=[CardLimit(machine.cards[0].uuid, SLICE)])).begin() as shell:
        assert shell.call("cuMemAllocManaged", OUT, LARGE, 1)[0] == OUT_OF_MEMORY


def test_what_fits_is_charged_and_free_to_come(resident: Tenant, shell: Shell):
    """As it is by default; of the last block whole pages of 64 KiB."""
    memory = shell.ok("cuMemAllocManaged", OUT, 3 * BLOCK + 1, 1)
    assert used(resident) == 3 * BLOCK + (64 << 10)
    assert kept(shell, memory + 3 * BLOCK) == NOWHERE
    touch(shell, memory)
    assert used(resident) == truth(resident)


def test_several_allocations_share_the_slice(resident: Tenant, shell: Shell):
    """Those that come later find less of it, or nothing."""
    first, second, third = (
        shell.ok("cuMemAllocManaged", OUT, size, 1) for size in (SLICE // 2, LARGE, LARGE)
    )
    touch(shell, third, second, first, second, third)
    assert used(resident) == truth(resident) == SLICE
    shell.ok("cuMemFree_v2", first)
    touch(shell, second, third)
    assert used(resident) == truth(resident) == SLICE // 2


FREES: dict[str, Callable[[Shell, int], object]] = {
    "cuMemFree_v2": lambda s, block: s.ok("cuMemFree_v2", block),
    "cuMemFreeAsync": lambda s, block: s.ok("cuMemFreeAsync", block, 0),
}


@pytest.mark.parametrize("kind", ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged of one block"])
def test_other_memory_takes_the_room_of_managed_memory(resident: Tenant, shell: Shell, kind: str):
    """As on a card of its own: blocks of managed memory go to the host for it, and their contents stay."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    shell.ok("cuMemsetD8_v2", memory, 7, LARGE)
    touch(shell, memory)
    size = {"cuMemAllocManaged of one block": BLOCK}.get(kind, SLICE // 2)
    arguments = {"cuMemAllocAsync": [0]}.get(kind, [1] if size == BLOCK else [])
    other = shell.ok(kind.split(maxsplit=1)[0], OUT, size, *arguments)
    assert used(resident) == SLICE
    touch(shell, memory, other)
    assert truth(resident) <= SLICE
    assert free_to_come(shell, memory, LARGE) == [*range((SLICE - size) // BLOCK)]
    answer = shell.call("cuMemcpyDtoH_v2", OUT, memory + SLICE - 8, 8)
    assert answer == (SUCCESS, int.from_bytes(b"\7" * 8))


def test_no_block_goes_to_the_host_for_what_would_not_fit_all_the_same(resident: Tenant, shell: Shell):
    """A request that is larger than the slice changes nothing, nor does one that plain memory leaves no room for."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    assert shell.call("cuMemAlloc_v2", OUT, SLICE + 1)[0] == OUT_OF_MEMORY
    assert used(resident) == SLICE
    shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)
    assert shell.call("cuMemAlloc_v2", OUT, SLICE // 2 + 1)[0] == OUT_OF_MEMORY
    assert len(free_to_come(shell, memory, LARGE)) == SLICE // 2 // BLOCK
    assert resident.usage().cards[0].allocations_denied == 2


@pytest.mark.parametrize("hint", HINTS)
def test_a_prefetch_brings_what_it_names_in_the_stead_of_what_was_not_asked_for(
    resident: Tenant, shell: Shell, hint: str
):
    """The end of a pool that the slice does not hold comes to the card, and as much else leaves it."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    touch(shell, memory)
    HINTS[hint](shell, memory + SLICE, LARGE - SLICE, HERE)
    shell.ok("cuCtxSynchronize")
    touch(shell, memory)
    assert used(resident) == truth(resident) == SLICE
    expected = [*range(SLICE // 2 // BLOCK), *range(SLICE // BLOCK, LARGE // BLOCK)]
    assert free_to_come(shell, memory, LARGE) == expected


@pytest.mark.parametrize("hint", HINTS)
def test_a_prefetch_of_more_than_the_slice_brings_the_slice(resident: Tenant, shell: Shell, hint: str):
    """It is a hint: what does not fit stays where it is."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    HINTS[hint](shell, memory, LARGE, HERE)
    touch(shell, memory)
    assert used(resident) == truth(resident) == SLICE
    assert len(free_to_come(shell, memory, LARGE)) == SLICE // BLOCK


def test_what_was_prefetched_to_the_host_leaves_first(resident: Tenant, shell: Shell):
    """The program has said that it does not need it on the card."""
    memory = shell.ok("cuMemAllocManaged", OUT, SLICE, 1)
    shell.ok("cuMemPrefetchAsync", memory, SLICE // 2, HOST & 0xFFFFFFFF, 0)
    shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)
    assert free_to_come(shell, memory, SLICE) == [*range(SLICE // 2 // BLOCK, SLICE // BLOCK)]


ADVICE: dict[str, Callable[[Shell, int], object]] = {
    "prefers the card": lambda s, m: s.ok("cuMemAdvise", m, LARGE, PREFERRED, HERE),
    "prefers the card, v2": lambda s, m: s.ok("cuMemAdvise_v2", m, LARGE, PREFERRED, place(HERE)),
    "prefers nothing": lambda s, m: s.ok("cuMemAdvise", m, LARGE, UNSET_PREFERRED, HERE),
    "prefers nothing and is not accessed": lambda s, m: (
        s.ok("cuMemAdvise", m, LARGE, UNSET_PREFERRED, HERE),
        s.ok("cuMemAdvise_v2", m, LARGE, UNSET_ACCESSED, place(HERE)),
    ),
    "is not accessed": lambda s, m: s.ok("cuMemAdvise", m, LARGE, UNSET_ACCESSED, HERE),
    "prefers the other card": lambda s, m: (
        s.ok("cuMemAdvise", m, LARGE, PREFERRED, 1),
        s.ok("cuMemAdvise", m, LARGE, UNSET_ACCESSED, HERE),
    ),
    "is mostly read": lambda s, m: s.ok("cuMemAdvise_v2", m, LARGE, READ_MOSTLY, place(HERE)),
    "is read and accessed": lambda s, m: (
        s.ok("cuMemAdvise", m, LARGE, READ_MOSTLY, HERE),
        s.ok("cuMemAdvise", m, LARGE, ACCESSED, HERE),
        s.ok("cuMemAdvise", m, LARGE, UNSET_READ_MOSTLY, HERE),
    ),
}


@pytest.mark.parametrize("advice", ADVICE)
def test_no_advice_brings_more_to_the_card_than_the_slice_holds(resident: Tenant, shell: Shell, advice: str):
    """Whatever the program says of its memory; nor does it when room for other memory was made."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    ADVICE[advice](shell, memory)
    touch(shell, memory)
    assert truth(resident) <= used(resident) == SLICE
    shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)
    touch(shell, memory)
    assert truth(resident) <= used(resident) == SLICE


def test_a_preferred_card_is_asking_for_it(resident: Tenant, shell: Shell):
    """Like a prefetch, and it comes when it is used."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    shell.ok("cuMemAdvise", memory + SLICE, LARGE - SLICE, PREFERRED, HERE)
    assert kept(shell, memory + SLICE) == HERE
    touch(shell, memory)
    assert used(resident) == truth(resident) == SLICE


def test_pools_give_back_what_they_hold_idle(resident: Tenant, shell: Shell):
    """Before anything of an allocation is kept on the host."""
    (pool,) = shell.call("cuDeviceGetDefaultMemPool", OUT, 0)[1:]
    shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, "x" + "ff" * 8)
    shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, SLICE // 2, 0), 0)
    shell.ok("cuCtxSynchronize")
    assert used(resident) == SLICE // 2
    memory = shell.ok("cuMemAllocManaged", OUT, SLICE, 1)
    assert len(free_to_come(shell, memory, SLICE)) == SLICE // BLOCK


def test_what_is_on_its_way_to_the_card_is_not_taken_for_left(resident: Tenant, shell: Shell):
    """A prefetch behind something that waits comes after whatever was made room for meanwhile."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    stream, word = shell.ok("cuStreamCreate", OUT, NON_BLOCKING), shell.ok("cuMemAllocManaged", OUT, 4, 1)
    shell.ok("cuStreamWaitValue32", stream, word, 1, 1)
    shell.ok("cuMemPrefetchAsync", memory, SLICE - 8 * BLOCK, HERE, stream)
    assert shell.call("cuMemAlloc_v2", OUT, SLICE // 2)[0] == OUT_OF_MEMORY
    shell.ok("cuMemAlloc_v2", OUT, 4 * BLOCK)
    shell.ok("cuDevicePrimaryCtxRetain", OUT, 0)
    shell.ok("cuDevicePrimaryCtxRelease_v2", 0)
    assert shell.call("cuMemAlloc_v2", OUT, SLICE // 2)[0] == OUT_OF_MEMORY
    shell.ok("cuStreamWriteValue32", 0, word, 1, 0)
    shell.ok("cuStreamSynchronize", stream)
    touch(shell, memory)
    assert truth(resident) <= used(resident) <= SLICE
    shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)


def test_a_hint_beyond_an_allocation_is_the_drivers_to_refuse(shell: Shell):
    """As without a slice."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    for size in (0, LARGE + BLOCK):
        assert shell.call("cuMemPrefetchAsync", memory, size, HERE, 0)[0] == INVALID_VALUE


def test_a_prefetch_goes_to_another_card_that_holds_all(resident: Tenant, shell: Shell):
    """There it is charged in full, until it is freed; what that card does not hold stays."""
    small, large = (shell.ok("cuMemAllocManaged", OUT, size, 1) for size in (SLICE, LARGE))
    there = resident.usage
    shell.ok("cuMemPrefetchAsync", large, LARGE, 1, 0)
    assert there().cards[1].memory_used_bytes == 0
    shell.ok("cuMemPrefetchAsync", small, SLICE, 1, 0)
    assert there().cards[1].memory_used_bytes == SLICE
    shell.ok("cuMemFree_v2", small)
    assert there().cards[1].memory_used_bytes == 0


@pytest.mark.parametrize("free", FREES)
def test_any_free_gives_back_what_is_charged_at_that_moment(resident: Tenant, shell: Shell, free: str):
    """After blocks have left, and after others have come."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    other = shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)
    shell.ok("cuMemPrefetchAsync", memory + SLICE, BLOCK, HERE, 0)
    FREES[free](shell, memory)
    shell.ok("cuCtxSynchronize")
    assert used(resident) == truth(resident) == SLICE // 2
    assert shell.call("cuMemFree_v2", memory)[0] == INVALID_VALUE
    shell.ok("cuMemFree_v2", other)
    assert used(resident) == 0


def test_it_ends_with_its_context(resident: Tenant, shell: Shell):
    """With prefetches in its streams, and another context's memory stays."""
    stays = shell.ok("cuMemAllocManaged", OUT, 4 * BLOCK, 1)
    context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    shell.ok("cuMemPrefetchAsync", stays, 4 * BLOCK, HERE, 0)
    shell.ok("cuMemPrefetchAsync", memory + SLICE, 4 * BLOCK, HERE, 0)
    shell.ok("cuCtxDestroy_v2", context)
    assert used(resident) == 4 * BLOCK
    shell.ok("cuMemAlloc_v2", OUT, SLICE)
    assert used(resident) == SLICE


def test_processes_share_the_slice(resident: Tenant, shell: Shell):
    """What one has free to come the other cannot have, and what a killed one had is there for the next."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    with Shell(resident).begin() as other:
        assert other.call("cuMemAlloc_v2", OUT, BLOCK)[0] == OUT_OF_MEMORY
        on_host = other.ok("cuMemAllocManaged", OUT, LARGE, 1)
        touch(other, on_host)
        touch(shell, memory)
        assert truth(resident) == used(resident) == SLICE
        shell.process.kill()
        shell.process.wait()
        other.ok("cuMemPrefetchAsync", on_host, LARGE, HERE, 0)
        touch(other, on_host)
        assert truth(resident) == used(resident) == SLICE


def test_a_lower_limit_holds_at_the_next_request(machine: SimMachine, resident: Tenant, shell: Shell):
    """Blocks beyond it leave for what still fits."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    control = read_control(resident.control)
    lower = tuple(replace(card, memory_bytes=SLICE // 2) for card in control.cards)
    update_control(resident.control, replace(control, cards=lower))
    shell.ok("cuMemAlloc_v2", OUT, 4 * BLOCK)
    touch(shell, memory)
    assert used(resident) == SLICE // 2
    assert truth(resident) <= SLICE // 2


def test_the_agents_measurement_counts(resident: Tenant, shell: Shell):
    """What the driver has on the card beyond what is charged leaves less for managed memory."""
    control = read_control(resident.control)
    more = tuple(replace(card, adjust_bytes=SLICE // 2) for card in control.cards)
    update_control(resident.control, replace(control, cards=more))
    shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    assert used(resident) == SLICE // 2


def test_where_the_driver_takes_no_advice_managed_memory_is_charged_in_full(
    tenant: TenantMaker, tmp_path: Path
):
    """Nothing would keep it from the card: what fits as a whole is had, and nothing else."""
    own = tenant(limits=[CardLimit("GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", SLICE, managed_resident=True)])
    shutil.copyfile(library("sparse_driver"), tmp_path / "libcuda.so.1")
    with Shell(own, LD_LIBRARY_PATH=str(tmp_path)).begin() as shell:
        assert shell.call("cuMemAllocManaged", OUT, LARGE, 1)[0] == OUT_OF_MEMORY
        assert (used(own), own.usage().cards[0].allocations_denied) == (0, 1)
        memory = shell.ok("cuMemAllocManaged", OUT, SLICE, 1)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemFree_v2", memory)
        assert used(own) == 0


def test_where_limits_are_only_observed_all_may_come(machine: SimMachine, resident: Tenant, shell: Shell):
    """As any memory may."""
    control = read_control(resident.control)
    update_control(resident.control, replace(control, enforcement=Enforcement.OBSERVE))
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    touch(shell, memory)
    assert used(resident) == truth(resident) == LARGE


def test_a_capture_is_left_alone(resident: Tenant, shell: Shell):
    """A prefetch in it brings nothing, and room is made in a stream of the interceptor's own."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    stream = shell.ok("cuStreamCreate", OUT, NON_BLOCKING)
    shell.ok("cuStreamBeginCapture_v2", stream, RELAXED)
    shell.ok("cuMemPrefetchAsync", memory + SLICE, LARGE - SLICE, HERE, stream)
    assert free_to_come(shell, memory, LARGE) == [*range(SLICE // BLOCK)]
    shell.ok("cuMemAlloc_v2", OUT, SLICE // 2)
    shell.ok("cuStreamEndCapture", stream, OUT)
    assert used(resident) == SLICE


def test_nor_is_it_while_a_capture_forbids_to_look(resident: Tenant, shell: Shell):
    """A capture that covers all threads is not spoilt by it, and what is on its way is not taken for there."""
    memory, word = shell.ok("cuMemAllocManaged", OUT, LARGE, 1), shell.ok("cuMemAllocManaged", OUT, 4, 1)
    waiting, captured = (shell.ok("cuStreamCreate", OUT, NON_BLOCKING) for _ in range(2))
    shell.ok("cuStreamWaitValue32", waiting, word, 1, 1)
    shell.ok("cuStreamBeginCapture_v2", captured, GLOBAL)
    for _ in range(2):
        shell.ok("cuMemPrefetchAsync", memory, SLICE - 8 * BLOCK, HERE, waiting)
    shell.ok("cuMemAdvise", memory + SLICE, LARGE - SLICE, PREFERRED, HERE)
    shell.ok("cuStreamEndCapture", captured, OUT)
    shell.ok("cuStreamWriteValue32", 0, word, 1, 0)
    shell.ok("cuStreamSynchronize", waiting)
    touch(shell, memory)
    assert truth(resident) <= used(resident) <= SLICE


def test_what_is_freed_behind_work_that_waits_stays_where_it_is(resident: Tenant, shell: Shell):
    """Until its stream comes to it the memory is there, and advice on it brings no more to the card."""
    memory, word = shell.ok("cuMemAllocManaged", OUT, LARGE, 1), shell.ok("cuMemAllocManaged", OUT, 4, 1)
    stream = shell.ok("cuStreamCreate", OUT, NON_BLOCKING)
    shell.ok("cuStreamWaitValue32", stream, word, 1, 1)
    shell.ok("cuMemFreeAsync", memory, stream)
    shell.ok("cuMemAdvise", memory, LARGE, UNSET_PREFERRED, HERE)
    shell.ok("cuMemAdvise", memory, LARGE, UNSET_ACCESSED, HERE)
    shell.ok("cuMemsetD8_v2", memory, 1, 1)
    shell.ok("cuStreamSynchronize", 0)
    assert truth(resident) <= used(resident) <= SLICE
    shell.ok("cuStreamWriteValue32", 0, word, 1, 0)
    shell.ok("cuStreamSynchronize", stream)
    shell.ok("cuMemFree_v2", word)
    assert used(resident) == truth(resident) == 0


def test_its_address_may_be_given_out_again(resident: Tenant, shell: Shell):
    """The new allocation is what hints and frees are about."""
    memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    stream = shell.ok("cuStreamCreate", OUT, NON_BLOCKING)
    for _ in range(8):
        shell.ok("cuMemFreeAsync", memory, stream)
        memory = shell.ok("cuMemAllocManaged", OUT, LARGE, 1)
    shell.ok("cuStreamSynchronize", stream)
    shell.ok("cuMemPrefetchAsync", memory, LARGE, HERE, stream)
    touch(shell, memory)
    assert used(resident) == truth(resident) == SLICE
    shell.ok("cuMemFree_v2", memory)
    assert used(resident) == truth(resident) == 0


def test_no_advice_comes_in_while_an_allocation_is_made(resident: Tenant):
    """Nor does a prefetch, by a list of ranges that changes while it is read."""
    command = [program("resident_guess"), "10000", str(LARGE), str(SLICE)]
    escaped = subprocess.run(command, env=resident.env(), stdout=subprocess.PIPE, text=True, check=True)
    assert int(escaped.stdout) == 0
    assert used(resident) == truth(resident) == 0


def test_threads_that_do_all_this_at_once_have_no_more_than_the_slice(resident: Tenant):
    """Whenever anybody looks; and nothing is left at the end."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    command = [program("resident_storm"), str(seed), "4", "150"]
    with subprocess.Popen(command, env=resident.env(), stdout=subprocess.PIPE, text=True) as storm:
        while storm.poll() is None:
            assert truth(resident) <= SLICE
            assert used(resident) <= SLICE
        assert storm.stdout is not None
        had, refused = map(int, storm.stdout.read().split())
    assert storm.returncode == 0
    assert had > refused
    assert used(resident) == truth(resident) == 0
