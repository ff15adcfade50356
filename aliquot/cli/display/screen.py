"""A terminal in which a table changes in its place, until `q`, Ctrl-C or SIGTERM ends it.

Keys come one by one meanwhile and are not shown. When it ends, or is stopped by Ctrl-Z, the terminal is as it was.
"""

import os
import select
import signal
import sys
import termios
import time
import tty
from types import FrameType
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

ENDS: Final = frozenset({b"q", b"Q", b""})
"""Keys that end it; b"": the terminal is gone."""
ENDED_BY_SIGNAL: Final = 128
STANDARD_INPUT: Final = 0


class Keyboard:
    """Standard input, key by key, where it is a terminal."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def take(self) -> None:
        """Has keys come one by one from here on."""
        if os.isatty(STANDARD_INPUT):
            self._before = termios.tcgetattr(STANDARD_INPUT)
            tty.setcbreak(STANDARD_INPUT, termios.TCSADRAIN)

    def give_back(self) -> None:
        """Leaves the terminal as it was found."""
        if self._before is not None:
            termios.tcsetattr(STANDARD_INPUT, termios.TCSADRAIN, self._before)

    @property
    def files(self) -> list[int]:
        """What is to be waited for: nothing, where there are no keys."""
        return [] if self._before is None else [STANDARD_INPUT]

    def ends(self) -> bool:
        """Whether the next key, which has been pressed, is one that ends it."""
        try:
            return os.read(STANDARD_INPUT, 1) in ENDS
        except OSError:  # a terminal that was closed
            return True


class Screen:
    """Shows one table after the other; on a terminal that can move its cursor in one place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, screen=True)
        self._keyboard = Keyboard()
        self._stop_asked = self._ending = False
        self._signalled, self._signals = os.pipe()

    def __enter__(self) -> Self:
        """Takes the terminal. In the background of a shell that stops this process, as it stops any editor."""
        os.set_blocking(self._signals, False)
        signal.set_wakeup_fd(self._signals)
        signal.signal(signal.SIGINT, self._end_once)
        signal.signal(signal.SIGTERM, self._end_once)
        signal.signal(signal.SIGTSTP, self._ask_to_stop)
        try:
            self._begin()
        except BaseException:  # Ctrl-C among others
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._end()

    def show(self, table: Text) -> None:
        """Shows a table."""
        if self._console.is_dumb_terminal:
            print_cut(self._console, table)
        else:
            self._live.update(table, refresh=True)

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until a key ends it: then true."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._signalled, *self._keyboard.files], [], [], left)
            if self._signalled in ready:
                os.read(self._signalled, 1)
                self._stop_if_asked()
            elif ready and self._keyboard.ends():
                return True
        return False

    def _begin(self) -> None:
        self._keyboard.take()
        if not self._console.is_dumb_terminal:
            self._live.start()

    def _end(self) -> None:
        try:
            self._live.stop()
        finally:
            self._keyboard.give_back()

    def _end_once(self, number: int, _frame: FrameType | None) -> None:
        """Ends what goes on. An impatient user's second Ctrl-C must not end what gives the terminal back."""
        if self._ending:
            return
        self._ending = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(ENDED_BY_SIGNAL + number)

    def _ask_to_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _stop_if_asked(self) -> None:
        """Stops this process by SIGTSTP, with the terminal given back until it goes on."""
        if not self._stop_asked:
            return
        self._stop_asked = False
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._ask_to_stop)
        self._begin()


def print_cut(console: Console, table: Text) -> None:
    """Rows that are wider than the terminal are cut, as in the table that changes in its place."""
    console.print(table, no_wrap=True, overflow="crop", crop=True)
