"""What tests of pools and of graphs have in common: sizes, programs that spin, and a card that is watched."""

import select
import subprocess
from pathlib import Path

from tests.native.shells import OUT, Shell
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 64 * MIB
RELEASE_THRESHOLD = 4
EVERYTHING = "x" + "ff" * 8
GLOBAL_CAPTURE = 0
SPIN_PTX = Path(__file__).resolve().parents[2] / "sandbox" / "kernels" / "spin.ptx"
DEADLINE_S = 60


def keep_everything(shell: Shell) -> int:
    """Tells the device's pool to keep what is freed; returns the pool."""
    pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
    shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, EVERYTHING)
    return pool


SPINNING = """
import ctypes, sys, threading
from concurrent.futures import ThreadPoolExecutor
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return None if len(answer) == 1 else answer[1] if len(answer) == 2 else answer[1:]

path, size = sys.argv[1], int(sys.argv[2])
cuda.cuInit(0)
context = check(cuda.cuDevicePrimaryCtxRetain(0))
check(cuda.cuCtxSetCurrent(context))
module = check(cuda.cuModuleLoadData(open(path, "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))

def spin(stream):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, ((50_000_000,), (ctypes.c_uint64,)), 0))
"""


def watch_until_served(slice_: Tenant, process: subprocess.Popen[str]) -> None:
    """Looks at the card without a pause until the program has had all that it wanted."""
    assert process.stdout is not None
    highest = 0
    served = False
    while not served:
        served = bool(select.select([process.stdout], [], [], 0)[0])
        highest = max(highest, slice_.machine.memory_highest(slice_.machine.cards[0].uuid, 0.02))
    assert process.stdout.readline() == "served\n"
    process.communicate(timeout=DEADLINE_S)
    assert 0 < highest <= LIMIT
