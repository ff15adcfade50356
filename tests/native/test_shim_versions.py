"""Every ABI version of a function does its duty, whichever way a program found it."""

import struct
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from aliquot.libshim.coverage.table import Row, read_table
from aliquot.sandbox.gpus import SimMachine
from tests.native.attempts import attempts
from tests.native.shells import OUT, SUCCESS, Shell, two_cards
from tests.native.sims import wait_for
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 64 * MIB
SPIN = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry aliquot_spin(.param .u64 ns)\n{\nret;\n}\n\0"
SPIN_NS = 2_000_000
FLOAT, RELEASE_THRESHOLD = 0x20, 4

TenantMaker = Callable[..., Tenant]


@cache
def rows() -> dict[str, Row]:
    """The hook table by symbol."""
    return {row.symbol: row for row in read_table() if row.hooked}


class Asking(Shell):
    """A program that asks cuGetProcAddress for what has a hook: by name, version and flavour of the symbol."""

    def call(self, name: str, *arguments: object) -> tuple[int, ...]:
        """Calls the function that the driver gives for them."""
        row = rows().get(name)
        if row:
            name = f"{row.name}:{row.since}:{2 if row.stream == 'PER_THREAD' else 1}"
        return super().call(name, *arguments)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def slice64(tenant: TenantMaker) -> Tenant:
    """A slice of 64 MiB and half of a card's time."""
    return tenant(LIMIT, 50)


@pytest.fixture(params=[Shell, Asking], ids=["dlsym", "cuGetProcAddress"])
def shell(request: pytest.FixtureRequest, slice64: Tenant) -> Iterator[Shell]:
    """A program in the slice, without a context."""
    with request.param(slice64) as made:
        made.ok("cuInit", 0)
        yield made


def charged(slice_: Tenant) -> int:
    """What the usage page says is in use, which must be what the card says."""
    used = slice_.usage().cards[0].memory_used_bytes
    assert used == slice_.machine.memory_used(slice_.machine.cards[0].uuid)
    return used


ARRAY = "x" + struct.pack("<QQiI", 1024, 512, FLOAT, 4).hex()
ARRAY3D = "x" + struct.pack("<QQQiII4x", 256, 128, 16, FLOAT, 4, 0).hex()

# 8 MiB by every version of an entry, and what frees it.
TAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "cuMemAlloc": ((OUT, 8 * MIB), "cuMemFree"),
    "cuMemAlloc_v2": ((OUT, 8 * MIB), "cuMemFree_v2"),
    "cuMemAllocPitch": ((OUT, OUT, 4096, 2048, 4), "cuMemFree"),
    "cuMemAllocPitch_v2": ((OUT, OUT, 4096, 2048, 4), "cuMemFree_v2"),
    "cuArrayCreate_v2": ((OUT, ARRAY), "cuArrayDestroy"),
    "cuArray3DCreate_v2": ((OUT, ARRAY3D), "cuArrayDestroy"),
}


@pytest.mark.parametrize("symbol", TAKES)
def test_what_is_taken_is_charged_until_it_is_freed(slice64: Tenant, shell: Shell, symbol: str):
    """The usage page and the card's own record agree at each step."""
    arguments, free = TAKES[symbol]
    shell.begin()
    before = charged(slice64)
    block = shell.ok(symbol, *arguments)
    assert charged(slice64) - before == 8 * MIB
    shell.ok(free, block)
    assert charged(slice64) == before


@pytest.mark.parametrize("end", ["cuCtxDestroy", "cuCtxDestroy_v2"])
def test_the_end_of_a_context_gives_its_memory_back(slice64: Tenant, shell: Shell, end: str):
    """By every version of every function that ends one."""
    context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
    shell.ok("cuMemAlloc_v2", OUT, 8 * MIB)
    assert charged(slice64) >= 8 * MIB
    shell.ok(end, context)
    assert charged(slice64) == 0


PRIMARY_ENDS = [
    f"cuDevicePrimaryCtx{end}{version}" for end in ("Release", "Reset") for version in ("", "_v2")
]


@pytest.mark.parametrize("end", PRIMARY_ENDS)
def test_the_end_of_the_primary_context_gives_its_memory_back(slice64: Tenant, shell: Shell, end: str):
    """Released by its only user, or reset."""
    shell.begin()
    shell.ok("cuMemAlloc_v2", OUT, 8 * MIB)
    assert charged(slice64) >= 8 * MIB
    shell.ok(end, 0)
    assert charged(slice64) == 0


WAITS = {
    "cuCtxSynchronize": "",
    "cuCtxSynchronize_v2": "",
    "cuStreamSynchronize": "",
    "cuStreamSynchronize_ptsz": "_ptsz",
    "cuEventSynchronize": "",
}


@pytest.mark.parametrize("wait", WAITS)
def test_what_a_pool_lets_go_is_given_back(slice64: Tenant, shell: Shell, wait: str):
    """Pools shrink when somebody waits for the card."""
    shell.begin()
    twin = WAITS[wait]
    waits_for = {
        "cuCtxSynchronize": (),
        "cuCtxSynchronize_v2": (shell.ok("cuCtxGetCurrent", OUT),),
        "cuEventSynchronize": (shell.ok("cuEventCreate", OUT, 0),),
    }.get(wait, (0,))
    before = charged(slice64)
    block = shell.ok(f"cuMemAllocAsync{twin}", OUT, 8 * MIB, 0)
    shell.ok(f"cuMemFreeAsync{twin}", block, 0)
    if "Event" in wait:
        shell.ok("cuEventRecord", *waits_for, 0)
    assert charged(slice64) - before >= 8 * MIB
    shell.ok(wait, *waits_for)
    assert charged(slice64) == before


def test_what_a_pool_is_told_to_keep_is_given_back_when_it_is_trimmed(slice64: Tenant, shell: Shell):
    """Not before."""
    shell.begin()
    before = charged(slice64)
    pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
    shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, "x" + "ff" * 8)
    shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, 8 * MIB, 0), 0)
    shell.ok("cuCtxSynchronize")
    assert charged(slice64) - before >= 8 * MIB
    shell.ok("cuMemPoolTrimTo", pool, 0)
    assert charged(slice64) == before


@pytest.mark.parametrize(
    "symbol", ["cuDeviceTotalMem", "cuDeviceTotalMem_v2", "cuMemGetInfo", "cuMemGetInfo_v2"]
)
def test_the_slice_is_what_is_shown(shell: Shell, symbol: str):
    """In the widths of each version."""
    shell.begin()
    arguments = (OUT, 0) if "Total" in symbol else (OUT, OUT)
    assert shell.call(symbol, *arguments) == (SUCCESS, *[LIMIT] * arguments.count(OUT))


def spin(shell: Shell) -> tuple[int, int, int]:
    """The kernel, its parameters as launches take them (they lie in memory of the host's), and a stream."""
    shell.begin()
    module = shell.ok("cuModuleLoadData", OUT, "x" + SPIN.hex())
    function = shell.ok("cuModuleGetFunction", OUT, module, "saliquot_spin")
    place = shell.ok("cuMemHostAlloc", OUT, 4096, 0)
    shell.ok("cuMemcpy", place, "x" + struct.pack("<QQ", SPIN_NS, place).hex(), 16)
    shell.ok("cuFuncSetBlockShape", function, 32, 1, 1)
    shell.ok("cuParamSetSize", function, 8)
    shell.ok("cuParamSetv", function, 0, "x" + struct.pack("<Q", SPIN_NS).hex(), 8)
    return function, place + 8, shell.ok("cuStreamCreate", OUT, 1)


def launch_arguments(symbol: str, function: int, params: int, stream: int) -> tuple[object, ...]:
    """One block of 32 threads, as each entry wants it said."""
    shape = (1, 1, 1, 32, 1, 1, 0)
    config = "x" + struct.pack("<7I4xQQI4x", *shape, stream, 0, 0).hex()
    return {
        "cuLaunchKernel": (function, *shape, stream, params, 0),
        "cuLaunchKernelEx": (config, function, params, 0),
        "cuLaunchCooperativeKernel": (function, *shape, stream, params),
        "cuLaunch": (function,),
        "cuLaunchGrid": (function, 1, 1),
        "cuLaunchGridAsync": (function, 1, 1, stream),
    }[symbol.removesuffix("_ptsz")]


LAUNCHES = [
    *("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"),
    *("cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"),
    *("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync"),
]


@pytest.mark.timing
@pytest.mark.parametrize("symbol", LAUNCHES)
def test_every_launch_is_charged_its_time(slice64: Tenant, shell: Shell, symbol: str):
    """About as much as the card says it was busy, whatever launched the kernels; more where the program is held up."""
    arguments = launch_arguments(symbol, *spin(shell))

    def accounts() -> tuple[int, int]:
        runs = slice64.machine.busy(slice64.machine.cards[0].uuid)
        return slice64.usage().cards[0].busy_ns, sum(end - start for _, start, end in runs)

    def attempt() -> float:
        charged, busy = accounts()
        for _ in range(5):
            shell.ok(symbol, *arguments)
        shell.ok("cuCtxSynchronize")
        ran = accounts()[1] - busy
        assert ran >= 5 * SPIN_NS
        wait_for(lambda: accounts()[0] - charged >= 0.8 * ran, "the time to be charged")
        return (accounts()[0] - charged) / ran

    assert attempts(attempt, 1, 0.2, most=10)[-1] <= 1.2


@pytest.mark.parametrize("destroy", ["cuStreamDestroy", "cuStreamDestroy_v2"])
def test_work_on_a_stream_that_is_destroyed_is_charged(slice64: Tenant, shell: Shell, destroy: str):
    """A kernel known to be short is long this time, and its stream goes while it runs."""
    function, params, stream = spin(shell)
    arguments = launch_arguments("cuLaunchKernel", function, params, stream)
    for nanoseconds in (*[1000] * 30, 10 * SPIN_NS):
        shell.ok("cuMemcpy", params - 8, "x" + struct.pack("<Q", nanoseconds).hex(), 8)
        shell.ok("cuLaunchKernel", *arguments)
    shell.ok(destroy, stream)
    wait_for(lambda: slice64.usage().cards[0].busy_ns >= 8 * SPIN_NS, "the time to be charged")


REFUSED: dict[str, tuple[object, ...]] = {
    "cuArrayCreate": (OUT, "x" + struct.pack("<IIiI", 1024, 512, FLOAT, 4).hex()),
    "cuArray3DCreate": (OUT, "x" + struct.pack("<IIIiII", 256, 128, 16, FLOAT, 4, 0).hex()),
    "cuCtxDetach": (0,),
}


@pytest.mark.parametrize("symbol", REFUSED)
def test_what_the_driver_refuses_is_refused_and_costs_nothing(slice64: Tenant, shell: Shell, symbol: str):
    """Entries that the simulated driver has by name alone: its own answer, and the account as it was."""
    with Shell(slice64, bare=True).begin() as bare:
        refused, *_ = bare.call(symbol, *REFUSED[symbol])
    shell.begin()
    before = charged(slice64)
    assert shell.call(symbol, *REFUSED[symbol])[0] == refused != SUCCESS
    assert charged(slice64) == before
