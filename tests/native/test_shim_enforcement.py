"""Enforcement and limits are changed under a running program, for every way to take memory."""

import dataclasses
from collections.abc import Callable

import pytest

from aliquot.libshim.control_page import Control, Enforcement, change_control
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, two_cards
from tests.native.tenants import Tenant
from tests.native.test_shim_memory import EXACT, Take

MIB = 1 << 20
LIMIT = 32 * MIB
RELEASE_THRESHOLD = 4

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


FAMILIES: dict[str, Take] = {
    **{name: take for name, (take, _) in EXACT.items()},
    "cuMemAllocAsync": lambda shell, size: shell.call("cuMemAllocAsync", OUT, size, 0),
    "cuMemAllocAsync_ptsz": lambda shell, size: shell.call("cuMemAllocAsync_ptsz", OUT, size, 0),
}


def switch(own: Tenant, enforcement: Enforcement, memory_bytes: int = LIMIT) -> None:
    """What the agent writes when a pool's enforcement or a slice's size is changed."""

    def change(control: Control | None) -> Control:
        assert control is not None
        card = dataclasses.replace(control.cards[0], memory_bytes=memory_bytes)
        return dataclasses.replace(control, cards=(card,), enforcement=enforcement)

    change_control(own.control, change)


def denied(own: Tenant) -> int:
    """How often the page says that something was, or would have been, refused."""
    return own.usage().cards[0].allocations_denied


@pytest.mark.parametrize("family", FAMILIES)
def test_a_running_program_is_switched_between_levels(tenant: TenantMaker, family: str):
    """Enforced it is refused, observed it is served and counted, off it is served; and then enforced again."""
    own, take = tenant(LIMIT), FAMILIES[family]
    with Shell(own).begin() as shell:
        assert take(shell, 2 * LIMIT)[0] == OUT_OF_MEMORY
        assert denied(own) == 1
        switch(own, Enforcement.OBSERVE)
        assert take(shell, 2 * LIMIT)[0] == SUCCESS
        assert denied(own) == 2
        counted = denied(own)
        switch(own, Enforcement.OFF)
        assert take(shell, 2 * LIMIT)[0] == SUCCESS
        assert denied(own) == counted
        assert own.usage().cards[0].memory_used_bytes >= 4 * LIMIT
        switch(own, Enforcement.ENFORCE)
        assert take(shell, 2 * MIB)[0] == OUT_OF_MEMORY
        assert shell.memory_info() == (0, LIMIT)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slice_that_shrinks_refuses_what_is_new_and_takes_nothing(tenant: TenantMaker, family: str):
    """Below what is in use nothing is killed; raised again, there is room at once."""
    own, take = tenant(LIMIT), FAMILIES[family]
    with Shell(own).begin() as shell:
        assert take(shell, LIMIT)[0] == SUCCESS
        switch(own, Enforcement.ENFORCE, LIMIT // 2)
        assert take(shell, 2 * MIB)[0] == OUT_OF_MEMORY
        assert own.usage().cards[0].memory_used_bytes == LIMIT
        assert shell.memory_info() == (0, LIMIT // 2)
        switch(own, Enforcement.ENFORCE, 4 * LIMIT)
        assert take(shell, LIMIT)[0] == SUCCESS


@pytest.mark.parametrize("level", [Enforcement.OBSERVE, Enforcement.OFF])
def test_where_nothing_is_enforced_the_card_is_shown_as_it_is(tenant: TenantMaker, level: Enforcement):
    """The program is told what the bare driver tells."""
    own = tenant(LIMIT)
    switch(own, level)
    with Shell(own).begin() as shell, Shell(own, bare=True).begin() as bare:
        assert shell.memory_info() == bare.memory_info()
        for entry in ("cuDeviceTotalMem_v2", "cuDeviceTotalMem"):
            assert shell.call(entry, OUT, 0) == bare.call(entry, OUT, 0)


def test_what_a_pool_serves_from_idle_room_is_not_counted_as_refused(tenant: TenantMaker):
    """Enforced it would have been served, too."""
    own, keep_everything = tenant(LIMIT), "x" + "ff" * 8
    switch(own, Enforcement.OBSERVE)
    with Shell(own).begin() as shell:
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, keep_everything)
        for _ in range(3):
            shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, LIMIT, 0), 0)
            shell.ok("cuStreamSynchronize", 0)
        assert denied(own) == 0
