"""Evicts pods through the Eviction API, counts them, and tells on both pods who has gone for whom."""

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, Protocol

from aliquot.kube.answers import ApiError
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.eviction_plans import Evictee
from aliquot.scheduler_ext.state.pod_events import EventApi, write_event

MINUTE: Final = 60.0

_log = logging.getLogger(__name__)

Told = tuple[str, str]
"""Reason and message of an event."""


class EvictApi(EventApi, Protocol):
    """What evicting needs of the API server; `aliquot.kube.api.Api` has it."""

    async def evict_pod(self, namespace: str, name: str, uid: str, /) -> None:
        """Evict a pod; ApiError when that fails."""


class Evictions:
    """Those of this process, on each ground."""

    def __init__(
        self,
        api: EvictApi,
        candidates: Candidates,
        clock: Callable[[], float],
        counted: Callable[[str, str], None] = lambda _ground, _outcome: None,
    ) -> None:
        """None has been made yet.

        Args:
            api: The cluster.
            candidates: Counts those evicted as leaving.
            clock: Monotonic seconds.
            counted: Counts evictions, by ground and outcome.
        """
        self._api = api
        self._clock = clock
        self._counted = counted
        self._candidates = candidates
        self._made: defaultdict[str, deque[float]] = defaultdict(deque)

    def affordable(self, ground: str, per_minute: int | None, number: int) -> bool:
        """Whether so many may be evicted now; more than a minute's worth only where nobody else was."""
        if per_minute is None:
            return True
        now, made = self._clock(), self._made[ground]
        while made and now - made[0] >= MINUTE:
            made.popleft()
        return not made or len(made) + number <= per_minute

    async def evict(
        self, evictee: Evictee, ground: str, leaves: Told, gains: tuple[tuple[str, str, str], Told]
    ) -> bool:
        """Whether a pod has been evicted, or is gone.

        Args:
            evictee: The pod.
            ground: On which ground.
            leaves: What is told on it.
            gains: Namespace, name and UID of the pod that it is for, and what is told on that.
        """
        try:
            await self._api.evict_pod(evictee.namespace, evictee.name, evictee.uid)
        except ApiError as error:
            self._counted(ground, "refused")
            if error.not_found or error.conflict:
                return True
            _log.info("pod %s is not evicted: %s", evictee.key, error)
            return False
        self._candidates.note_eviction(evictee.uid)
        self._made[ground].append(self._clock())
        self._counted(ground, "evicted")
        await write_event(self._api, (evictee.namespace, evictee.name, evictee.uid), *leaves)
        await write_event(self._api, gains[0], *gains[1])
        return True
