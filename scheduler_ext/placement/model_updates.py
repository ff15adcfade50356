"""Learns while nobody waits: works out what is typical between the calls, a fraction of a millisecond at a time."""

import asyncio
import contextlib
from typing import Final

from aliquot.scheduler_ext.placement.placer import Placer

PAUSE_SECONDS: Final = 0.1
"""Between looks at whether there is anything to learn."""
PATIENCE_SECONDS: Final = 0.02
"""Calls come first, but not for ever: with more of them than can be answered there is never a quiet moment."""


class Quiet:
    """Knows whether any call is under way: entered as one begins, left as it is answered."""

    def __init__(self) -> None:
        self._calls = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._calls += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._calls -= 1
        if not self._calls:
            self._none.set()

    async def moment(self) -> None:
        """Wait for a moment without calls; not for long."""
        await asyncio.sleep(0)
        if not self._none.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none.wait(), PATIENCE_SECONDS)


class ModelUpdater:
    """Goes through a placer's lessons."""

    def __init__(self, placer: Placer, quiet: Quiet) -> None:
        """Learn nothing yet.

        Args:
            placer: Whose lessons.
            quiet: When.
        """
        self._placer = placer
        self._quiet = quiet

    async def run(self) -> None:
        """Learn until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            if self._placer.has_lessons:
                for _ in self._placer.lessons():
                    await self._quiet.moment()
