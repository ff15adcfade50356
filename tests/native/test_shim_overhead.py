"""Contexts, code and limits are overhead of the slice: charged as the card is, given back when the card is."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine, SimMig
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, program
from tests.native.sims import PRELUDE
from tests.native.tenants import Tenant

MIB = 1 << 20
CONTEXT, MODULE, LIMIT = 300 * MIB, 2 * MIB, 1000 * MIB
PRINTF_FIFO, MALLOC_HEAP, STACK = 1, 2, 0
THREADS = 132 * 2048

TenantMaker = Callable[..., Tenant]

PTX_BYTES = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none()\n{\nret;\n}\n\0"
PTX = "x" + PTX_BYTES.hex()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """A card on which contexts and code cost something."""
    card = SimCard(memory_mib=16384, context_mib=CONTEXT // MIB, module_mib=MODULE // MIB)
    made = SimMachine(tmp_path_factory.mktemp("machine"), [card, card])
    made.create()
    return made


@pytest.fixture
def slice_(machine: SimMachine, tenant: TenantMaker) -> Tenant:
    """A slice whose control page knows what a context costs."""
    return tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, context_bytes=CONTEXT)])


def charged(slice_: Tenant) -> int:
    """What the usage page says is in use, which must be what the card says."""
    used = slice_.usage().cards[0].memory_used_bytes
    assert used == slice_.machine.memory_used(slice_.machine.cards[0].uuid)
    return used


CREATE = {
    "cuCtxCreate": lambda s: s.call("cuCtxCreate", OUT, 0, 0),
    "cuCtxCreate_v2": lambda s: s.call("cuCtxCreate_v2", OUT, 0, 0),
    "cuCtxCreate_v3": lambda s: s.call("cuCtxCreate_v3", OUT, 0, 0, 0, 0),
    "cuCtxCreate_v4": lambda s: s.call("cuCtxCreate_v4", OUT, 0, 0, 0),
    "cuDevicePrimaryCtxRetain": lambda s: s.call("cuDevicePrimaryCtxRetain", OUT, 0),
}


@pytest.mark.parametrize("entry", CREATE)
def test_a_context_is_charged_while_it_lives(slice_: Tenant, entry: str):
    """Whatever makes it: the first one costs the estimate, and its end gives that back."""
    with Shell(slice_) as shell:
        shell.ok("cuInit", 0)
        assert charged(slice_) == 0
        status, context = CREATE[entry](shell)
        assert status == SUCCESS
        assert charged(slice_) == CONTEXT
        if entry.startswith("cuCtx"):
            shell.ok("cuCtxDestroy_v2", context)
        else:
            shell.ok("cuDevicePrimaryCtxRelease_v2", 0)
        assert charged(slice_) == 0


@pytest.mark.parametrize("entry", CREATE)
def test_a_context_that_does_not_fit_never_reaches_the_driver(
    machine: SimMachine, tenant: TenantMaker, entry: str
):
    """The program is told that there is no memory, and the card does not notice."""
    small = tenant(limits=[CardLimit(machine.cards[0].uuid, CONTEXT - 1, context_bytes=CONTEXT)])
    with Shell(small) as shell:
        shell.ok("cuInit", 0)
        assert CREATE[entry](shell)[0] == OUT_OF_MEMORY
        assert charged(small) == 0
        assert small.usage().cards[0].allocations_denied == 1


def test_further_contexts_are_charged_what_the_driver_takes(slice_: Tenant):
    """Each costs its own, in whatever order they end."""
    with Shell(slice_).begin() as shell:
        second = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        third = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        assert charged(slice_) == 3 * CONTEXT
        assert shell.call("cuCtxCreate_v2", OUT, 0, 0)[0] == OUT_OF_MEMORY
        assert charged(slice_) == 3 * CONTEXT
        shell.ok("cuCtxDestroy_v2", third)
        shell.ok("cuDevicePrimaryCtxRelease_v2", 0)
        assert charged(slice_) == CONTEXT
        shell.ok("cuCtxDestroy_v2", second)
        assert charged(slice_) == 0


def test_the_primary_context_is_one_however_often_it_is_retained(slice_: Tenant):
    """The last release gives it back; a reset does at once, and a retain after that makes it anew."""
    with Shell(slice_).begin() as shell:
        shell.ok("cuDevicePrimaryCtxRetain", OUT, 0)
        assert charged(slice_) == CONTEXT
        shell.ok("cuDevicePrimaryCtxRelease_v2", 0)
        assert charged(slice_) == CONTEXT
        shell.ok("cuDevicePrimaryCtxReset_v2", 0)
        assert charged(slice_) == 0
        shell.ok("cuDevicePrimaryCtxRetain", OUT, 0)
        assert charged(slice_) == CONTEXT


GREEN = """
import os
cuda.cuInit(0)
SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
def here():
    print(flush=True)
    sys.stdin.readline()
groups = check(cuda.cuDevSmResourceSplitByCount(1, check(cuda.cuDeviceGetDevResource(0, SM)), 0, 8))
desc = check(cuda.cuDevResourceGenerateDesc(groups[0][:1], 1))
green = check(cuda.cuGreenCtxCreate(desc, 0, 1)); here()
second = check(cuda.cuGreenCtxCreate(desc, 0, 1)); here()
check(cuda.cuCtxSetCurrent(check(cuda.cuCtxFromGreenCtx(green))))
third = check(cuda.cuGreenCtxCreate(desc, 0, 1)); here()
check(cuda.cuMemAlloc(6 << 20)); here()
check(cuda.cuGreenCtxDestroy(third)); here()
check(cuda.cuGreenCtxDestroy(second)); check(cuda.cuGreenCtxDestroy(green)); here()
"""


def test_green_contexts_stand_on_the_primary_one(tmp_path: Path):
    """The first makes it and pays for it; what is measured of others is charged, and all of it ends with the last."""
    own = 4 * MIB
    machine = SimMachine(tmp_path / "machine", [SimCard(context_mib=CONTEXT // MIB, green_mib=own // MIB)])
    machine.create()
    limit = CardLimit(machine.cards[0].uuid, LIMIT, context_bytes=CONTEXT)
    create_control(tmp_path / "control", Control("test/green", (limit,)))
    create_usage(tmp_path / "usage")
    slice_ = Tenant(machine, tmp_path)
    process = slice_.start(PRELUDE + GREEN)
    assert process.stdout is not None
    assert process.stdin is not None
    seen = []
    for line in process.stdout:
        seen.append((slice_.usage().cards[0].memory_used_bytes, machine.memory_used(machine.cards[0].uuid)))
        process.stdin.write(line)
        process.stdin.flush()
    process.communicate()
    charged_, card = zip(*seen, strict=True)
    assert card == (
        CONTEXT + own,
        CONTEXT + 2 * own,
        CONTEXT + 3 * own,
        *(CONTEXT + n * own + 6 * MIB for n in (3, 2)),
        0,
    )
    assert charged_ == (CONTEXT, CONTEXT, CONTEXT + own, CONTEXT + own + 6 * MIB, CONTEXT + 6 * MIB, 0)


def test_an_attached_context_ends_with_its_last_detachment(slice_: Tenant):
    """With it goes what was made in it."""
    with Shell(slice_) as shell:
        shell.ok("cuInit", 0)
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        assert shell.ok("cuCtxAttach", OUT, 0) == context
        shell.ok("cuMemAlloc_v2", OUT, 6 * MIB)
        shell.ok("cuCtxDetach", context)
        assert charged(slice_) == CONTEXT + 6 * MIB
        shell.ok("cuCtxDetach", context)
        assert charged(slice_) == 0


def test_a_failed_context_costs_nothing(slice_: Tenant):
    """What was taken for it is given back."""
    with Shell(slice_) as shell:
        shell.ok("cuInit", 0)
        assert shell.call("cuCtxCreate_v2", OUT, 1 << 20, 0)[0] != SUCCESS
        assert charged(slice_) == 0


def test_a_killed_process_gives_its_context_back(slice_: Tenant):
    """The next one has room for its own."""
    with Shell(slice_).begin() as victim:
        victim.process.kill()
        victim.process.wait()
    with Shell(slice_).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - CONTEXT)
        assert charged(slice_) == LIMIT


def test_code_is_charged_when_it_is_loaded(slice_: Tenant):
    """At once where the program wants it so; unloading gives it back."""
    with Shell(slice_, CUDA_MODULE_LOADING="EAGER").begin() as shell:
        module = shell.ok("cuModuleLoadData", OUT, PTX)
        assert charged(slice_) == CONTEXT + MODULE
        function = shell.ok("cuModuleGetFunction", OUT, module, "snone")
        assert function
        assert charged(slice_) == CONTEXT + MODULE
        shell.ok("cuModuleUnload", module)
        assert charged(slice_) == CONTEXT


LOADS = {
    "cuModuleLoadData": lambda s: s.call("cuModuleLoadData", OUT, PTX),
    "cuModuleLoadDataEx": lambda s: s.call("cuModuleLoadDataEx", OUT, PTX, 0, 0, 0),
    "cuModuleLoadFatBinary": lambda s: s.call("cuModuleLoadFatBinary", OUT, PTX),
    "cuLibraryLoadData": lambda s: s.call("cuLibraryLoadData", OUT, PTX, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("entry", LOADS)
def test_code_that_does_not_fit_is_not_there(slice_: Tenant, entry: str):
    """It is unloaded again, and the program is told that there is no memory."""
    with Shell(slice_, CUDA_MODULE_LOADING="EAGER").begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT - CONTEXT - MODULE + 2 * MIB)
        before = charged(slice_)
        assert LOADS[entry](shell)[0] == OUT_OF_MEMORY
        assert charged(slice_) == before


def test_lazy_code_is_charged_when_it_is_first_asked_for(slice_: Tenant):
    """By module or by library; once in a context; given back by unloading."""
    with Shell(slice_).begin() as shell:
        module = shell.ok("cuModuleLoadData", OUT, PTX)
        assert charged(slice_) == CONTEXT
        for _ in range(2):
            shell.ok("cuModuleGetFunction", OUT, module, "snone")
            assert charged(slice_) == CONTEXT + MODULE
        library = shell.ok("cuLibraryLoadData", OUT, PTX, 0, 0, 0, 0, 0, 0)
        kernel = shell.ok("cuLibraryGetKernel", OUT, library, "snone")
        shell.ok("cuKernelGetFunction", OUT, kernel)
        assert charged(slice_) == CONTEXT + 2 * MODULE
        shell.ok("cuLibraryUnload", library)
        assert charged(slice_) == CONTEXT + MODULE
        shell.ok("cuModuleUnload", module)
        assert charged(slice_) == CONTEXT


def test_code_goes_with_its_context(slice_: Tenant):
    """A module's in a context that ends, with the limits that were raised in it."""
    with Shell(slice_).begin() as shell:
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        shell.ok("cuModuleGetFunction", OUT, shell.ok("cuModuleLoadData", OUT, PTX), "snone")
        shell.ok("cuCtxSetLimit", MALLOC_HEAP, 72 * MIB)
        assert charged(slice_) == 2 * CONTEXT + MODULE + 64 * MIB
        shell.ok("cuCtxDestroy_v2", context)
        assert charged(slice_) == CONTEXT


@pytest.mark.parametrize(
    ("limit", "began", "each"), [(MALLOC_HEAP, 8 * MIB, 1), (PRINTF_FIFO, 7 * MIB, 1), (STACK, 1024, THREADS)]
)
def test_what_limits_reserve_is_held_to_the_slice(slice_: Tenant, limit: int, began: int, each: int):
    """Raised as far as it fits, refused beyond that, given back when lowered."""
    more = 512 * MIB // each // 1024 * 1024
    with Shell(slice_).begin() as shell:
        shell.ok("cuCtxSetLimit", limit, began + more)
        assert 0 <= slice_.machine.memory_used(slice_.machine.cards[0].uuid) - CONTEXT - more * each < 2 * MIB
        assert slice_.usage().cards[0].memory_used_bytes == CONTEXT + more * each
        assert shell.call("cuCtxSetLimit", limit, began + 3 * more)[0] == OUT_OF_MEMORY
        assert shell.ok("cuCtxGetLimit", OUT, limit) == began + more
        assert shell.call("cuCtxSetLimit", limit, (1 << 64) - 1)[0] == OUT_OF_MEMORY
        shell.ok("cuCtxSetLimit", limit, began)
        assert charged(slice_) == CONTEXT


def test_an_unknown_estimate_costs_nothing(machine: SimMachine, tenant: TenantMaker):
    """Where the agent has not measured a context yet, it is left to the agent."""
    slice_ = tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT)])
    with Shell(slice_).begin() as shell:
        shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        assert slice_.usage().cards[0].memory_used_bytes == 0


def test_every_way_to_code_is_measured_once(slice_: Tenant, tmp_path: Path):
    """By file or data, module or library; variables and functions."""
    path = tmp_path / "code.ptx"
    path.write_bytes(PTX_BYTES)
    with Shell(slice_).begin() as shell:
        by_file = shell.ok("cuModuleLoad", OUT, f"s{path}")
        function = shell.ok("cuModuleGetFunction", OUT, by_file, "snone")
        shell.call("cuFuncLoad", function)
        assert charged(slice_) == CONTEXT + MODULE
        library = shell.ok("cuLibraryLoadFromFile", OUT, f"s{path}", 0, 0, 0, 0, 0, 0)
        shell.ok("cuLibraryGetModule", OUT, library)
        shell.ok("cuKernelGetFunction", OUT, shell.ok("cuLibraryGetKernel", OUT, library, "snone"))
        shell.call("cuLibraryGetGlobal", OUT, OUT, library, "sabsent")
        shell.call("cuLibraryGetManaged", OUT, OUT, library, "sabsent")
        for entry in ("cuModuleGetGlobal", "cuModuleGetGlobal_v2"):
            shell.call(entry, OUT, OUT, by_file, "sabsent")
        assert slice_.machine.memory_used(slice_.machine.cards[0].uuid) == CONTEXT + 2 * MODULE
        shell.ok("cuLibraryUnload", library)
        shell.ok("cuModuleUnload", by_file)
        assert charged(slice_) == CONTEXT


ABSENT = [
    "cuGLCtxCreate",
    "cuGLCtxCreate_v2",
    "cuVDPAUCtxCreate",
    "cuVDPAUCtxCreate_v2",
    "cuLogicalEndpointBindMem",
    "cuLogicalEndpointBindAddr",
    "cuLogicalEndpointUnbind",
    "cuLogicalEndpointDestroy",
]


@pytest.mark.parametrize("entry", ABSENT)
def test_what_the_driver_refuses_costs_nothing(slice_: Tenant, entry: str):
    """The answer is the driver's, and nothing that was taken for the call stays charged."""
    with Shell(slice_).begin() as shell, Shell(slice_, bare=True) as bare:
        bare.ok("cuInit", 0)
        assert shell.call(entry, OUT, 0, 0, 0, 0, 0)[0] == bare.call(entry, OUT, 0, 0, 0, 0, 0)[0] != SUCCESS
        assert slice_.usage().cards[0].memory_used_bytes == CONTEXT


def test_measuring_leaves_a_capture_valid(slice_: Tenant):
    """Code that is first asked for while a stream is captured is charged, and the capture goes on."""
    with Shell(slice_).begin() as shell:
        module = shell.ok("cuModuleLoadData", OUT, PTX)
        stream = shell.ok("cuStreamCreate", OUT, 0)
        shell.ok("cuStreamBeginCapture_v2", stream, 0)
        shell.ok("cuModuleGetFunction", OUT, module, "snone")
        assert charged(slice_) == CONTEXT + MODULE
        shell.ok("cuStreamEndCapture", stream, OUT)


def test_a_mig_instance_is_charged_by_its_own_entry(tmp_path: Path):
    """Contexts and memory of a tenant confined to one instance are found under that instance's name."""
    card = SimCard(context_mib=CONTEXT // MIB, mig=(SimMig("1g.18gb", gi=1), SimMig("1g.18gb", gi=2)))
    machine = SimMachine(tmp_path / "machine", [card])
    machine.create()
    first, second = machine.cards[0].mig
    limits = tuple(CardLimit(mig.uuid, LIMIT, context_bytes=CONTEXT) for mig in (second, first))
    create_control(tmp_path / "control", Control("test/mig", limits))
    create_usage(tmp_path / "usage")
    tenant = Tenant(machine, tmp_path)
    with Shell(tenant, CUDA_VISIBLE_DEVICES=first.uuid).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, 6 * MIB)
        assert [entry.memory_used_bytes for entry in tenant.usage().cards[:2]] == [0, CONTEXT + 6 * MIB]
        assert machine.memory_used(first.uuid) == CONTEXT + 6 * MIB
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT - CONTEXT)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("ptx", "least", "most"),
    [
        (".version 7.0", 0, 64 * MIB),
        (".global .align 4 .b8 big[1073741824];", 1 << 30, (1 << 30) + 64 * MIB),
        (".global .f64 grid[1024][1024];", 8 * MIB, 8 * MIB + 64 * MIB),
        ("ld.global.u32 %r1, [%rd1+1073741824];", 0, 64 * MIB),
        (".global .b8 huge[18446744073709551615][16];", (1 << 64) - 1, (1 << 64) - 1),
    ],
)
def test_an_image_tells_how_much_it_can_need(ptx: str, least: int, most: int):
    """Variables count in full; instructions that look like them do not."""
    answer = subprocess.run(
        [program("image_bound", "code_image.c"), ptx], check=True, capture_output=True, text=True
    )
    assert least <= int(answer.stdout) <= most


def test_what_hangs_on_a_context_is_not_taken_for_an_earlier_ones(tmp_path: Path):
    """Handles are given out again at once: what hung on the earlier context goes, what hangs on the later one stays."""
    machine = SimMachine(tmp_path / "machine", [SimCard(memory_mib=16384)])
    machine.create()
    create_control(tmp_path / "control", Control("test/storm", (CardLimit(machine.cards[0].uuid, 16 << 30),)))
    create_usage(tmp_path / "usage")
    slice_ = Tenant(machine, tmp_path)
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    command = [program("context_storm"), str(seed), "4", "500"]
    env = slice_.env(SIMGPU_HANDLE_REST="0")
    storm = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert storm.stdout is not None
    answer = storm.stdout.readline()
    used = charged(slice_)
    storm.communicate(timeout=60)
    assert (answer, storm.returncode) == ("done\n", 0)
    assert used > 0


def test_a_limit_that_does_not_fit_is_one_refusal(slice_: Tenant):
    """Also where it is the first that is set."""
    with Shell(slice_).begin() as shell:
        assert shell.call("cuCtxSetLimit", MALLOC_HEAP, 1 << 40)[0] == OUT_OF_MEMORY
        assert slice_.usage().cards[0].allocations_denied == 1
        shell.ok("cuCtxSetLimit", MALLOC_HEAP, 72 * MIB)
        assert shell.call("cuCtxSetLimit", MALLOC_HEAP, 1 << 40)[0] == OUT_OF_MEMORY
        assert slice_.usage().cards[0].allocations_denied == 2
