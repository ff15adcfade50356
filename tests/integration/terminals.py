"""Interactive shells, each in a terminal of its own, in which is typed what a person would type."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.shells import WAIT_S

CTRL_C, CTRL_Z = "\x03", "\x1a"
ROWS, COLUMNS = 50, 160
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()].|\x1b.")


class Terminal:
    """One terminal; what it has shown so far is kept, without escape sequences."""

    def __init__(self, descriptor: int, shell: int) -> None:
        self._descriptor = descriptor
        self.shell = shell
        """The shell's process group."""
        self.shown = ""

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self._descriptor, text.encode())

    def foreground(self) -> int:
        """The process group that Ctrl-C would interrupt."""
        return os.tcgetpgrp(self._descriptor)

    def modes(self) -> int:
        """Its local modes: ECHO, ICANON and others of termios."""
        return int(termios.tcgetattr(self._descriptor)[3])

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until something new that matches has been shown; what was shown up to there counts as read."""
        deadline = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown!r}"
            if select.select([self._descriptor], [], [], 1)[0]:
                self.shown += _ESCAPES.sub("", os.read(self._descriptor, 65536).decode(errors="replace"))
        self.shown = self.shown[found.end() :]
        return found


def _own_the_terminal() -> None:
    """As in a terminal's window: Ctrl-C is not ignored, though it is by the jobs in the background of a script."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def terminal(environment: Mapping[str, str], directory: Path) -> Iterator[Terminal]:
    """An interactive bash; it is killed in the end, as when a terminal's window is closed."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=directory,
        env={**environment, "PS1": "", "TERM": "xterm"},
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
        preexec_fn=_own_the_terminal,  # noqa: PLW1509 -- this process has one thread
    )
    os.close(there)
    try:
        yield Terminal(here, bash.pid)
    finally:
        os.close(here)  # a hang-up for all that runs in it
        bash.wait(WAIT_S)
