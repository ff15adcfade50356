"""CUDA programs in pods that keep a card busy, and some that lie about it."""

from typing import Any

from aliquot.cli.demo.stack import SOURCE_ROOT, Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import container, pod

KERNEL = SOURCE_ROOT / "sandbox" / "kernels" / "spin.ptx"
SPIN = """
import os, sys, threading, time
import numpy as np
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
module = driver.cuModuleLoadData(open(sys.argv[1], "rb").read() + bytes(1))[1]
spin = driver.cuModuleGetFunction(module, b"aliquot_spin")[1]
length = np.array([2_000_000], np.uint64)
arguments = np.array([length.ctypes.data], np.uint64)

def lie():
    page = os.open(os.environ["ALIQUOT_USAGE_PAGE"], os.O_RDWR)
    while True:
        os.pwrite(page, bytes(8), 2048 + 64)  # busy_ns of the first card
        time.sleep(0.001)

if sys.argv[2:] == ["lies"]:
    threading.Thread(target=lie, daemon=True).start()
print("ready", flush=True)
while True:
    for _ in range(4):
        driver.cuLaunchKernel(spin, 64, 1, 1, 32, 1, 1, 0, 0, arguments.ctypes.data, 0)
    driver.cuCtxSynchronize()
"""


def spin(stack: Stack, name: str, limits: dict[str, str], *more: str, **annotations: str) -> dict[str, Any]:
    """Starts a pod that has work for all of a card's time; annotations without their domain, `_` for `-`."""
    manifest = pod(
        name, container("main", {"mem": "1Gi", **limits}, ["python", "-c", SPIN, str(KERNEL), *more])
    )
    keys = {f"aliquot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest["metadata"]["annotations"] = keys
    stack.kubectl.apply(manifest)
    started = stack.kubectl.wait_phase(name, "Running")
    wait_for(f"{name} to work", lambda: "ready" in stack.kubectl.logs(name))
    return dict(started["metadata"])
