"""`torch_steps.py train|small` prints the seconds of a training step, or of a loop of small kernels, with PyTorch."""

import statistics
import sys
import time
from collections.abc import Callable

import torch

WARM, STEPS, ROUNDS = 20, 50, 9


def train() -> Callable[[], None]:
    """One step of a small transformer layer in bfloat16."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True).cuda().bfloat16()
    optimizer = torch.optim.AdamW(layer.parameters())
    batch = torch.randn(32, 256, 1024, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        layer(batch).square().mean().backward()
        optimizer.step()

    return step


def small() -> Callable[[], None]:
    """A thousand kernels of a few microseconds."""
    values = torch.zeros(1024, device="cuda")

    def step() -> None:
        for _ in range(1000):
            values.add_(1.0)

    return step


def seconds(step: Callable[[], None]) -> float:
    """Of STEPS steps, waiting for the device at both ends."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def main() -> None:
    """Prints the median of several rounds."""
    step = {"train": train, "small": small}[sys.argv[1]]()
    for _ in range(WARM):
        step()
    print(statistics.median(seconds(step) for _ in range(ROUNDS)))


if __name__ == "__main__":
    main()
