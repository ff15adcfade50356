"""`aliquot doctor --run`: a machine that `aliquot run` works on, and machines on which it does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.shells import WAIT_S, Shell, Tenant


def results(shell: Shell, *options: str, status: int) -> dict[str, dict[str, str]]:
    """Check -> what it has found."""
    done = shell.aliquot("doctor", "--run", "--json", *options)
    assert done.returncode == status, done.stderr
    return {one["check"]: one for one in json.loads(done.stdout)["findings"]}


def test_a_machine_that_is_well(shell: Shell) -> None:
    """All is tried; nothing is left of the slice."""
    found = results(shell, "--simulate", status=0)
    assert {name: one["result"] for name, one in found.items()} == dict.fromkeys(
        ("driver", "interceptor", "directory", "others", "slice"), "ok"
    )
    assert found["driver"]["seen"] == "card 0 (NVIDIA H200, 16Gi), card 1 (NVIDIA H200, 16Gi)"
    assert found["slice"]["seen"] == "a program in a slice of 256Mi sees 256Mi"
    assert shell.run_directories() == []


@pytest.mark.parametrize("name", ["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"])
def test_limits_of_the_environment_do_not_matter(shell: Shell, name: str) -> None:
    """They are for programs; that they could not be kept is said where one is started."""
    shell.environment[name] = "2x"
    assert results(shell, "--simulate", status=0)["slice"]["result"] == "ok"


def test_cards_without_room_are_told_with_what_helps(shell: Shell) -> None:
    """No slice can be tried then."""
    tenants = [Tenant(shell, "--mem", "16Gi", "--card", card) for card in "01"]
    found = results(shell, "--simulate", status=1)["slice"]
    for tenant in tenants:
        tenant.end()
    assert "no room for a slice of 256Mi" in found["seen"]
    assert found["remedy"] == "ask for less, or end a run (see `aliquot cards`)"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="NOT RUN: this machine has a driver")
def test_a_machine_without_a_driver(shell: Shell) -> None:
    """The driver is named, and the slice fails for the same reason."""
    found = results(shell, status=1)
    assert found["driver"]["result"] == found["slice"]["result"] == "failure"
    assert "no NVIDIA driver answers" in found["driver"]["seen"]
    assert found["slice"]["seen"] == f"a slice that was tried: {found['driver']['seen']}"
    assert found["driver"]["remedy"] == "install one, or use --simulate"
    assert found["others"]["result"] == "ok"


def test_a_program_that_is_not_confined_is_told(shell: Shell, tmp_path: Path) -> None:
    """Something between `aliquot run` and the program takes LD_PRELOAD away."""
    customised = tmp_path / "sitecustomize.py"
    customised.write_text(
        "import os, sys\n"
        'if "libaliquot" in os.environ.get("LD_PRELOAD", ""):\n'
        '    os.execve(sys.executable, sys.orig_argv, {**os.environ, "LD_PRELOAD": ""})\n'
    )
    shell.environment["PYTHONPATH"] = str(tmp_path)
    found = results(shell, "--simulate", status=1)
    assert found["slice"]["seen"] == "a program in a slice of 256Mi sees 16Gi: it is not confined"


def test_what_lies_in_the_current_directory_is_not_run(shell: Shell, tmp_path: Path) -> None:
    """A module of the user's by the name of one of Python's is neither the trial's failure nor anybody's way in."""
    (tmp_path / "random.py").write_text("raise SystemExit('the current directory')")
    command = [Path(sys.executable).with_name("aliquot"), "doctor", "--run", "--simulate"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_questions_that_exclude_each_other(shell: Shell) -> None:
    """They are named."""
    assert "--node and --run" in shell.aliquot("doctor", "--node", "--run").stderr
    assert "--simulate goes with --run" in shell.aliquot("doctor", "--simulate").stderr
