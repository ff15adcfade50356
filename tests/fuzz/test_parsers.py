"""What reads others' bytes in Python: a second every day, longer with the slow tests, and all that was ever found."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz.parsers import FINDINGS, TARGETS, fuzz

KEPT = sorted(file for file in FINDINGS.glob("*/*") if file.is_file())


def of_the_day() -> int:
    """A seed, printed so that a find can be repeated."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={seed}")
    return seed


@pytest.mark.parametrize("target", TARGETS)
def test_a_second_finds_nothing(target: str, tmp_path: Path):
    """From real inputs on."""
    assert fuzz(target, of_the_day(), 1.0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_five_seconds_find_nothing(target: str, tmp_path: Path):
    """The same for longer; `python -m tests.fuzz.parsers --minutes 25` for as long as one likes."""
    assert fuzz(target, of_the_day(), 5.0, tmp_path)


@pytest.mark.parametrize("kept", KEPT, ids=[f"{file.parent.name}-{file.name}" for file in KEPT])
def test_what_was_found_stays_mended(kept: Path, tmp_path: Path):
    """Each input that broke a promise, or would again without some care."""
    TARGETS[kept.parent.name](kept.read_bytes(), tmp_path)
