"""What the simulated driver takes for itself: contexts, the code of modules, what limits reserve."""

from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.sims import read_until, run_python, start

MIB = 1024 * 1024
CONTEXT, MODULE = 300, 20

PROGRAM = """
cuda.cuInit(0)
PTX = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry none()\\n{\\nret;\\n}\\n\\0"
seen = []
def used():
    free, total = check(cuda.cuMemGetInfo())
    seen.append((total - free) >> 20)
def launch(function):
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
def library():
    return check(cuda.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
"""


@pytest.fixture
def costly(tmp_path: Path) -> SimMachine:
    """A card where contexts and modules cost something."""
    made = SimMachine(tmp_path / "costly", [SimCard(context_mib=CONTEXT, module_mib=MODULE)])
    made.create()
    return made


def seen(machine: SimMachine, program: str, **extra: str) -> list[int]:
    """The MiB that a program saw used wherever it looked."""
    return [int(word) for word in run_python(machine, PROGRAM + program + "\nprint(*seen)", **extra).split()]


def test_every_context_costs_while_it_lives(costly: SimMachine):
    """Primary and created contexts add up in a process, and each gives back its own; releasing counts."""
    program = """
start(); used()
check(cuda.cuDevicePrimaryCtxRetain(0)); used()
second = check(cuda.cuCtxCreate(None, 0, 0)); used()
third = check(cuda.cuCtxCreate(None, 0, 0)); used()
check(cuda.cuCtxDestroy(third)); check(cuda.cuCtxSetCurrent(second)); used()
check(cuda.cuDevicePrimaryCtxRelease(0)); used()
check(cuda.cuDevicePrimaryCtxRelease(0)); used()
"""
    assert seen(costly, program) == [c * CONTEXT for c in (1, 1, 2, 3, 2, 2, 1)]


def test_a_killed_process_gives_its_contexts_back(costly: SimMachine):
    """The card knows what each process's contexts cost, until it is gone."""
    uuid = costly.cards[0].uuid
    victim = start(costly, "alloc", 2 * MIB, "wait")
    read_until(victim, "wait")
    assert costly.processes(uuid) == {victim.pid: (CONTEXT + 2) * MIB}
    victim.kill()
    victim.communicate()
    assert costly.memory_used(uuid) == 0


MODULES = """
start()
module = check(cuda.cuModuleLoadData(PTX)); used()
function = check(cuda.cuModuleGetFunction(module, b"none")); used()
launch(function); used()
check(cuda.cuModuleUnload(module)); used()
"""


@pytest.mark.parametrize(
    ("mode", "loaded"), [("", (0, 1, 1, 0)), ("LAZY", (0, 1, 1, 0)), ("EAGER", (1, 1, 1, 0))]
)
def test_a_module_costs_when_its_code_is_loaded(costly: SimMachine, mode: str, loaded: tuple[int, ...]):
    """At once with CUDA_MODULE_LOADING=EAGER; by default when a function of it is asked for; until it is unloaded."""
    expected = [CONTEXT + MODULE * count for count in loaded]
    assert seen(costly, MODULES, CUDA_MODULE_LOADING=mode) == expected


LIBRARIES = """
early = library()
start(); used()
library(); used()
kernel = check(cuda.cuLibraryGetKernel(early, b"none")); used()
launch(kernel); used()
other = check(cuda.cuCtxCreate(None, 0, 0)); used()
launch(kernel); used()
check(cuda.cuCtxDestroy(other)); start(); used()
check(cuda.cuLibraryUnload(early)); used()
"""


@pytest.mark.parametrize(
    ("mode", "modules"), [("LAZY", (0, 0, 0, 1, 1, 2, 1, 0)), ("EAGER", (1, 2, 2, 2, 4, 4, 2, 1))]
)
def test_a_library_costs_in_every_context_it_is_used_in(
    costly: SimMachine, mode: str, modules: tuple[int, ...]
):
    """Loaded eagerly it is in all contexts, those to come included; lazily in those that launched it."""
    contexts = (1, 1, 1, 1, 2, 2, 1, 1)
    expected = [CONTEXT * c + MODULE * m for c, m in zip(contexts, modules, strict=True)]
    assert seen(costly, LIBRARIES, CUDA_MODULE_LOADING=mode) == expected


LIMITS: dict[str, tuple[str, int]] = {
    "the default stack": ("cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_STACK_SIZE, 1024)", 0),
    "a stack of 4 KiB for 270,336 threads": (
        "cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_STACK_SIZE, 4096)", 792
    ),
    "a heap of 128 MiB": ("cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, 128 << 20)", 120),
    "a queue of 33 MiB": ("cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE, 33 << 20)", 26),
    "a limit that reserves nothing": (
        "cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64)", 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS)
def test_limits_reserve_memory_beyond_their_defaults(costly: SimMachine, case: str):
    """Raising a limit takes whole blocks; the primary context's reset gives them back."""
    call, extra = LIMITS[case]
    program = f"start(); check({call}); used(); check(cuda.cuDevicePrimaryCtxReset(0)); start(); used()"
    assert seen(costly, program) == [CONTEXT + extra, CONTEXT]


@pytest.mark.parametrize(
    "call",
    [
        "cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 30)",
        "cuda.cuCtxCreate(None, 0, 0)",
        "cuda.cuModuleGetFunction(module, b'none')",
        "cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)",
    ],
)
def test_overhead_that_does_not_fit_is_out_of_memory(costly: SimMachine, call: str):
    """A full card refuses it, and nothing of it stays charged."""
    program = f"""
start()
module = check(cuda.cuModuleLoadData(PTX))
kernel = check(cuda.cuLibraryGetKernel(library(), b"none"))
check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0]))
assert ({call})[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
used()
"""
    assert seen(costly, program) == [16384]


def test_nvml_counts_overhead_as_the_process_s(costly: SimMachine):
    """Every version of the list of processes shows contexts, code and limits."""
    program = """
import os
import pynvml as nvml
start()
check(cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20))
check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(PTX)), b"none"))
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
for version in ("", "_v2", "_v3"):
    listed = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses" + version)(card)
    seen += [p.usedGpuMemory >> 20 for p in listed if p.pid == os.getpid()]
seen.append(nvml.nvmlDeviceGetMemoryInfo(card).used >> 20)
"""
    assert seen(costly, program) == [CONTEXT + MODULE + 8] * 4


def test_nvml_accounts_for_processes_once_it_is_told_to(costly: SimMachine):
    """Accounting is off at first; then it names every process and what it has."""
    program = """
import os
import pynvml as nvml
start()
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
try:
    nvml.nvmlDeviceGetAccountingPids(card)
except nvml.NVMLError_NotSupported:
    seen.append(-1)
nvml.nvmlDeviceSetAccountingMode(card, 1)
seen.append(int(nvml.nvmlDeviceGetAccountingPids(card) == [os.getpid()]))
seen.append(nvml.nvmlDeviceGetAccountingStats(card, os.getpid()).maxMemoryUsage >> 20)
"""
    assert seen(costly, program) == [-1, 1, CONTEXT]


def test_nvml_lists_utilisation_in_its_newer_form(costly: SimMachine):
    """The process that ran a kernel is listed with its share of the last second."""
    program = """
import ctypes, os
import pynvml as nvml
start()
spin = PTX.replace(b"none()", b"spin(.param .u64 ns)")
function = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(spin)), b"spin"))
check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, ((400_000_000,), (ctypes.c_uint64,)), 0))
check(cuda.cuCtxSynchronize())
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
listed = nvml.nvmlDeviceGetProcessesUtilizationInfo(card, 0)
seen += [int(listed[0].pid == os.getpid()), int(listed[0].smUtil > 0)]
"""
    assert seen(costly, program) == [1, 1]
