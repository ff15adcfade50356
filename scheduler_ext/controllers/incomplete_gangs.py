"""Has the pods of groups evicted that run with fewer members than they need, where others that wait need their cards.

A group of which a member has failed, or has lost its card, runs on without it and usually does nothing: a collective
operation waits for all. Its cards are held for a member that may find none for hours. Two groups that each lack one
card would wait for each other's for ever. So a group that has been below its minimum for a grace period is *stale*, and
yields to pods and groups that wait:

- of its own priority or a higher one;
- to another stale group only where that has a higher priority or, of the same priority, was begun earlier. So of
  several stale groups at least the first keeps its cards.

All its members with cards are evicted, and only if what they hold then lets the pod or group that waits start: asked of
the placing code itself, with what is leaving anyhow counted as gone. The lowest priority goes first, then the youngest;
of several groups no more than are needed. Disruption budgets hold, and the time for which pods are left alone after
their start: a group with a member that may not be evicted is left alone as a whole.

A group that this was done for keeps what becomes free as in `partial_reservations`. The cards of pods that are leaving
count as free for as long as preemption has it so (`candidates`): a pod that is stuck in its termination holds up
nothing for longer.

A group that cannot get its members to run is not evicted for ever: the grace doubles each time, up to eight times,
until it has run with enough members for ten minutes.

What grows: while there are stale groups, a round costs one look for each kind of waiting pod, `MOST_BENEFICIARIES` at
most, for each stale group.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aliquot.kube.answers import ApiError
from aliquot.request.placement import Placement
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.gang.gang import Gang
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.evictions import EvictApi
from aliquot.scheduler_ext.runtime.periodic import run_rounds
from aliquot.scheduler_ext.state.pending_pods import Feed, PendingPod
from aliquot.scheduler_ext.state.pod_events import write_event
from aliquot.scheduler_ext.state.running_pods import RunningPod

GRACE_SECONDS: Final = 60.0
LONGEST_GRACE: Final = 8
"""A group that was evicted again and again has so many times the grace."""
MOST_BENEFICIARIES: Final = 16
REASON: Final = "GroupBelowMinimum"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Yielding:
    """Which groups yield to a pod that waits, and to its group if it has one."""

    waiter: PendingPod
    gang: Gang | None
    stale: tuple[Gang, ...]


class IncompleteGangs:
    """Evicts the pods of stale groups."""

    def __init__(
        self,
        api: EvictApi,
        gangs: Gangs,
        decide: Filter,
        candidates: Candidates,
        *,
        grace_seconds: float = GRACE_SECONDS,
        others: Collection[str] = (),
        feeds: Sequence[Feed] = (),
        clock: Callable[[], float] = time.monotonic,
        counted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Evict nobody yet.

        Args:
            api: The cluster.
            gangs: The groups.
            decide: What filter would say.
            candidates: Who may be evicted.
            grace_seconds: How long a group may be below its minimum; 0: for ever.
            others: Schedulers that see to their own groups.
            feeds: What reads the cluster.
            clock: Monotonic seconds.
            counted: Counts evictions by outcome.
        """
        self._api = api
        self._gangs = gangs
        self._filter = decide
        self._candidates = candidates
        self._grace = grace_seconds
        self._others = frozenset(others)
        self._feeds = feeds
        self._clock = clock
        self._counted = counted

    async def run(self) -> None:
        """Evict until cancelled; begin once the cluster has been read."""
        await run_rounds(self.look, self._feeds, self._clock)

    async def look(self) -> None:
        """One round: evict what yields to the first that can be helped."""
        if not self._grace or all(gang.below_since is None for gang in self._gangs.all()):
            return
        stale = self._stale()
        for waiter in self._beneficiaries():
            found = self._yielding(waiter, stale)
            if found is not None:
                await self._evict(found)
                return
            await asyncio.sleep(0)  # filter calls come first

    def _stale(self) -> list[Gang]:
        """The groups that yield, the first to go first."""
        now = self._clock()
        found = [
            gang
            for gang in self._gangs.all()
            if gang.below_since is not None
            and now - gang.below_since >= self._grace * min(2**gang.yielded, LONGEST_GRACE)
            and gang.needed
            and not gang.whole
            and not self._is_made_whole(gang)
            and self._may_go(gang)
        ]
        return sorted(found, key=lambda gang: (gang.priority, -gang.begun, str(gang.key)))

    def _is_made_whole(self, gang: Gang) -> bool:
        """Whether others leave for as many members as it lacks."""
        uids = (member.request.uid for member in gang.seekers() if member.request)
        return sum(map(self._filter.has_claim, uids)) >= gang.needed

    def _may_go(self, gang: Gang) -> bool:
        """Whether all that have cards may be evicted, and any has."""
        if any(member.scheduler in self._others for member in gang.members.values()):
            return False
        candidates, borrowing = self._candidates, self._candidates.borrowing()
        pods = self._victims(gang)
        return bool(pods) and all(
            candidates.settled(pod, borrowing) and not candidates.kept(pod.uid) for pod in pods
        )

    def _victims(self, gang: Gang) -> list[RunningPod]:
        """The members that hold cards."""
        found = (self._candidates.running_pods.get(uid) for uid in gang.working)
        return [pod for pod in found if pod and not pod.deleted and not self._candidates.leaves(pod)]

    def _beneficiaries(self) -> Iterator[PendingPod]:
        """Those that wait, the highest priority first, one of each kind or group."""
        seen, ledger = set[object](), self._filter.ledger
        for waiter in self._filter.waiting.all():
            if ledger.entry(waiter.request.uid) is not None:
                continue  # others are leaving for it already
            gang = self._gangs.of(waiter.request.uid)
            kind = waiter.kind if gang is None else gang.key
            if kind not in seen and len(seen) < MOST_BENEFICIARIES:
                seen.add(kind)
                yield waiter

    def _yielding(self, waiter: PendingPod, stale: Sequence[Gang]) -> Yielding | None:
        """Who yields to a pod or its group; None where nobody does, or nobody need."""
        gang = self._gangs.of(waiter.request.uid)
        may = [one for one in stale if self._yields(one, waiter, gang)]
        if not may or (gang is not None and gang.obstacle(self._clock())):
            return None
        with self._filter.waiting.trial(), contextlib.ExitStack() as away:
            self._without(away, self._candidates.leaving())
            if self._fits(waiter, gang):
                return None
            gone = list[Gang]()
            for one in may:
                gone.append(one)
                self._without(away, [pod.uid for pod in self._victims(one)])
                if self._fits(waiter, gang):
                    break
            else:
                return None
        needed = self._fewest(waiter, gang, gone)
        return Yielding(waiter, gang, tuple(needed))

    def _fewest(self, waiter: PendingPod, gang: Gang | None, gone: list[Gang]) -> list[Gang]:
        """Of groups whose cards are enough together those that are needed: the last to go are kept first."""
        needed = list(gone)
        for one in reversed(gone[:-1]):
            others = [other for other in needed if other is not one]
            with self._filter.waiting.trial(), contextlib.ExitStack() as away:
                self._without(away, self._candidates.leaving())
                self._without(away, [pod.uid for other in others for pod in self._victims(other)])
                if self._fits(waiter, gang):
                    needed = others
        return needed

    def _yields(self, stale: Gang, waiter: PendingPod, gang: Gang | None) -> bool:
        """Whether a stale group has to go for a pod or its group."""
        if gang is None:
            return stale.priority <= (waiter.pod.spec.priority or 0)
        if stale is gang:
            return False
        if not gang.working:
            return stale.priority <= gang.priority
        return (stale.priority, -stale.begun, str(stale.key)) < (gang.priority, -gang.begun, str(gang.key))

    def _fits(self, waiter: PendingPod, gang: Gang | None) -> bool:
        """Whether a pod would be placed now, or as many of its group as that needs."""
        if gang is not None and self._gangs.goes_together(waiter.pod):
            return self._gangs.finds_room(gang, self._filter)
        return isinstance(self._filter.find(waiter.pod, waiter.request, waiter.nodes), Placement)

    def _without(self, away: contextlib.ExitStack, uids: Iterable[str]) -> None:
        """As if these pods held nothing."""
        for uid in uids:
            away.enter_context(self._filter.ledger.without(uid))

    async def _evict(self, found: Yielding) -> None:
        gang, pod = found.gang, found.waiter.pod
        served = f"group {gang.key}" if gang is not None else f"pod {pod.key}"
        if gang is not None:
            self._gangs.take_turn(gang)
        victims = [(one, self._victims(one)) for one in found.stale]
        for stale, pods in victims:
            stale.yielded += 1
            least, seconds = stale.terms.members, self._clock() - (stale.below_since or 0.0)
            _log.info("group %s is evicted for %s", stale.key, served)
            why = (
                f"Evicted: group {stale.key} has run with fewer than the {least} members that it needs for "
                f"{seconds:.0f} s, and {served} waits for its cards"
            )
            for victim in pods:
                await self._evict_pod(victim, why)

    async def _evict_pod(self, pod: RunningPod, why: str) -> None:
        try:
            await self._api.evict_pod(pod.namespace, pod.name, pod.uid)
        except ApiError as error:
            _log.info("pod %s/%s is not evicted: %s", pod.namespace, pod.name, error)
            self._counted("refused")
            return
        self._counted("evicted")
        self._candidates.note_eviction(pod.uid)
        await write_event(self._api, (pod.namespace, pod.name, pod.uid), REASON, why)
