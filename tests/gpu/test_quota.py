"""What people's libraries do at the edge of a slice, judged by the card's own count."""

import importlib.util
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gpu.conftest import PYTHON, Card, SliceMaker

LIMIT = 4 << 30
ROUNDS = 3
ROUNDING = 2 << 20

CLIENTS = {
    "cudart malloc": ("cudart_cycle", ("malloc",), {}, None),
    "cudart async": ("cudart_cycle", ("async",), {}, None),
    "cudart managed": ("cudart_cycle", ("managed",), {}, None),
    "torch native": ("torch_cycle", (), {}, "torch"),
    "torch expandable": (
        "torch_cycle",
        (),
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "torch",
    ),
    "torch async": ("torch_cycle", (), {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "torch"),
    "cupy pool": ("cupy_cycle", ("pool",), {}, "cupy"),
    "cupy async": ("cupy_cycle", ("async",), {}, "cupy"),
}


def lacks(module: str | None) -> bool:
    """Whether the Python of the programs cannot import a module."""
    if module is None or (__import__("sys").executable == PYTHON and importlib.util.find_spec(module)):
        return False
    return (
        subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0
    )


@contextmanager
def watched(card: Card) -> Iterator[list[int]]:
    """Samples the card's count as fast as it answers."""
    samples: list[int] = []
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            samples.append(card.used())

    watcher = threading.Thread(target=sample)
    watcher.start()
    try:
        yield samples
    finally:
        over.set()
        watcher.join()


@pytest.mark.gpu
@pytest.mark.parametrize("client", CLIENTS)
def test_a_library_fills_its_slice_and_no_more(
    card: Card, slice_of: SliceMaker, context_bytes: int, client: str
):
    """It gets at least three quarters of the slice in every round, never more, and gives all of it back."""
    program, arguments, extra, module = CLIENTS[client]
    if lacks(module):
        pytest.skip(f"NOT RUN: {PYTHON} has no {module}; set ALIQUOT_GPU_PYTHON")
    slice_ = slice_of(LIMIT, context_bytes=context_bytes)
    before = card.used()
    with watched(card) as samples:
        output, errors = slice_.start(program, ROUNDS, *arguments, **extra).communicate(timeout=300)
    rounds = [json.loads(line) for line in output.splitlines()]
    assert len(rounds) == ROUNDS, errors[-2000:]
    for one in rounds:
        assert one["total"] == LIMIT
        assert one["computes"]
        assert LIMIT * 3 // 4 <= one["held"] + context_bytes <= LIMIT + ROUNDING
    assert max(samples) - before <= LIMIT + ROUNDING
    assert slice_.usage().cards[0].memory_used_bytes == 0


@pytest.mark.gpu
def test_managed_memory_larger_than_the_slice_leaves_the_rest_of_the_card_to_others(
    card: Card, slice_of: SliceMaker, context_bytes: int
):
    """Whatever the card touches and the program asks for: advice holds the slice, and the contents are right."""
    slice_ = slice_of(LIMIT, context_bytes=context_bytes, managed_resident=True)
    before = card.used()
    with watched(card) as samples:
        output, errors = slice_.start("managed_beyond", LIMIT * 3 // 2).communicate(timeout=300)
    assert output == "3\n", errors[-2000:]
    assert max(samples) - before <= LIMIT + ROUNDING
    assert slice_.usage().cards[0].memory_used_bytes == 0
