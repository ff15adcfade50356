"""Ctrl-C in a terminal, at any moment of a run's start: the run ends, and its status says by what.

With `python -m aliquot.cli` that is from our first line on: before it the interpreter may lose an interrupt itself.
"""

import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.integration.shells import WAIT_S, Shell

pytestmark = pytest.mark.slow

INTERRUPTED = {-signal.SIGINT, 128 + signal.SIGINT}
TRIES, LATEST_S = 60, 0.6
LATEST_IN_START_S = 0.15
INSTALLED = [str(Path(sys.executable).with_name("aliquot"))]
STARTED = b"started"
PROGRAM = f"""
import os, runpy
os.write(1, {STARTED!r})
runpy.run_module("aliquot.cli", run_name="__main__", alter_sys=True)
"""


IN_AN_IMPORT = """
import os, runpy, signal, sys

class Interrupting:
    def __set_name__(self, owner, name):  # what is raised here Python turns into a RuntimeError
        os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, *_):
        if name == "click":
            type("Enumeration", (), {"member": Interrupting()})

sys.meta_path.insert(0, Finder())
runpy.run_module("aliquot.cli", run_name="__main__", alter_sys=True)
"""


def start_in_terminal(shell: Shell, program: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a run that would last; returns it and the terminal that it belongs to."""
    here, there = pty.openpty()

    def own_the_terminal() -> None:
        fcntl.ioctl(there, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    command = [*program, "run", "--simulate", "--mem", "1Gi", "--", "sleep", "1000"]
    process = subprocess.Popen(
        command,
        env=shell.environment,
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
        preexec_fn=own_the_terminal,  # noqa: PLW1509 -- this process has one thread
    )
    os.close(there)
    return process, here


def interrupt_at_random(shell: Shell, program: list[str], begun: bytes, latest_s: float) -> None:
    """Starts runs and types Ctrl-C at a moment within so many seconds after a program has said that it began."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    assert shell.aliquot("cards", "--simulate").returncode == 0
    for _ in range(TRIES):
        process, terminal = start_in_terminal(shell, program)
        assert not begun or os.read(terminal, len(begun)) == begun
        after_s = dice.uniform(0, latest_s)
        time.sleep(after_s)  # the moment is what is tried
        os.write(terminal, b"\x03")
        try:
            assert process.wait(WAIT_S) in INTERRUPTED, after_s
        finally:
            process.kill()
            os.close(terminal)
    assert shell.promised() == [0, 0]


def test_it_is_never_swallowed(shell: Shell) -> None:
    """Before the first import, between fork and exec, or later; the seed is printed."""
    interrupt_at_random(shell, [sys.executable, "-c", PROGRAM], STARTED, LATEST_S)


def test_it_is_never_swallowed_while_the_interpreter_starts(shell: Shell) -> None:
    """Python's handler makes status 1 of it there: in 1 of 6 of these moments with the script that pip makes."""
    interrupt_at_random(shell, INSTALLED, b"", LATEST_IN_START_S)


def test_an_interrupt_in_an_import_is_no_other_error(shell: Shell) -> None:
    """Where Python's own handler would raise what the import turns into another error and another status."""
    done = subprocess.run(
        [sys.executable, "-c", IN_AN_IMPORT, "cards", "--simulate"],
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
