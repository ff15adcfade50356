"""Managed memory is charged in full, and goes to no card whose slice does not hold it."""

import struct
from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import INVALID_VALUE, OUT, Shell, two_cards
from tests.native.tenants import Tenant

MIB = 1 << 20
HERE, THERE = 64 * MIB, 16 * MIB
PREFERRED = 3

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def both(machine: SimMachine, tenant: TenantMaker) -> Tenant:
    """A slice of 64 MiB of the first card, and 16 MiB of the second."""
    sizes = zip(machine.cards, (HERE, THERE), strict=True)
    return tenant(limits=[CardLimit(card.uuid, size) for card, size in sizes])


def used(slice_: Tenant) -> list[int]:
    """What the usage page says is in use of both cards."""
    return [card.memory_used_bytes for card in slice_.usage().cards[:2]]


def truth(slice_: Tenant) -> list[int]:
    """What the cards themselves say."""
    return [slice_.machine.memory_used(card.uuid) for card in slice_.machine.cards]


def numbers(*values: int) -> str:
    """64-bit words, as hex."""
    return "x" + struct.pack(f"<{len(values)}Q", *values).hex()


def place(device: int) -> int:
    """CUmemLocation of a device, as a call by value has it."""
    return 1 | device << 32


def batch(entry: str) -> Callable[[Shell, int, int, int], object]:
    """A batch of two ranges: one byte for the first card, then everything for `device`."""

    def prefetch(shell: Shell, memory: int, size: int, device: int) -> object:
        ranges, sizes = numbers(memory, memory), numbers(1, size)
        places = "x" + struct.pack("<iiii", 1, 0, 1, device).hex()
        return shell.ok(entry, ranges, sizes, 2, places, numbers(0, 1), 2, 0, 0)

    return prefetch


HINTS: dict[str, Callable[[Shell, int, int, int], object]] = {
    "cuMemPrefetchAsync": lambda s, m, n, d: s.ok("cuMemPrefetchAsync", m, n, d, 0),
    "cuMemPrefetchAsync_ptsz": lambda s, m, n, d: s.ok("cuMemPrefetchAsync_ptsz", m, n, d, 0),
    "cuMemPrefetchAsync_v2": lambda s, m, n, d: s.ok("cuMemPrefetchAsync_v2", m, n, place(d), 0, 0),
    "cuMemPrefetchAsync_v2_ptsz": lambda s, m, n, d: s.ok("cuMemPrefetchAsync_v2_ptsz", m, n, place(d), 0, 0),
    "cuMemPrefetchBatchAsync": batch("cuMemPrefetchBatchAsync"),
    "cuMemPrefetchBatchAsync_ptsz": batch("cuMemPrefetchBatchAsync_ptsz"),
    "cuMemDiscardAndPrefetchBatchAsync": batch("cuMemDiscardAndPrefetchBatchAsync"),
    "cuMemDiscardAndPrefetchBatchAsync_ptsz": batch("cuMemDiscardAndPrefetchBatchAsync_ptsz"),
}


@pytest.mark.parametrize("hint", HINTS)
def test_a_prefetch_goes_to_its_own_card_and_to_another_that_holds_it(both: Tenant, hint: str):
    """On the other card it is charged as well, once, until it is freed."""
    with Shell(both).begin() as shell:
        memory = shell.ok("cuMemAllocManaged", OUT, THERE, 1)
        for device, charged in ((0, [THERE, 0]), (1, [THERE, THERE]), (1, [THERE, THERE])):
            HINTS[hint](shell, memory, THERE, device)
            shell.ok("cuCtxSynchronize")
            assert used(both) == charged
            assert truth(both)[device] >= THERE - 2 * MIB
        shell.ok("cuMemFree_v2", memory)
        assert used(both) == truth(both) == [0, 0]


@pytest.mark.parametrize("hint", HINTS)
def test_a_prefetch_to_a_card_whose_slice_is_too_small_is_not_made(both: Tenant, hint: str):
    """The memory stays where it is and can be used; the program is told nothing."""
    with Shell(both).begin() as shell:
        memory = shell.ok("cuMemAllocManaged", OUT, THERE + 1, 1)
        HINTS[hint](shell, memory, THERE + 1, 1)
        shell.ok("cuCtxSynchronize")
        assert truth(both)[1] == used(both)[1] == 0
        shell.ok("cuMemsetD8_v2", memory, 1, THERE + 1)
        shell.ok("cuMemFree_v2", memory)
        assert used(both) == [0, 0]


@pytest.mark.parametrize("entry", ["cuMemAdvise", "cuMemAdvise_v2"])
def test_a_preferred_location_is_held_to_the_slice(both: Tenant, entry: str):
    """Memory that would live on a card is charged there, or does not."""
    with Shell(both).begin() as shell:
        where = 1 if entry == "cuMemAdvise" else place(1)
        for size, charged in ((THERE, THERE), (THERE + 1, 0)):
            memory = shell.ok("cuMemAllocManaged", OUT, size, 1)
            shell.ok(entry, memory, size, PREFERRED, where)
            assert used(both)[1] == charged
            shell.ok("cuMemFree_v2", memory)
            assert used(both) == [0, 0]


def test_what_is_not_managed_is_the_drivers_to_refuse(both: Tenant):
    """And costs nothing."""
    with Shell(both).begin() as shell:
        plain = shell.ok("cuMemAlloc_v2", OUT, MIB)
        assert shell.call("cuMemPrefetchAsync", plain, MIB, 1, 0)[0] == INVALID_VALUE
        assert used(both) == [MIB, 0]


def test_what_was_let_to_another_card_ends_with_its_context(both: Tenant):
    """Like the memory itself."""
    with Shell(both).begin() as shell:
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        memory = shell.ok("cuMemAllocManaged", OUT, THERE, 1)
        shell.ok("cuMemPrefetchAsync", memory, THERE, 1, 0)
        assert used(both) == [THERE, THERE]
        shell.ok("cuCtxDestroy_v2", context)
        assert used(both) == [0, 0]
