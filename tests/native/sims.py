"""Programs on a simulated machine, no interceptor in between: the C client, and NVIDIA's Python packages."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from aliquot.sandbox.gpus import SimMachine

Answers = list[dict[str, Any]]

PRELUDE = """
import sys
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0].name
    return None if len(answer) == 1 else answer[1] if len(answer) == 2 else answer[1:]

def start(device=0):
    check(cuda.cuInit(0))
    check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(device))))
"""


@cache
def client() -> Path:
    """The client that looks the driver up as libcudart does, compiled. It lives as long as the test run."""
    directory = tempfile.mkdtemp(prefix="aliquot-client-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    target = Path(directory) / "cudart_client"
    source = Path(__file__).with_name("cudart_client.c")
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", target, source, "-ldl"], check=True
    )
    return target


def busy_ns(machine: SimMachine, card: int = 0) -> int:
    """How long a card ran anything at all, by its own record."""
    return sum(run.end_ns - run.start_ns for run in machine.busy(machine.cards[card].uuid))


def environment(machine: SimMachine, **extra: str) -> dict[str, str]:
    """That of a host process."""
    return {**os.environ, **machine.env(), **extra}


def start(machine: SimMachine, *commands: object, **extra: str) -> subprocess.Popen[str]:
    """Starts the C client with its commands."""
    return subprocess.Popen(
        [client(), *map(str, commands)],
        env=environment(machine, **extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], what: str) -> None:
    """Reads the client's answers until it has done something."""
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["do"] == what:
            return
    raise AssertionError(f"the client ended before {what}")


def ask(machine: SimMachine, *commands: object, **extra: str) -> Answers:
    """Runs the C client to its end; returns its answers but for the one to its start, which must be good."""
    output, errors = start(machine, *commands, **extra).communicate(timeout=60)
    assert output, errors
    first, *answers = [json.loads(line) for line in output.splitlines()]
    assert first == {"do": "start", "result": 0}
    return answers


def run_python(machine: SimMachine, program: str, *arguments: object, **extra: str) -> str:
    """Runs a Python program, with `check` and `start` at hand, to its end; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, *map(str, arguments)],
        env=environment(machine, **extra),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Returns once a condition holds; fails after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)
