"""CuPy: the same, with its own pool ("pool") or the driver's ("async")."""

import json
import sys

import cupy as cp

BLOCK, ROUNDS, KIND = 64 << 20, int(sys.argv[1]), sys.argv[2]
pool = cp.cuda.MemoryAsyncPool() if KIND == "async" else cp.cuda.MemoryPool()
cp.cuda.set_allocator(pool.malloc)


def fill() -> list[cp.ndarray]:
    """Blocks until one is refused."""
    blocks: list[cp.ndarray] = []
    try:
        while True:
            blocks.append(cp.empty(BLOCK, dtype=cp.uint8))
    except cp.cuda.memory.OutOfMemoryError:
        return blocks


for _ in range(ROUNDS):
    held = fill()
    count = len(held)
    _, total = cp.cuda.runtime.memGetInfo()
    del held
    pool.free_all_blocks()
    answer = cp.arange(100).sum().item()
    print(json.dumps({"held": count * BLOCK, "total": total, "computes": answer == 4950}), flush=True)
