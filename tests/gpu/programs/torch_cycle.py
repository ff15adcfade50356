"""PyTorch fills the slice, is refused, recovers, computes, frees, and again. PYTORCH_CUDA_ALLOC_CONF: its allocator."""

import json
import sys

import torch

BLOCK, ROUNDS = 64 << 20, int(sys.argv[1])


def fill() -> list[torch.Tensor]:
    """Blocks until one is refused."""
    blocks: list[torch.Tensor] = []
    try:
        while True:
            blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        return blocks


def compute() -> bool:
    """Whether the device still computes."""
    x = torch.full((1024, 1024), 2.0, device="cuda")
    return bool((x @ x)[0, 0].item() == 4096.0)


for _ in range(ROUNDS):
    held = fill()
    count = len(held)
    _, total = torch.cuda.mem_get_info()
    del held
    torch.cuda.empty_cache()
    print(json.dumps({"held": count * BLOCK, "total": total, "computes": compute()}), flush=True)
