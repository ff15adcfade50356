"""A user's shell, in which `aliquot` is started as a person starts it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from aliquot.api import names

ALIQUOT = [sys.executable, "-m", "aliquot.cli"]
WAIT_S = 60.0
LOOK_EVERY_S = 0.02


class Shell:
    """A user's shell: runs `aliquot` with a runtime directory of its own."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ALIQUOT_")}
        inherited.pop("CUDA_VISIBLE_DEVICES", None)
        self.environment = {
            **inherited,
            "XDG_RUNTIME_DIR": str(runtime),
            names.CLAIMS_ENV: str(runtime / "claims"),
        }

    def aliquot(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `aliquot` to its end."""
        return subprocess.run(
            [*ALIQUOT, *arguments],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(
        self, *arguments: str, simulate: bool = True, stderr: int | None = None
    ) -> subprocess.Popen[str]:
        """Starts `aliquot run …`, by default with `--simulate`; its standard input is a pipe."""
        command = [*ALIQUOT, "run", *(["--simulate"] if simulate else []), *arguments]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def cards(self) -> list[dict[str, object]]:
        """What `aliquot cards` says."""
        done = self.aliquot("cards", "--simulate", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, object]] = json.loads(done.stdout)["cards"]
        return found

    def promised(self) -> list[object]:
        """Bytes promised of each card."""
        return [card["promisedBytes"] for card in self.cards()]

    def run_directories(self) -> list[str]:
        """What runs have left or still use."""
        return sorted(path.name for path in self.runtime.glob("aliquot/*/runs/*"))


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; fails when it has not come true in time."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(LOOK_EVERY_S)


def line_with(stream: IO[str] | None, words: str) -> str:
    """The next line of a process's output that has these words."""
    assert stream is not None
    for line in stream:
        if words in line:
            return line.strip()
    raise AssertionError(f"ended without {words!r}")


TENANT = """
import sys
from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
driver.cuCtxSetCurrent(context)
print("ready", flush=True)
for line in sys.stdin:
    verb, mib = line.split()
    if verb == "alloc":
        print(driver.cuMemAlloc(int(mib) << 20)[0].name, flush=True)
    elif verb == "alloc-in-pool":
        print(driver.cuMemAllocAsync(int(mib) << 20, 0)[0].name, flush=True)
    else:
        print(driver.cuMemGetInfo()[2] >> 20, flush=True)
"""


class Tenant:
    """A CUDA program in a run, that does what it is told."""

    def __init__(self, shell: Shell, *options: str, simulate: bool = True, stderr: int | None = None) -> None:
        self.process = shell.start(*options, sys.executable, "-c", TENANT, simulate=simulate, stderr=stderr)
        self.name = str(self.process.pid)
        """A pid is one of the names of a run."""
        assert self.answer() == "ready"

    def answer(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, verb: str, mib: int = 0) -> str:
        """Tells it what to do; returns what came of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{verb} {mib}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Lets it end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WAIT_S) == 0
