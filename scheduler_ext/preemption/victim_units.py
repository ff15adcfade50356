"""Which units of pods have to leave so that a group has room: the fewest of those that go most gladly.

A unit is a pod, or all of a group that could not go on without one of them. The most willing are taken as gone, twice
as many each time, until there is room; then half of the difference, and so on; then whoever need not go stays, in ever
smaller parts. That supposes that whoever leaves makes no less room.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aliquot.scheduler_ext.preemption.candidates import Rank
from aliquot.scheduler_ext.state.running_pods import RunningPod

MOST_SECONDS: Final = 5.0
"""For the search for one group, pauses left out."""


class TooLongError(Exception):
    """A search has taken its time."""


@dataclass(frozen=True)
class Unit:
    """Pods that go together.

    Attributes:
        rank: That of the least willing of them.
        pods: One, or several of one group.
    """

    rank: Rank
    pods: tuple[RunningPod, ...]

    @property
    def reluctance(self) -> tuple[Rank, int, float]:
        """How gladly they go: the least willing counts; of equal ones the fewest, then the youngest."""
        return self.rank, len(self.pods), -min(pod.started for pod in self.pods)


class UnitSearch:
    """One group's question, asked of fewer units each time somebody objects to what was found."""

    def __init__(self, fits: Callable[[list[str]], bool], clock: Callable[[], float]) -> None:
        """Ask nothing yet.

        Args:
            fits: Whether the group has room without these pods, by UID.
            clock: Monotonic seconds.
        """
        self._has_room = fits
        self._clock = clock
        self._spent = 0.0

    async def least(self, units: Sequence[Unit]) -> list[RunningPod]:
        """The pods that leave, of units in the order in which they go; none where all of them are not enough.

        None of the units found could stay.

        Raises:
            TooLongError: the search has taken its time.
        """
        enough = await self._enough(units)
        return [pod for unit in await self._needed(units[:enough]) for pod in unit.pods]

    async def _enough(self, units: Sequence[Unit]) -> int:
        """How many of the first have to go at the most; 0 where all are not enough."""
        low, high = 0, 1
        while not await self._fits(units[:high]):
            if high >= len(units):
                return 0
            low, high = high, min(2 * high, len(units))
        while high - low > 1:
            middle = (low + high) // 2
            if await self._fits(units[:middle]):
                high = middle
            else:
                low = middle
        return high

    async def _needed(self, units: Sequence[Unit]) -> list[Unit]:
        """Those without which it would not do; the least willing are kept first."""
        needed, size = list(units), len(units) // 2
        while size:
            end = len(needed)
            while end > 0:
                others = needed[: max(0, end - size)] + needed[end:]
                if await self._fits(others):
                    needed = others
                end -= size
            size //= 2
        return needed

    async def _fits(self, units: Sequence[Unit]) -> bool:
        if self._spent > MOST_SECONDS:
            raise TooLongError
        await asyncio.sleep(0)  # filter calls come first
        start = self._clock()
        found = self._has_room([pod.uid for unit in units for pod in unit.pods])
        self._spent += self._clock() - start
        return found
