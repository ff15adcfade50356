"""Programs that say when they are ready, wait for the instant at which to begin, and tell what they did."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

Process = subprocess.Popen[str]
HEAD_START_NS = 100_000_000


class RunError(Exception):
    """A run came to nothing; the message says why."""


def start(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Starts a program, with so much in its environment beside ours."""
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def await_ready(process: Process) -> None:
    """Waits until a program is ready.

    Raises:
        RunError: it ended.
    """
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RunError(f"a tenant's program ended with {process.wait()} before it was ready")


def release(processes: Sequence[Process]) -> int:
    """Has programs that are ready begin at the same instant, which it returns."""
    begin = time.monotonic_ns() + HEAD_START_NS
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{begin}\n")
        process.stdin.flush()
    return begin


def kill(process: Process) -> None:
    """Kills a program."""
    process.kill()
    process.communicate()
