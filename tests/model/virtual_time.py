"""Virtual time: one clock for the whole process, and an event loop that never waits.

The clock stands still while code runs and jumps to the next timer when the loop is idle. `install` puts it in place of
Python's own clocks; it has to be called before the extender is imported, because many of its functions keep
`time.monotonic` as a default argument.

A watchdog counts the processor time of every turn of the loop. A turn that uses more than its budget, or a loop that
turns for ever without letting time pass, is a `HungError`, raised at the place where the program hangs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import selectors
import signal
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN: Final = 1795341600.0
"""2026-11-22T10:00:00Z."""
TURN_SECONDS: Final = 5.0
"""Processor time of one turn of the loop. The slowest ones take some ten milliseconds."""
TURNS: Final = 100_000
"""Turns in a row in which no time passes."""
_real_datetime = dt.datetime


class HungError(KeyboardInterrupt):
    """The program under test does not come to an end. A task of asyncio would keep any other exception to itself."""


class StandstillError(Exception):
    """Nothing will ever happen again: no task waits for a time."""


class Clock:
    """Seconds since the beginning of a history."""

    def __init__(self) -> None:
        self.now = 0.0

    def stamp(self, at: float | None = None) -> str:
        """A time as Kubernetes writes it."""
        moment = _real_datetime.fromtimestamp(BEGIN + (self.now if at is None else at), dt.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def read(stamp: str) -> float:
        """The seconds of such a time."""
        return _real_datetime.fromisoformat(stamp).timestamp() - BEGIN


CLOCK: Final = Clock()


class _VirtualDatetime(_real_datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return _real_datetime.fromtimestamp(BEGIN + CLOCK.now, tz)


def install() -> None:
    """Let the whole process live by the virtual clock from now on."""
    time.monotonic = lambda: CLOCK.now  # type: ignore[assignment]
    time.time = lambda: BEGIN + CLOCK.now  # type: ignore[assignment]
    time.clock_gettime = lambda _which: CLOCK.now  # type: ignore[assignment]
    dt.datetime = _VirtualDatetime  # type: ignore[misc]


class _Selector(selectors.BaseSelector):
    """Has no files; lets the clock jump instead of waiting."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self._turns = 0
        self.watched = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """The loop's own pipe, which is never used."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is registered."""
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let time pass until the next timer."""
        if timeout is None:
            raise StandstillError
        if timeout > 0:
            CLOCK.now += timeout
            self._turns = 0
        self._turns += 1
        if self._turns > TURNS:
            raise HungError(f"the loop has turned {TURNS} times and no time has passed")
        if self.watched:
            signal.setitimer(signal.ITIMER_VIRTUAL, TURN_SECONDS)
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop of virtual time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return CLOCK.now

    def run(self, main: Any) -> Any:
        """Run a coroutine from the beginning of time, watched; cancel whatever it leaves behind."""
        CLOCK.now = 0.0
        before = signal.signal(signal.SIGVTALRM, _hung)
        self._virtual.watched = True
        asyncio.set_event_loop(self)
        try:
            return self.run_until_complete(main)
        except HungError:
            self._cancel_all()
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._virtual.watched = False
            signal.signal(signal.SIGVTALRM, before)
            asyncio.set_event_loop(None)
            self.close()

    def _cancel_all(self) -> None:
        self.set_exception_handler(
            lambda _loop, _context: None
        )  # the hang is told of; its task has nothing to add
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _hung(_number: int, frame: Any) -> None:
    places = []
    while frame is not None and len(places) < 8:
        places.append(
            f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        )
        frame = frame.f_back
    raise HungError(
        f"one turn of the loop has used {TURN_SECONDS:g} s of processor time, in {' < '.join(places)}"
    )
