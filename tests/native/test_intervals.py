"""The interceptor's intervals of charged time, beside a set of instants."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.native.shells import CLIENTS

SOURCES = Path(__file__).parents[2] / "libshim" / "src"
MOST = 32


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled."""
    target = tmp_path_factory.mktemp("intervals") / "interval_steps"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{SOURCES}", "-o", str(target)]
    files = [str(CLIENTS / "interval_steps.c"), str(SOURCES / "intervals.c")]
    subprocess.run([*command, *files], check=True)
    return target


def told(steps: Path, count: int, length: int) -> list[tuple[int, int, int, int]]:
    """From, to, what was missing of it, and how many intervals there are then, of each step."""
    seed = os.environ.get("SEED", str(time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    command = [str(steps), seed, str(count), str(length)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in map(str.split, lines)]


def runs(instants: set[int]) -> int:
    """How many intervals these are."""
    return sum(one - 1 not in instants for one in instants)


def test_as_long_as_they_have_room_they_are_exact(steps: Path):
    """64 instants are 32 intervals at the most."""
    known = set[int]()
    for start, end, missing, count in told(steps, 200, 64):
        asked = set(range(start, end))
        assert missing == len(asked - known)
        known |= asked
        assert count == runs(known)


def test_where_they_have_none_the_sum_is_exact(steps: Path):
    """What the nearest two have between them is found again, if not in its place; nothing is missing twice."""
    length, found, most = 1000, 0, 0
    for _, _, missing, count in told(steps, 200, length):
        found, most = found + missing, max(most, count)
    assert most == MOST
    assert found == length
