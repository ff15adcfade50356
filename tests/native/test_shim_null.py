"""NULL wherever a call wants a place to write to: the answer is the bare driver's, and nothing breaks."""

import re
from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import LIBSHIM, OUT, Shell, two_cards
from tests.native.tenants import Tenant

TenantMaker = Callable[..., Tenant]

MIB = 1 << 20
ROW = re.compile(r"^AQ_HOOK\((cu\w+),", re.MULTILINE)
ENTRIES = sorted(
    {
        name
        for table in (LIBSHIM / "src" / "hooks").glob("*.def")
        if "nvml" not in table.name
        for name in ROW.findall(table.read_text())
    }
)
REPORTS = [
    ("cuMemGetInfo_v2", 0, 0),
    ("cuMemGetInfo_v2", OUT, 0),
    ("cuMemGetInfo_v2", 0, OUT),
    ("cuMemGetInfo", OUT, 0),
    ("cuMemGetInfo", 0, OUT),
    ("cuDeviceTotalMem_v2", 0, 0),
    ("cuDeviceTotalMem_v2", OUT, 99),
    ("cuDeviceTotalMem_v2", OUT, -1),
    ("cuDeviceTotalMem", OUT, -1),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def test_there_are_entries_to_try():
    """The hook table was found and read."""
    assert {"cuMemAlloc_v2", "cuMemGetInfo_v2", "cuGetProcAddress_v2", "cuMemCreate"} <= set(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_place_to_write_to_is_the_drivers_error(tenant: TenantMaker, entry: str):
    """All arguments are 0: the bare driver says what that is, and the account stays as it was."""
    own = tenant(64 * MIB)
    nothing = [0] * 12
    with Shell(own).begin() as shell, Shell(own, bare=True).begin() as bare:
        expected = bare.call(entry, *nothing)
        assert shell.call(entry, *nothing) == expected
        assert own.usage().cards[0].memory_used_bytes == 0
        after = [one.call("cuMemAlloc_v2", OUT, MIB)[0] for one in (shell, bare)]
        assert after[0] == after[1]


@pytest.mark.parametrize("initialised", [True, False])
def test_reports_err_where_the_bare_driver_does(tenant: TenantMaker, initialised: bool):
    """One place missing or both, a device that is none, before the start and after a context's end."""
    own = tenant(64 * MIB)
    with Shell(own) as shell, Shell(own, bare=True) as bare:
        for one in (shell, bare):
            if initialised:
                one.begin()
        for name, *arguments in REPORTS:
            assert shell.call(name, *arguments)[0] == bare.call(name, *arguments)[0]


def test_reports_err_in_a_context_that_has_ended(tenant: TenantMaker):
    """What was current and was destroyed is no context any more."""
    own = tenant(64 * MIB)
    with Shell(own).begin() as shell, Shell(own, bare=True).begin() as bare:
        for one in (shell, bare):
            one.ok("cuCtxDestroy_v2", one.ok("cuCtxCreate_v2", OUT, 0, 0))
            one.ok("cuDevicePrimaryCtxReset_v2", 0)
        for entry in ("cuMemGetInfo_v2", "cuMemGetInfo"):
            assert shell.call(entry, OUT, OUT)[0] == bare.call(entry, OUT, OUT)[0]
