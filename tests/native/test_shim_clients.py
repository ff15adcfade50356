"""Python's CUDA clients in a slice: they fill it, are refused, recover, free, and do it again."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aliquot.sandbox.gpus import SOURCES
from tests.native.sims import PRELUDE
from tests.native.tenants import Tenant
from tests.tools.environments import python_with

MIB = 1 << 20
SLICE, BLOCK = 64 * MIB, 8 * MIB
SPIN = SOURCES.parent / "kernels" / "spin.ptx"

FILL = """
import json
found = []
for _ in range(3):
    held = []
    try:
        while True:
            held.append(take())
    except Exception as error:
        refusal = str(error)
    found.append([len(held), free(), "OUT_OF_MEMORY" in refusal])
    give(held)
    wait()
    found.append([0, free(), False])
print(json.dumps(found))
"""

BINDINGS = """
start()
free = lambda: check(cuda.cuMemGetInfo())[0]
wait = lambda: check(cuda.cuCtxSynchronize())
kinds = {
    "plain": (lambda: check(cuda.cuMemAlloc(BLOCK)), lambda block: check(cuda.cuMemFree(block))),
    "managed": (lambda: check(cuda.cuMemAllocManaged(BLOCK, 1)), lambda block: check(cuda.cuMemFree(block))),
    "pool": (lambda: check(cuda.cuMemAllocAsync(BLOCK, 0)), lambda block: check(cuda.cuMemFreeAsync(block, 0))),
}
take, give_one = kinds[sys.argv[2]]
give = lambda held: [give_one(block) for block in held]
"""

CORE = """
from cuda.core import Device, DeviceMemoryResource
device = Device()
device.set_current()
device.memory_resource = DeviceMemoryResource(0)
stream = device.create_stream()
free = lambda: check(cuda.cuMemGetInfo())[0]
take = lambda: device.allocate(BLOCK, stream=stream)
give = lambda held: [block.close(stream) for block in held]
wait = stream.sync
"""

NUMBA = """
import numpy, re, warnings
from numba import cuda as numba, float32
context = numba.current_context()
free = lambda: context.get_memory_info().free
take = lambda: numba.device_array(BLOCK, dtype=numpy.uint8)
wait = numba.synchronize
def give(held):
    held.clear()
    context.deallocations.clear()
"""

NUMBA_KERNEL = """
def add(numbers, more):
    at = numba.grid(1)
    if at < numbers.size:
        numbers[at] += more
ptx, _ = numba.compile_ptx(add, (float32[:], float32))
image = context.create_module_ptx(ptx)
print(bool(image.get_function(re.search(r"entry (\\w+)", ptx)[1])))
"""

# What a slice without overhead shows: eight blocks, nothing left, refused; then all of it free.
FULL = [[SLICE // BLOCK, 0, True], [0, SLICE, False]] * 3


@pytest.fixture
def run(flavoured: Callable[..., Tenant]) -> Callable[..., list[Any]]:
    """Runs a program in a slice of 64 MiB; what it printed, line by line."""

    def go(python: Path | str, program: str, *arguments: str) -> list[Any]:
        text = f"BLOCK = {BLOCK}\n{program}"
        command = [python, "-c", text, SPIN, *arguments]
        done = subprocess.run(
            command, env=flavoured(SLICE).env(), capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line.lower()) for line in done.stdout.splitlines()]

    return go


@pytest.mark.parametrize("kind", ["plain", "managed", "pool"])
def test_cuda_bindings(run: Callable[..., list[Any]], kind: str):
    """The release among the tests' own packages."""
    assert run(sys.executable, PRELUDE + BINDINGS + FILL, kind) == [FULL]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "managed", "pool"])
def test_cuda_bindings_12(run: Callable[..., list[Any]], kind: str):
    """The last major release, which asks the driver for other versions."""
    python = python_with("cuda-bindings==12.*")
    assert run(python, PRELUDE + BINDINGS + FILL, kind) == [FULL]


@pytest.mark.slow
def test_cuda_core(run: Callable[..., list[Any]]):
    """Its memory resource tells its pool to keep what is freed, and so it is charged until it is taken again."""
    kept = [[blocks, 0, refused] for blocks, _, refused in FULL]
    assert run(sys.executable, PRELUDE + CORE + FILL) == [kept]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_numba(run: Callable[..., list[Any]]):
    """Arrays; and a kernel of its own compiler's, as far as PTX: the simulated driver loads no machine code."""
    python = python_with("numba-cuda[cu13]")
    assert run(python, NUMBA + FILL + NUMBA_KERNEL) == [FULL, True]
