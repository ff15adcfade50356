"""Which group may keep the few places that it finds until it has all.

Among a steady stream of small pods a large group would never find room for all its members at one moment. So one that
has found none for long enough saves up: it keeps what it finds, before others are answered. Only one group in the
cluster does at a time, so no two can wait for each other's places; the one that has waited longest does, for a limited
time. If that was in vain nobody saves for as long, and it waits twice as long before it does again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler_ext.gang import Gang

PATIENCE_SECONDS: Final = 300.0
"""How long a group finds no room before it saves up, and how long it does so at most."""
MOST_TIMES: Final = 8
"""A group that has saved in vain again and again waits for so many times as long."""


@dataclass
class Saving:
    """Whose turn it is.

    Attributes:
        seconds: The patience; 0 where nobody saves.
        saver: Who saves up now.
    """

    seconds: float = PATIENCE_SECONDS
    saver: Gang | None = None
    _until: float = 0.0
    _nobody_before: float = 0.0

    def choose(self, gangs: Iterable[Gang], now: float) -> Gang | None:
        """Who saves up from now on; None where somebody does already, or nobody has waited long enough."""
        if self.saver is not None or not self.seconds or now < self._nobody_before:
            return None
        waiting = [g for g in gangs if g.short_since is not None and self._patient(g, now)]
        if not waiting:
            return None
        self.saver = min(waiting, key=lambda g: g.short_since or 0.0)
        self._until = now + self.seconds
        return self.saver

    def over(self, now: float) -> bool:
        """Whether whoever saves has done so for long enough, or has no use for it any more."""
        return self.saver is not None and (now >= self._until or bool(self.saver.obstacle(now)))

    def end(self, now: float, *, in_vain: bool) -> None:
        """It has all, or has to give up."""
        gang, self.saver = self.saver, None
        if gang is not None and in_vain:
            gang.saved += 1
            gang.short_since = now
            self._nobody_before = now + self.seconds

    def _patient(self, gang: Gang, now: float) -> bool:
        waited = now - (gang.short_since or 0.0)
        return waited >= self.seconds * min(2**gang.saved, MOST_TIMES) and not gang.obstacle(now)
