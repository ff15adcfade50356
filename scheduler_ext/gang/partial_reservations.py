"""Which group may keep the few places that it finds until it has all, and for which large pod a node is kept.

Among a steady stream of small pods a large group would never find room for all its members at one moment, nor a pod
of eight cards eight free ones. So one that has found none for long enough saves up: a group keeps each place that it
finds, a pod keeps others from one node. One in the cluster does at a time, so no two can wait for each other's places:
of those of the highest priority the one that has waited longest, for a limited time. If that was in vain nobody saves
for as long, and it waits twice as long before it does again.

What can have no room even if no other pod were there saves nothing. What is saved is no obstacle for pods and groups of
a higher priority, and one of a higher priority that has waited long enough takes the turn.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aliquot.scheduler_ext.gang.gang import Gang
from aliquot.scheduler_ext.gang.large_pods import LargePod

PATIENCE_SECONDS: Final = 300.0
"""How long a group finds no room before it saves up, and how long it does so at most."""
MOST_TIMES: Final = 8
"""A group that has saved in vain again and again waits for so many times as long."""

_log = logging.getLogger(__name__)

Saver = Gang | LargePod


@dataclass
class PartialReservations:
    """Whose turn it is.

    Attributes:
        seconds: The patience; 0 where nobody saves.
        saver: Who saves up now.
    """

    seconds: float = PATIENCE_SECONDS
    saver: Saver | None = None
    _until: float = 0.0
    _nobody_before: float = 0.0

    @property
    def gang(self) -> Gang | None:
        """The group that saves up now."""
        return self.saver if isinstance(self.saver, Gang) else None

    def choose(self, savers: Iterable[Saver], could_fit: Callable[[Saver], bool], now: float) -> Saver | None:
        """Who saves up from now on; None where that does not change. No more than one is found too large at a time."""
        if not self.seconds or now < self._nobody_before:
            return None
        waiting = [one for one in savers if self._patient(one, now) and self._comes_before(one)]
        best = min(waiting, key=lambda one: (-one.priority, one.short_since or 0.0), default=None)
        if best is None:
            return None
        best.too_large = not could_fit(best)
        if best.too_large:
            _log.info(
                "%s saves up nothing: it would not fit where places may be kept, even if no other pod were there",
                best,
            )
            best.short_since = now
            return None
        self.saver, self._until = best, now + self.seconds
        return best

    def begin(self, one: Saver, now: float) -> bool:
        """Let one save up before its time, if none does; whether it does now."""
        if self.saver is not None or not self.seconds:
            return False
        self.saver, self._until = one, now + self.seconds
        return True

    def over(self, now: float) -> bool:
        """Whether whoever saves has done so for long enough, or has no use for it any more."""
        return self.saver is not None and (now >= self._until or bool(self.saver.obstacle(now)))

    def end(self, now: float, *, in_vain: bool) -> None:
        """It has all, or has to give up."""
        one, self.saver = self.saver, None
        if one is not None and in_vain:
            one.saved += 1
            one.short_since = now
            self._nobody_before = now + self.seconds

    def kept_from(self, uid: str, priority: int) -> str:
        """The node that is kept for a large pod, and not for the one of this UID and priority; empty where none is."""
        one = self.saver
        if not isinstance(one, LargePod) or one.request.uid == uid or one.priority < priority:
            return ""
        return one.node

    def _comes_before(self, one: Saver) -> bool:
        return one is not self.saver and (self.saver is None or one.priority > self.saver.priority)

    def _patient(self, one: Saver, now: float) -> bool:
        if one.short_since is None:
            return False
        waited = now - one.short_since
        return waited >= self.seconds * min(2**one.saved, MOST_TIMES) and not one.obstacle(now)
