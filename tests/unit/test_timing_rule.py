"""What is marked `timing` counts only where the machine was quiet (tests/conftest.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
from pathlib import Path
from tests.conftest import *
from tests import conftest
conftest.wakes = lambda: Path(__file__).with_name("wakes")
"""

WAKES = """#!/bin/sh
# Tells of one run after the other how late threads were woken, in microseconds.
cat > /dev/null
head -n 1 late
sed -i 1d late
"""

PROGRAM = """
import pytest
from pathlib import Path

@pytest.mark.timing
def test_judges():
    runs = Path("runs")
    runs.write_text(runs.read_text() + "run ")
    assert Path("good").exists()

def test_does_not_judge():
    pass
"""


def outcome(directory: Path, late_us: list[float], *, good: bool) -> tuple[int, str]:
    """The number of runs of a test, and the output, on a machine that is so late in one run after the other."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(PROGRAM)
    (directory / "wakes").write_text(WAKES)
    (directory / "wakes").chmod(0o755)
    (directory / "late").write_text("".join(f"{late}\n" for late in late_us))
    (directory / "runs").write_text("")
    if good:
        (directory / "good").touch()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        directory,
        directory,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    return len((directory / "runs").read_text().split()), done.stdout


@pytest.mark.parametrize(("good", "told"), [(True, "2 passed"), (False, "1 failed, 1 passed")])
def test_the_first_quiet_run_counts(tmp_path: Path, good: bool, told: str):
    """Whatever came of those before."""
    runs, output = outcome(tmp_path, [9000, 2001, 2000], good=good)
    assert runs == 3
    assert told in output.splitlines()[-1]


@pytest.mark.parametrize(("good", "failed"), [(True, 0), (False, 4)])
def test_without_a_quiet_run_nothing_is_judged(tmp_path: Path, good: bool, failed: int):
    """Neither passed nor failed, and said loudly."""
    runs, output = outcome(tmp_path, [3000] * 4, good=good)
    assert runs == 4
    assert "1 passed, 1 skipped" in output.splitlines()[-1]
    assert (
        "*** NOT JUDGED: test_it.py::test_judges: in each of 4 runs this machine woke threads too late "
        f"(3.0 ms in the last); {failed} of them failed" in output
    )
