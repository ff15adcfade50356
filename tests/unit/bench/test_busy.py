"""Busy loops beside a run, and what others used of the CPUs meanwhile."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.timeshare.busy import LOOP, OTHERS_PERCENT, beside


def test_without_loops_nothing_is_said_of_others():
    """CPUs that rest are nobody's."""
    with beside(0) as others:
        pass
    assert others == []


def test_what_others_use_is_found():
    """One loop a core of ours, and as many of somebody who is not waited for: they have about half of the time."""
    foreign = [subprocess.Popen([sys.executable, "-S", "-c", LOOP]) for _ in os.sched_getaffinity(0)]
    try:
        with beside(1) as others:
            time.sleep(1)
    finally:
        for process in foreign:
            process.kill()
            process.wait()
    assert others[0] > OTHERS_PERCENT


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "5 % of the CPUs"),
        (["soak", "--busy", "2"], 2, "goes with the table"),
        (["--busy", "-1"], 2, "a number of loops a core"),
        (["nonsense"], 2, "invalid choice: 'nonsense'"),
    ],
)
def test_the_command_says_what_it_takes(arguments: list[str], status: int, said: str):
    """Nothing is measured."""
    command = [sys.executable, Path(__file__).resolve().parents[3] / "bench" / "compute.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
