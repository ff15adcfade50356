"""A block is charged what it takes of the card: the driver rounds to granules of 2 MiB, which small blocks share."""

from collections.abc import Callable

import pytest

from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell
from tests.native.tenants import Tenant, truth, used

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 64 * MIB

TenantMaker = Callable[..., Tenant]


def test_blocks_a_little_larger_than_half_a_granule_are_charged_whole_ones(tenant: TenantMaker):
    """The slice is full when the card has its bytes, not when requests add up to them; freed, all is there again."""
    own = tenant(LIMIT)
    with Shell(own).begin() as shell:
        for _ in range(2):
            blocks = [shell.ok("cuMemAlloc_v2", OUT, MIB + 4 * KIB) for _ in range(LIMIT // (2 * MIB))]
            assert used(own) == truth(own) == LIMIT
            assert shell.memory_info() == (0, LIMIT)
            assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
            for block in blocks:
                shell.ok("cuMemFree_v2", block)
            assert used(own) == truth(own) == 0


@pytest.mark.parametrize(
    ("entry", "arguments"),
    [
        ("cuMemAlloc", (OUT, 3 * MIB)),
        ("cuMemAlloc_v2", (OUT, 3 * MIB)),
        ("cuMemAllocPitch", (OUT, OUT, 513, 3 * KIB, 4)),
        ("cuMemAllocPitch_v2", (OUT, OUT, 513, 3 * KIB, 4)),
    ],
)
def test_every_way_to_plain_memory_is_rounded(tenant: TenantMaker, entry: str, arguments: tuple[object, ...]):
    """Three MiB take four; where only three are left they are refused, and the card does not notice."""
    own = tenant(7 * MIB)
    with Shell(own).begin() as shell:
        status, block, *_ = shell.call(entry, *arguments)
        assert status == SUCCESS
        assert used(own) == truth(own) == 4 * MIB
        assert shell.call(entry, *arguments)[0] == OUT_OF_MEMORY
        assert truth(own) == 4 * MIB
        shell.ok("cuMemFree_v2", block)
        assert used(own) == truth(own) == 0


def test_blocks_that_share_a_granule_are_charged_what_was_asked_for(tenant: TenantMaker):
    """Half a granule each: two take one."""
    own = tenant(LIMIT)
    with Shell(own).begin() as shell:
        for _ in range(2):
            shell.ok("cuMemAlloc_v2", OUT, MIB)
        assert used(own) == truth(own) == 2 * MIB


def test_a_driver_that_tells_no_granule_is_believed_by_the_byte(tenant: TenantMaker):
    """As drivers before CUDA 10.2."""
    own = tenant(LIMIT)
    own.machine.missing = ("cuMemGetAllocationGranularity",)
    own.machine.create()
    with Shell(own).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 3 * MIB)
        assert used(own) == 3 * MIB
