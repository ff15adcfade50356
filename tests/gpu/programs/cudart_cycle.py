"""The CUDA runtime by ctypes: cudaMalloc ("malloc"), cudaMallocAsync ("async") or cudaMallocManaged ("managed")."""

import ctypes
import json
import sys
import sysconfig
from pathlib import Path

BLOCK, ROUNDS, KIND = 64 << 20, int(sys.argv[1]), sys.argv[2]
OUT_OF_MEMORY = 2


def runtime() -> ctypes.CDLL:
    """Libcudart of the wheels, else of the system."""
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/libcudart.so.*"))
    return ctypes.CDLL(wheels[-1] if wheels else "libcudart.so")


cudart = runtime()
size, pointer = ctypes.c_size_t, ctypes.c_void_p


def check(status: int) -> None:
    """Ends the program with the runtime's error."""
    if status:
        sys.exit(f"cudart says {status}")


def allocate() -> pointer | None:
    """One block, or None when it is refused."""
    block = pointer()
    calls = {
        "malloc": lambda: cudart.cudaMalloc(ctypes.byref(block), size(BLOCK)),
        "async": lambda: cudart.cudaMallocAsync(ctypes.byref(block), size(BLOCK), None),
        "managed": lambda: cudart.cudaMallocManaged(ctypes.byref(block), size(BLOCK), 1),
    }
    status = calls[KIND]()
    if status == OUT_OF_MEMORY:
        cudart.cudaGetLastError()
        return None
    check(status)
    return block


for _ in range(ROUNDS):
    blocks = []
    while (block := allocate()) is not None:
        check(cudart.cudaMemset(block, 1, size(BLOCK)))
        blocks.append(block)
    free, total = size(), size()
    check(cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
    for block in blocks:
        check(cudart.cudaFreeAsync(block, None) if KIND == "async" else cudart.cudaFree(block))
    check(cudart.cudaDeviceSynchronize())
    print(json.dumps({"held": len(blocks) * BLOCK, "total": total.value, "computes": True}), flush=True)
