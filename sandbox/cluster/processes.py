"""Processes of the pocket cluster: started with a log file, waited for, killed by pid, started again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

POLL_SECONDS = 0.02
"""At first. A look costs the servers that are waited for as much as it costs who looks."""
POLL_GROWTH, MOST_POLL_SECONDS = 1 / 20, 0.25
"""After a while the pause is this part of the time that has been waited, up to so many seconds."""
PATIENCE_SECONDS = 120.0
"""For what takes a second on an idle machine."""
STOP_SECONDS = 10.0
PORTS = range(20_000, 30_000)
"""Below those that the kernel gives to whoever connects, or listens on any."""


class ProcessError(Exception):
    """A process ended before it was ready, or took too long; the text ends with its log's tail."""


def free_port(turns: Path | None = None) -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now, and that is still free when a program has started.

    Those who have a file of turns in common are given a port again when all others were, and never by the kernel.

    Args:
        turns: the file; by default that of all processes of a user, which stays.
    """
    path = turns or Path(tempfile.gettempdir(), f"aliquot-ports-{os.getuid()}")
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        turn = int(file.read() or random.randrange(len(PORTS)))  # noqa: S311 - no secret
        port: int = next(filter(_is_free, (*PORTS[turn:], *PORTS[:turn])))
        file.truncate(0)
        file.write(str(PORTS.index(port) + 1))
        return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_for(
    description: str,
    predicate: Callable[[], T],
    deadline: float = PATIENCE_SECONDS,
    every: float = POLL_SECONDS,
    growth: float = POLL_GROWTH,
) -> T:
    """Call `predicate` until it gives something true, and return that.

    Args:
        description: what is waited for, for the error.
        predicate: called again and again, at first every few milliseconds.
        deadline: seconds.
        every: the least seconds from the end of one call to the next.
        growth: the pause as a part of the time that has been waited, once that is more; 0 for who measures that time.

    Raises:
        TimeoutError: nothing true within the deadline.
    """
    begin = time.monotonic()
    while True:
        if result := predicate():
            return result
        waited = time.monotonic() - begin
        if waited > deadline:
            raise TimeoutError(f"waited {deadline:g} s for {description}; last: {result!r}")
        time.sleep(max(every, min(waited * growth, MOST_POLL_SECONDS)))


@dataclass
class Process:
    """One program that can be killed and started again with the same command line.

    Attributes:
        ready: says whether the program serves; None: ready as soon as it runs.
    """

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    ready: Callable[[], bool] | None = None
    _popen: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Its pid; 0 when it does not run."""
        return self._popen.pid if self._popen is not None and self.running else 0

    def start(self, deadline: float = PATIENCE_SECONDS) -> None:
        """Start it and wait until it is ready (seconds); its output is appended to the log."""
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        try:
            wait_for(f"{self.name} to be ready", self._is_ready, deadline)
        except TimeoutError as error:
            raise ProcessError(f"{error}; its log ends:\n{self.tail()}") from error

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        self._end(signal.SIGTERM)

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _is_ready(self) -> bool:
        if not self.running:
            code = self._popen.returncode if self._popen else None
            raise ProcessError(f"{self.name} ended with status {code}; its log ends:\n{self.tail()}")
        return self.ready is None or self.ready()

    def _end(self, number: signal.Signals) -> None:
        if self._popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
