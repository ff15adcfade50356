"""Programs of NVIDIA's and others behave in a slice as they do without it, here on a machine without a card."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.driver.flavours import BARE, Ground
from tests.tools.environments import python_with

pytestmark = [pytest.mark.driver, pytest.mark.timeout(900)]

RUNTIME = """
import ctypes, glob, sysconfig
(path,) = glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib/libcudart.so.*")
runtime = ctypes.CDLL(path)
number, pointer = ctypes.c_int(-1), ctypes.c_void_p()
runtime.cudaGetErrorName.restype = ctypes.c_char_p
for name in ("cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceCount"):
    result = getattr(runtime, name)(ctypes.byref(number))
    print(name, runtime.cudaGetErrorName(result), number.value)
print("cudaMalloc", runtime.cudaGetErrorName(runtime.cudaMalloc(ctypes.byref(pointer), 1 << 20)))
print("cudaFree", runtime.cudaGetErrorName(runtime.cudaFree(None)))
"""
CUPY = """
import cupy
for ask in (cupy.cuda.runtime.driverGetVersion, cupy.cuda.runtime.getDeviceCount, lambda: cupy.zeros(3)):
    try:
        print(ask())
    except Exception as error:
        print(type(error).__name__, error)
"""
NUMBA = """
from numba import cuda
print(cuda.is_available())
try:
    cuda.detect()
except Exception as error:
    print(type(error).__name__, error)
"""
CLIENTS = {
    "libcudart 12": (("nvidia-cuda-runtime-cu12==12.9.79",), RUNTIME),
    "libcudart 13": (("nvidia-cuda-runtime==13.0.96",), RUNTIME),
    "CuPy, which has the runtime within": (("cupy-cuda12x==13.6.0",), CUPY),
    "Numba": (("numba-cuda[cu12]==0.19.1", "numba==0.61.2"), NUMBA),
}


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """All that a program's user sees."""
    return done.returncode, done.stdout, done.stderr


def compare(ground: Ground, flavour: str, command: Sequence[str | Path]) -> tuple[int, str, str]:
    """Runs a program without and within a slice; returns what both have shown."""
    bare, ours = ground.run(BARE, command), ground.run(flavour, command)
    assert outcome(ours) == outcome(bare)
    return outcome(ours)


@pytest.mark.parametrize("words", [(), ("-L",), ("-q",), ("--help",)], ids=["table", "list", "query", "help"])
def test_nvidia_smi(ground: Ground, flavour: str, words: tuple[str, ...]):
    """It says that there is no driver to talk to, by the same words and exit status."""
    status, printed, _ = compare(ground, flavour, [ground.driver.smi, *words])
    assert (status, "NVIDIA-SMI has failed" in printed) == ((0, False) if words == ("--help",) else (9, True))


@pytest.mark.parametrize("client", CLIENTS)
def test_runtimes_and_libraries(ground: Ground, flavour: str, client: str):
    """Versions, results and messages are the same, and nothing crashes at exit."""
    packages, code = CLIENTS[client]
    status, printed, errors = compare(ground, flavour, [python_with(*packages), "-c", code])
    assert status == 0, errors
    assert printed
