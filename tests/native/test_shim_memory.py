"""Every way to take device memory is held to the slice, every legal way to free it gives it back."""

import struct
from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import INVALID_VALUE, OUT, OUT_OF_MEMORY, SUCCESS, Shell, two_cards
from tests.native.tenants import Tenant, used

MIB = 1 << 20
LIMIT = 64 * MIB
DEVICE, HOST, PINNED = 1, 2, 1

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def location(device: int = 0) -> str:
    """CUmemAllocationProp or CUmemPoolProps of plain memory on a device, as hex."""
    return "x" + struct.pack("<iiii72x", PINNED, 0, DEVICE, device).hex()


def array3d(width: int, height: int, depth: int, channels: int = 4, flags: int = 0) -> str:
    """CUDA_ARRAY3D_DESCRIPTOR of 32-bit floats, as hex."""
    return "x" + struct.pack("<QQQiII4x", width, height, depth, 0x20, channels, flags).hex()


def array2d(width: int, height: int) -> str:
    """CUDA_ARRAY_DESCRIPTOR of four 32-bit floats, as hex."""
    return "x" + struct.pack("<QQiI", width, height, 0x20, 4).hex()


Take = Callable[[Shell, int], tuple[int, ...]]


def rows(entry: str) -> Take:
    """An allocation by pitch whose rows need no padding."""

    def take(shell: Shell, size: int) -> tuple[int, ...]:
        return shell.call(entry, OUT, OUT, 512, size // 512, 4)

    return take


def images(shell: Shell, size: int) -> tuple[int, ...]:
    """A CUDA array of four floats a texel."""
    return shell.call("cuArrayCreate_v2", OUT, array2d(size // 16 // 256, 256))


def volumes(shell: Shell, size: int) -> tuple[int, ...]:
    """The same with depth."""
    return shell.call("cuArray3DCreate_v2", OUT, array3d(size // 16 // 256, 16, 16))


EXACT: dict[str, tuple[Take, str]] = {
    "cuMemAlloc": (lambda s, n: s.call("cuMemAlloc", OUT, n), "cuMemFree"),
    "cuMemAlloc_v2": (lambda s, n: s.call("cuMemAlloc_v2", OUT, n), "cuMemFree_v2"),
    "cuMemAllocManaged": (lambda s, n: s.call("cuMemAllocManaged", OUT, n, 1), "cuMemFree_v2"),
    "cuMemAllocPitch": (rows("cuMemAllocPitch"), "cuMemFree"),
    "cuMemAllocPitch_v2": (rows("cuMemAllocPitch_v2"), "cuMemFree_v2"),
    "cuMemCreate": (lambda s, n: s.call("cuMemCreate", OUT, n, location(), 0), "cuMemRelease"),
    "cuArrayCreate_v2": (images, "cuArrayDestroy"),
    "cuArray3DCreate_v2": (volumes, "cuArrayDestroy"),
}


@pytest.mark.parametrize("family", EXACT)
def test_a_family_gets_its_slice_to_the_byte_and_no_more(slice64: Tenant, family: str):
    """The whole slice fits; then 1 byte more is refused; freed, it fits again."""
    take, free = EXACT[family]
    with Shell(slice64).begin() as shell:
        for _ in range(2):
            status, block = take(shell, LIMIT)[:2]
            assert status == SUCCESS
            assert used(slice64) == LIMIT
            assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
            assert take(shell, 2 * MIB)[0] == OUT_OF_MEMORY
            assert shell.call(free, block)[0] == SUCCESS
            assert used(slice64) == 0


@pytest.mark.parametrize("family", EXACT)
def test_what_does_not_fit_never_reaches_the_driver(slice64: Tenant, family: str):
    """The card's own count stays where it was."""
    take, _ = EXACT[family]
    card = slice64.machine.cards[0].uuid
    with Shell(slice64).begin() as shell:
        before = slice64.machine.memory_used(card)
        assert take(shell, LIMIT + 2 * MIB)[0] == OUT_OF_MEMORY
        assert slice64.machine.memory_used(card) == before
        assert slice64.usage().cards[0].allocations_denied == 1
        assert used(slice64) == 0


@pytest.mark.parametrize("entry", ["cuMemAllocAsync", "cuMemAllocAsync_ptsz"])
def test_stream_ordered_memory_is_held_to_the_slice(slice64: Tenant, entry: str):
    """It is charged by what the pool reserves, and given back when the pool has shrunk."""
    with Shell(slice64).begin() as shell:
        block = shell.ok(entry, OUT, LIMIT, 0)
        assert used(slice64) == LIMIT
        assert shell.call(entry, OUT, 1, 0)[0] == OUT_OF_MEMORY
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemFreeAsync", block, 0)
        shell.ok("cuStreamSynchronize", 0)
        assert used(slice64) == 0


@pytest.mark.parametrize("entry", ["cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"])
def test_memory_of_the_programs_own_pools_is_held_to_the_slice(slice64: Tenant, entry: str):
    """Own pools count like the default one, and a destroyed one gives back what it held."""
    with Shell(slice64).begin() as shell:
        pool = shell.ok("cuMemPoolCreate", OUT, location())
        block = shell.ok(entry, OUT, LIMIT, pool, 0)
        assert shell.call(entry, OUT, 1, pool, 0)[0] == OUT_OF_MEMORY
        shell.ok("cuMemPoolDestroy", pool)
        assert used(slice64) == LIMIT
        shell.ok("cuMemFreeAsync", block, 0)
        shell.ok("cuCtxSynchronize")
        assert used(slice64) == 0


def test_what_a_pool_keeps_is_charged_until_it_is_needed(slice64: Tenant):
    """A pool told to keep its memory holds it; an allocation that needs it makes the pool give it back."""
    release_threshold = 4
    with Shell(slice64).begin() as shell:
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        shell.ok("cuMemPoolSetAttribute", pool, release_threshold, "x" + (LIMIT.to_bytes(8, "little")).hex())
        shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, LIMIT, 0), 0)
        shell.ok("cuStreamSynchronize", 0)
        assert used(slice64) == LIMIT
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice64) == LIMIT
        assert slice64.usage().cards[0].allocations_denied == 0


def test_a_pool_reuses_what_it_keeps_without_taking_more(slice64: Tenant):
    """A program whose pool holds the whole slice can allocate from it again and again."""
    release_threshold = 4
    with Shell(slice64).begin() as shell:
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        shell.ok("cuMemPoolSetAttribute", pool, release_threshold, "x" + (LIMIT.to_bytes(8, "little")).hex())
        for _ in range(3):
            block = shell.ok("cuMemAllocAsync", OUT, LIMIT, 0)
            shell.ok("cuMemFreeAsync", block, 0)
            shell.ok("cuStreamSynchronize", 0)
            assert used(slice64) == LIMIT


def test_a_program_that_never_waits_gets_back_what_it_freed(slice64: Tenant):
    """Plain memory freed in stream order piles up neither on the account nor in our process."""
    with Shell(slice64).begin() as shell:
        for _ in range(1000):
            shell.ok("cuMemFreeAsync", shell.ok("cuMemAlloc_v2", OUT, 4096), 0)
        assert used(slice64) < 500 * 4096


PLAIN = {
    "cuMemAlloc_v2": lambda s: s.ok("cuMemAlloc_v2", OUT, LIMIT),
    "cuMemAllocManaged": lambda s: s.ok("cuMemAllocManaged", OUT, LIMIT, 1),
    "cuMemAllocPitch_v2": lambda s: s.ok("cuMemAllocPitch_v2", OUT, OUT, 512, LIMIT // 512, 4),
    "cuMemAllocAsync": lambda s: s.ok("cuMemAllocAsync", OUT, LIMIT, 0),
    "cuMemAllocAsync_ptsz": lambda s: s.ok("cuMemAllocAsync_ptsz", OUT, LIMIT, 0),
}
FREES = {
    "cuMemFree_v2": lambda s, block: s.call("cuMemFree_v2", block),
    "cuMemFreeAsync": lambda s, block: s.call("cuMemFreeAsync", block, 0),
    "cuMemFreeAsync_ptsz": lambda s, block: s.call("cuMemFreeAsync_ptsz", block, 0),
    "another thread": lambda s, block: s.call(".thread cuMemFree_v2", block),
}


@pytest.mark.parametrize("free", FREES)
@pytest.mark.parametrize("allocation", PLAIN)
def test_every_legal_free_gives_back_every_allocation(slice64: Tenant, allocation: str, free: str):
    """Whatever the driver frees is free in the slice; what it refuses to free stays charged."""
    with Shell(slice64).begin() as shell:
        block = PLAIN[allocation](shell)
        status = FREES[free](shell, block)[0]
        shell.ok("cuCtxSynchronize")
        assert used(slice64) == (0 if status == SUCCESS else LIMIT)
        if status == SUCCESS:
            shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        else:
            assert status == INVALID_VALUE
            shell.ok("cuMemFree_v2", block)
            assert used(slice64) == 0


def test_what_ends_with_its_context_is_given_back(slice64: Tenant):
    """Plain memory and arrays go with their context; what was made in another, or in none, stays."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        shell.ok("cuMemAlloc_v2", OUT, 4 * MIB)
        shell.ok("cuArrayCreate_v2", OUT, array2d(1024, 1024))
        shell.ok("cuMemCreate", OUT, 2 * MIB, location(), 0)
        assert used(slice64) == 23 * MIB
        shell.ok("cuCtxDestroy_v2", context)
        assert used(slice64) == 3 * MIB


@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"])
def test_what_ends_with_the_primary_context_is_given_back(slice64: Tenant, end: str):
    """Only its last release ends it; a reset does at once."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        if end.startswith("cuDevicePrimaryCtxRelease"):
            shell.ok("cuDevicePrimaryCtxRetain", OUT, 0)
            shell.ok(end, 0)
            assert used(slice64) == MIB
        shell.ok(end, 0)
        assert used(slice64) == 0


def test_freeing_what_is_not_ours_is_the_drivers_business(slice64: Tenant):
    """NULL, a wild pointer and a second free get the bare driver's answers."""
    with Shell(slice64).begin() as shell, Shell(slice64, bare=True).begin() as bare:
        for address in (0, 12345 << 20):
            assert shell.call("cuMemFree_v2", address) == bare.call("cuMemFree_v2", address)
        block = shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        shell.ok("cuMemFree_v2", block)
        assert shell.call("cuMemFree_v2", block)[0] == INVALID_VALUE
        assert used(slice64) == 0


def test_physical_memory_lives_until_released_and_unmapped(slice64: Tenant):
    """Two mappings, a retained handle: only the last of them gives the memory back."""
    half = LIMIT // 2
    with Shell(slice64).begin() as shell:
        handle = shell.ok("cuMemCreate", OUT, half, location(), 0)
        address = shell.ok("cuMemAddressReserve", OUT, LIMIT, 0, 0, 0)
        shell.ok("cuMemMap", address, half, 0, handle, 0)
        shell.ok("cuMemMap", address + half, half, 0, handle, 0)
        retained = shell.ok("cuMemRetainAllocationHandle", OUT, address)
        shell.ok("cuMemRelease", handle)
        shell.ok("cuMemRelease", retained)
        assert used(slice64) == half
        assert shell.call("cuMemAlloc_v2", OUT, half + 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemUnmap", address, half)
        assert used(slice64) == half
        shell.ok("cuMemUnmap", address + half, half)
        assert used(slice64) == 0
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_one_unmap_of_several_mappings_gives_all_back(slice64: Tenant):
    """Neighbouring mappings can be unmapped in one call."""
    part = LIMIT // 4
    with Shell(slice64).begin() as shell:
        address = shell.ok("cuMemAddressReserve", OUT, LIMIT, 0, 0, 0)
        for index in range(4):
            handle = shell.ok("cuMemCreate", OUT, part, location(), 0)
            shell.ok("cuMemMap", address + index * part, part, 0, handle, 0)
            shell.ok("cuMemRelease", handle)
        assert used(slice64) == LIMIT
        shell.ok("cuMemUnmap", address, LIMIT)
        assert used(slice64) == 0


def test_a_mipmapped_array_costs_all_its_levels(slice64: Tenant):
    """Two levels of a square image cost five quarters of the first."""
    side, texel = 1024, 16
    with Shell(slice64).begin() as shell:
        array = shell.ok("cuMipmappedArrayCreate", OUT, array3d(side, side, 0), 2)
        assert used(slice64) == side * side * texel * 5 // 4
        shell.ok("cuMipmappedArrayDestroy", array)
        assert used(slice64) == 0


@pytest.mark.parametrize("levels", [11, 2**32 - 1])
def test_a_mipmapped_array_has_no_more_levels_than_its_sides_allow(slice64: Tenant, levels: int):
    """The driver takes any number for "all of them"; the charge is that of the levels there are."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMipmappedArrayCreate", OUT, array3d(1024, 1024, 0), levels)
        assert used(slice64) == sum(max(512, 16 << level) << level for level in range(11))


def test_a_mipmapped_array_has_one_level_at_least(slice64: Tenant):
    """A driver may take none for one: it is charged before anybody asks the driver."""
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMipmappedArrayCreate", OUT, array3d(4096, 4096, 0), 0)[0] == OUT_OF_MEMORY


def test_a_pool_on_another_card_is_charged_there(machine: SimMachine, tenant: TenantMaker):
    """Nothing of a destroyed pool's account sticks to the pool that comes after it."""
    both = tenant(limits=[CardLimit(card.uuid, LIMIT) for card in machine.cards])
    with Shell(both).begin() as shell:
        for device in (0, 1):
            shell.begin(device)
            pool = shell.ok("cuMemPoolCreate", OUT, location(device))
            block = shell.ok("cuMemAllocFromPoolAsync", OUT, LIMIT, pool, 0)
            assert [card.memory_used_bytes for card in both.usage().cards[:2]][device] == LIMIT
            shell.ok("cuMemFreeAsync", block, 0)
            shell.ok("cuStreamSynchronize", 0)
            shell.ok("cuMemPoolDestroy", pool)


def test_a_pool_that_cannot_be_destroyed_is_charged_as_before(slice64: Tenant):
    """The default pool outlives the attempt, and what it holds is counted once."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAllocAsync", OUT, LIMIT // 2, 0)
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        assert shell.call("cuMemPoolDestroy", pool)[0] == INVALID_VALUE
        shell.ok("cuMemAllocAsync", OUT, LIMIT // 2, 0)
        assert used(slice64) == LIMIT


@pytest.mark.parametrize("kind", [HOST, 3, 4])
def test_physical_memory_of_the_host_costs_nothing(slice64: Tenant, kind: int):
    """On any node of it."""
    where = "x" + struct.pack("<iiii72x", PINNED, 0, kind, 0).hex()
    with Shell(slice64).begin() as shell:
        handle = shell.ok("cuMemCreate", OUT, 2 * LIMIT, where, 0)
        assert used(slice64) == slice64.machine.memory_used(slice64.machine.cards[0].uuid) == 0
        shell.ok("cuMemRelease", handle)


def test_a_part_of_a_device_is_the_devices(slice64: Tenant):
    """A locality domain's memory is charged like any of its card, before the driver is asked."""
    where = "x" + struct.pack("<iiii72x", PINNED, 0, 6, 0x100).hex()
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMemCreate", OUT, LIMIT + 2 * MIB, where, 0)[0] == OUT_OF_MEMORY
        assert slice64.usage().cards[0].allocations_denied == 1


def test_unmapping_gives_back_what_lies_behind_memory_of_the_host(slice64: Tenant):
    """One call unmaps neighbours of which the first costs nothing."""
    host = "x" + struct.pack("<iiii72x", PINNED, 0, HOST, 0).hex()
    part = LIMIT // 2
    with Shell(slice64).begin() as shell:
        address = shell.ok("cuMemAddressReserve", OUT, LIMIT, 0, 0, 0)
        for index, where in enumerate((host, location())):
            handle = shell.ok("cuMemCreate", OUT, part, where, 0)
            shell.ok("cuMemMap", address + index * part, part, 0, handle, 0)
            shell.ok("cuMemRelease", handle)
        assert used(slice64) == part
        shell.ok("cuMemUnmap", address, LIMIT)
        assert used(slice64) == 0


def test_sizes_beyond_all_reason_fit_no_slice(slice64: Tenant):
    """Nothing wraps around."""
    huge = (1 << 64) - 1
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, huge)[0] == OUT_OF_MEMORY
        assert shell.call("cuMemAllocPitch_v2", OUT, OUT, huge, huge, 4)[0] == OUT_OF_MEMORY
        assert shell.call("cuMemAllocAsync", OUT, huge, 0)[0] == OUT_OF_MEMORY
        assert shell.call("cuArray3DCreate_v2", OUT, array3d(huge, huge, huge))[0] == OUT_OF_MEMORY
        assert used(slice64) == 0
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_a_failed_call_gives_back_what_was_taken_for_it(tenant: TenantMaker):
    """When the card itself is full, the slice is not charged."""
    generous = tenant(64 << 30)
    with Shell(generous).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 32 << 30)[0] == OUT_OF_MEMORY
        assert used(generous) == 0
        assert shell.call("cuMemAlloc_v2", OUT, 0)[0] == INVALID_VALUE


def test_the_program_sees_its_slice(slice64: Tenant):
    """Total is the slice, free is what is left of it, and the card's own free memory where that is less."""
    with Shell(slice64).begin() as shell:
        assert shell.memory_info() == (LIMIT, LIMIT)
        assert shell.ok("cuDeviceTotalMem_v2", OUT, 0) == LIMIT
        shell.ok("cuMemAlloc_v2", OUT, 4 * MIB)
        assert shell.memory_info() == (LIMIT - 4 * MIB, LIMIT)
        with Shell(slice64, bare=True).begin() as neighbour:
            available, _ = neighbour.memory_info()
            neighbour.ok("cuMemAlloc_v2", OUT, available - 2 * MIB)
            assert shell.memory_info() == (2 * MIB, LIMIT)


def test_memory_info_errs_where_the_bare_driver_does(slice64: Tenant):
    """Without a context the answer is the driver's."""
    with Shell(slice64) as shell, Shell(slice64, bare=True) as bare:
        for entry in ("cuMemGetInfo_v2", "cuMemGetInfo"):
            assert shell.call(entry, OUT, OUT) == bare.call(entry, OUT, OUT)


def test_another_card_of_the_machine_has_no_memory_for_the_tenant(slice64: Tenant):
    """A card that the control page does not name is closed."""
    with Shell(slice64).begin(device=1) as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert shell.memory_info()[0] == 0
