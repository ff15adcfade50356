"""The simulated machine of a user whose commands run in several pid namespaces, as in containers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.shells import ALIQUOT, Shell, until

FILL = [sys.executable, str(Path(__file__).parents[2] / "examples" / "run" / "fill.py")]
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
GIB = 1 << 30


def can_unshare() -> bool:
    """Whether this user may make a pid namespace."""
    made = shutil.which("unshare") and subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True)
    return bool(made) and made.returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="NOT RUN: no pid namespaces may be made here")


def elsewhere(shell: Shell, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs `aliquot` in a pid namespace of its own."""
    command = [*NAMESPACE, *ALIQUOT, *words]
    return subprocess.run(
        command, env=shell.environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_machine_whose_runs_live_elsewhere_is_refused(shell: Shell) -> None:
    """Its driver could not tell which of them live, and a launch would wait for ever."""
    with shell.start("--mem", "1Gi", "--", "cat") as run:
        until(lambda: sum(map(int, map(str, shell.promised()))) == GIB)
        done = elsewhere(shell, "run", "--simulate", "--mem", "1Gi", "--", *FILL)
        assert done.returncode == 125
        assert "is used by 1 run(s) in another pid namespace: end them, or set XDG_RUNTIME_DIR" in done.stderr
        run.communicate()
    assert run.returncode == 0


@pytest.mark.slow
def test_a_machine_that_another_namespace_has_left_is_made_anew(shell: Shell) -> None:
    """There and back: each finds whole cards."""
    words = ("run", "--simulate", "--mem", "1Gi", "--", *FILL)
    for done in (shell.aliquot(*words), elsewhere(shell, *words), shell.aliquot(*words)):
        assert done.returncode == 0, done.stderr
        assert "1Gi taken, then CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
