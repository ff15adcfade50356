"""A fence before writes: for one that may be replaced, and must not write any more from a certain moment on.

A check before a write is worth little if the process can be stopped between the two, or if a connection is made
meanwhile. So the fence is asked as the body goes to the socket: what is refused there has not left the process, for
a request without its body does nothing. What has left is given up after `seconds`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import AbstractStreamWriter


class FenceClosedError(Exception):
    """No write may begin now; the message says why."""


@dataclass
class Fence:
    """Says whether a write may begin, and remembers writes whose answer did not come.

    Attributes:
        closed: Why none may begin now; an empty text while they may.
        seconds: How long an answer is waited for.
        clock: Monotonic seconds.
    """

    closed: Callable[[], str]
    seconds: float
    clock: Callable[[], float] = time.monotonic
    _under_way: int = field(default=0, init=False)
    _lost: float = field(default=-math.inf, init=False)

    def check(self) -> None:
        """Raises FenceClosedError where no write may begin."""
        why = self.closed()
        if why:
            raise FenceClosedError(why)

    def begin(self) -> None:
        """A write begins."""
        self._under_way += 1

    def end(self, *, answered: bool) -> None:
        """It has ended; `answered`: the server has said what became of it."""
        self._under_way -= 1
        if not answered:
            self._lost = self.clock()

    def quiet(self, seconds: float) -> bool:
        """Whether nothing is under way, and no answer has been given up for that long."""
        return not self._under_way and self.clock() - self._lost > seconds


class FencedBody(aiohttp.BytesPayload):
    """The body of a write."""

    def __init__(self, value: bytes, fence: Fence) -> None:
        super().__init__(value)
        self._fence = fence

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it, unless the fence is closed now."""
        self._fence.check()
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send it, unless the fence is closed now."""
        self._fence.check()
        await super().write_with_length(writer, content_length)
