"""Keeps a service running within its container: `aliquot-supervise --health URL -- COMMAND…`.

A kubelet starts a container that has ended again, but waits longer each time, up to five minutes. A service that others
depend on every second cannot wait so long. So its process has this one as its parent, which starts it again at once
when it has died, and kills it when it hangs.

    starts ──answers──> works ──dies────────────────────────> starts again
       │                  └─silent, and uses no CPU: SIGKILL ──┘
       └─exits before it answers──> the container ends, too

A process that exits before it answers cannot work as it is started (a wrong flag, no certificate). The container ends
with its exit status then, and the kubelet's back-off and `kubectl describe pod` apply as usual.

A service that uses CPU time is busy, not stuck: it has `BUSY_SECONDS` to answer.
"""

import argparse
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aliquot.server import log
from aliquot.server.health import HealthClient

LOOK_SECONDS: Final = 0.5
FIRST_LOOK_SECONDS: Final = 0.1
"""Between two looks before the first answer."""
SILENT_SECONDS: Final = 3.0
"""Without an answer and without any use of CPU time: it hangs."""
STARTING_SECONDS: Final = 5.0
"""The same, before its first answer: it may wait for a disk."""
BUSY_SECONDS: Final = 30.0
"""Without an answer, though it uses CPU time."""
MOST_STARTS: Final = 5
"""Killed by signals so often before it has answered for the first time, the service is given up."""
KILLED: Final = 128
"""A shell's exit status for a process that a signal has ended is this and the signal's number."""

MOST_SIGNALS: Final = 4096
"""Read from the pipe at once."""

_CAUGHT: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long a service may be silent, in seconds, before it is killed.

    Attributes:
        silent: Without using CPU time.
        starting: The same before its first answer.
        busy: While it uses CPU time.
    """

    silent: float = SILENT_SECONDS
    starting: float = STARTING_SECONDS
    busy: float = BUSY_SECONDS


class Child:
    """One process of the service."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it, with no signal blocked. Raises OSError."""
        self.pid = os.posix_spawnp(command[0], list(command), os.environ, setsigmask=())
        self.answered = False
        self._status: int | None = None
        self._cpu = 0
        self._answered_at = self._moved_at = time.monotonic()

    def ended(self) -> int | None:
        """What `os.waitpid` says of it; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, if it has not ended."""
        if self.ended() is None:
            os.kill(self.pid, number)

    def look(self, health: HealthClient, patience: Patience) -> str:
        """Ask for its health; why it has to be killed, and an empty text while it does not."""
        answers, now = health.answers(), time.monotonic()
        if answers:
            self.answered = True
            self._answered_at = self._moved_at = now
            return ""
        if (used := self._cpu_ticks()) != self._cpu:
            self._cpu, self._moved_at = used, now
        still = patience.silent if self.answered else patience.starting
        if now - max(self._moved_at, self._answered_at) >= still:
            return f"it has neither answered nor used CPU time for {still:g} s"
        limit = max(patience.busy, still)
        if self.answered and now - self._answered_at >= limit:
            return f"it has not answered for {limit:g} s"
        return ""

    def _cpu_ticks(self) -> int:
        """User and system time of all its threads; what it was where it has just ended."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return self._cpu
        fields = text.rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


class Supervisor:
    """Runs a service until a signal says stop, or the service cannot be started."""

    def __init__(
        self, command: Sequence[str], health: HealthClient, patience: Patience | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            command: The service's program and its arguments.
            health: Where it answers once it works.
            patience: How long it may be silent.
        """
        self._command = command
        self._health = health
        self._patience = patience or Patience()
        self._ending = False
        self._has_answered = False
        self._killed = 0

    def run(self) -> int:
        """Keep the service running; the exit status that it has ended with in the end. Raises OSError."""
        with _caught() as signals:
            while True:
                child = Child(self._command)
                status = os.waitstatus_to_exitcode(self._follow(child, signals))
                if self._gives_up(child, status):
                    return KILLED - status if status < 0 else status
                _log.warning("%s has ended (%s) and is started again", self._command[0], _words(status))

    def _gives_up(self, child: Child, status: int) -> bool:
        """Whether a child's end is the service's."""
        self._has_answered |= child.answered
        if status < 0:
            self._killed += 1
            return self._ending or (not self._has_answered and self._killed >= MOST_STARTS)
        return self._ending or not child.answered

    def _follow(self, child: Child, signals: int) -> int:
        """Look after a child until it has ended: what `os.waitpid` says of it."""
        while True:
            pause = LOOK_SECONDS if child.answered else FIRST_LOOK_SECONDS
            came, _, _ = select.select([signals], [], [], pause)
            for number in os.read(signals, MOST_SIGNALS) if came else b"":
                if number != signal.SIGCHLD:
                    self._ending = True
                    child.kill(number)
            if (status := child.ended()) is not None:
                return status
            if not self._ending and (why := child.look(self._health, self._patience)):
                _log.error("%s is killed: %s", self._command[0], why)
                child.kill()


@contextmanager
def _caught() -> Iterator[int]:
    """Catches signals; yields the read end of a pipe that receives the number of each.

    `signal.sigtimedwait` cannot be used: if the process stands still until the time is over, Python 3.11 to 3.13
    returns an uninitialized signal.
    """
    here, there = os.pipe()
    os.set_blocking(there, False)
    fd = signal.set_wakeup_fd(there, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in _CAUGHT}
    try:
        yield here
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd)
        os.close(here)
        os.close(there)


def _words(status: int) -> str:
    return f"by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def main(arguments: list[str] | None = None) -> int:
    """Run a service; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="aliquot-supervise",
        description="Runs a service, and starts it again at once when it has died or hangs.",
    )
    parser.add_argument(
        "--health",
        type=HealthClient,
        required=True,
        metavar="URL",
        help="where the service says that it is well",
    )
    log.add_arguments(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: the service and its arguments")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("name the service's program, after --")
    log.configure(options.log_level, options.log_format)
    try:
        return Supervisor(command, options.health).run()
    except OSError as error:
        sys.stderr.write(f"aliquot-supervise: {command[0]}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
