"""Containers as processes: starting them, finding them again after a restart, ending them.

A container's directory holds, per attempt, what the shim was told (`.spec.json`) and what it reports (`.pid`,
`.exit`, `.error`). These files are the only state, so a new kubelet knows all that the killed one knew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.kubelet import shim
from aliquot.sandbox.cluster.logs import log_path
from aliquot.sandbox.cluster.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHIM_START_SECONDS = 5.0
POLL_SECONDS = 0.01
UNKNOWN_EXIT = 137


@dataclass(frozen=True)
class Launch:
    """What to run: the program with all CDI and volume edits applied."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str


@dataclass(frozen=True)
class Exit:
    """How an attempt ended; times in seconds since the epoch."""

    code: int
    finished: float
    reason: str
    message: str = ""


class Runtime:
    """All attempts of one container on this machine."""

    def __init__(self, pods: Path, pod_uid: str, name: str) -> None:
        self.directory = pods / pod_uid / name
        self._log = log_path(pods, pod_uid, name)
        self._previous_log = log_path(pods, pod_uid, name, previous=True)

    @property
    def attempt(self) -> int:
        """Number of the last attempt, counted from 0; -1 before the first."""
        attempts = [int(path.name.split(".")[0]) for path in self.directory.glob("*.spec.json")]
        return max(attempts, default=-1)

    def id_of(self, attempt: int) -> str:
        """Identity of an attempt, as pod statuses print it."""
        return f"process://{self.directory.parent.name}/{self.directory.name}/{attempt}"

    def started_of(self, attempt: int) -> float:
        """When an attempt began, in seconds since the epoch; 0 when unknown."""
        report = self._report("pid", attempt)
        return float(report["started"]) if report else 0.0

    @property
    def pid(self) -> int:
        """The program's process; 0 when it is not running."""
        report = self._report("pid")
        return int(report["pid"]) if report and self.running else 0

    @property
    def running(self) -> bool:
        """Whether the last attempt is under way."""
        return self.attempt >= 0 and self._shim() != 0 and self._report("exit") is None

    def exit_of(self, attempt: int) -> Exit | None:
        """How an attempt ended; None while it runs or when there was none."""
        if attempt < 0 or (attempt == self.attempt and self.running):
            return None
        ended = self._report("exit", attempt)
        if ended is None:
            return Exit(
                UNKNOWN_EXIT, time.time(), "ContainerStatusUnknown", "the container's process is gone"
            )
        code, finished = int(ended["code"]), float(ended["finished"])
        if failure := self._report("error", attempt):
            return Exit(code, finished, "StartError", f"failed to create containerd task: {failure}")
        return Exit(code, finished, "Completed" if code == 0 else "Error")

    async def start(self, launch: Launch) -> None:
        """Begin the next attempt and return once its process exists."""
        attempt = self.attempt + 1
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._log.exists():
            self._log.replace(self._previous_log)
        spec = {"argv": list(launch.argv), "env": dict(launch.env), "cwd": launch.cwd}
        (self.directory / f"{attempt}.spec.json").write_text(json.dumps(spec))
        with self._log.open("ab") as log:
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", str(Path(shim.__file__)), str(self.directory), str(attempt)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={},
            )
        await self._reported()

    async def settle(self) -> None:
        """After a kubelet was killed in the middle of `start`: the attempt happened, or it is forgotten."""
        if self.attempt >= 0:
            await self._reported()
            if self._report("pid") is None:
                (self.directory / f"{self.attempt}.spec.json").unlink()

    async def wait(self) -> None:
        """Return when the last attempt has ended."""
        shim_pid = self._shim()
        if not shim_pid:
            return
        try:
            handle = os.pidfd_open(shim_pid)
        except ProcessLookupError:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""
        if not self.running:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.wait()

    def kill(self) -> None:
        """SIGKILL at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def _reported(self) -> None:
        deadline = time.monotonic() + SHIM_START_SECONDS
        while self._report("pid") is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)  # The shim is another process: its file is all there is.

    def _report(self, kind: str, attempt: int | None = None) -> dict[str, float] | None:
        number = self.attempt if attempt is None else attempt
        try:
            report: dict[str, float] = json.loads((self.directory / f"{number}.{kind}").read_text())
        except FileNotFoundError:
            return None
        return report

    def _shim(self) -> int:
        """The living shim of the last attempt; 0 when there is none (a pid used again does not count)."""
        report = self._report("pid")
        if report is None:
            return 0
        pid = int(report["shim"])
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return 0
        return pid if str(self.directory).encode() in command else 0


def containers_in(pods: Path, pod_uid: str) -> Iterator[Runtime]:
    """The containers of a pod that have left traces on this machine."""
    if (pods / pod_uid).is_dir():
        for directory in (pods / pod_uid).iterdir():
            if directory.is_dir() and directory.name != "volumes":
                yield Runtime(pods, pod_uid, directory.name)


def kill_all(pods: Path) -> None:
    """End every container below a directory at once, and wait until its shim has written how; for the machine's end.

    Raises:
        TimeoutError: a container does not end.
    """
    containers = [one for pod in pods.glob("*") for one in containers_in(pods, pod.name)]
    for container in containers:
        container.kill()
    wait_for("all containers to end", lambda: not any(one.running for one in containers))


def remove(pods: Path, pod_uid: str) -> None:
    """Forget a pod's files, logs included."""
    shutil.rmtree(pods / pod_uid, ignore_errors=True)
