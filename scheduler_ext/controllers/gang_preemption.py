"""Has pods evicted for groups that wait: for all members that have to start at once, or nobody.

Who may be evicted, and on which ground, say `gang_reasons`. They are ranked as for a pod without a group: a member
that its group cannot go on without takes the group with it, all its members with cards. How few of them are enough is
found with the placing code itself, quotas included (`victim_units`). The CPU and memory that they leave do not count as
free: kube-scheduler keeps these for nobody meanwhile. Nobody is evicted for a group that has no places even so.

The places that were found are held for the members, as for pods that are nominated (`nominations`), at the expense of
those that leave. Nothing is written down: whoever comes to lead counts those that are leaving as gone, finds who has to
go besides, and holds the places anew.

    wait for members --who would go?--> evicted, places held --they have left--> placed as any group
           ^                                   |
           +---- pause <---- a place is lost, or a budget lets one of them not go

What grows: where a group waits that may evict, a round after a change costs a look for it with one set of pods gone,
some tens of times.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aliquot.api.pod_groups import GroupKey
from aliquot.request.amounts import NOTHING, Amounts
from aliquot.request.host_resources import NO_HOST
from aliquot.request.placement import Placement
from aliquot.scheduler_ext.cards.fit import still_fits
from aliquot.scheduler_ext.controllers.gang_reasons import GangDemand, GangReason, Rule
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.gang.gang import Gang
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS, Candidates
from aliquot.scheduler_ext.preemption.eviction_plans import Evictee
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.preemption.extender_preemption import PATIENCE_SECONDS
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.preemption.victim_units import TooLongError, Unit, UnitSearch
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.runtime.periodic import run_rounds
from aliquot.scheduler_ext.state.ledger import Stage
from aliquot.scheduler_ext.state.pending_pods import Feed, PendingPod
from aliquot.scheduler_ext.state.running_pods import RunningPod

MOST_DOUBLINGS: Final = 6
MOST_OBJECTIONS: Final = 16
"""Sets that were found and may not go together; each spares somebody whom the one before has."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """Who goes for a group, and the places that its members have then, by UID."""

    pods: tuple[RunningPod, ...]
    places: dict[str, Placement]


@dataclass(frozen=True)
class _Pause:
    """Before a group is looked at again.

    Attributes:
        lost: How often places were held for it; each time but the last they were lost.
        until: In monotonic seconds.
        changes: The state of the cluster in which nobody's leaving would have helped it.
    """

    lost: int
    until: float
    changes: int = -1


@dataclass
class _Held:
    """The places that are held for a group.

    Attributes:
        uids: The members' that have one.
        closed: Since when too many of them are on nodes that take no pods, in monotonic seconds; None: they are not.
    """

    uids: frozenset[str]
    closed: float | None = None


class GangPreemption:
    """Evicts for groups that wait."""

    def __init__(
        self,
        gangs: Gangs,
        decide: Filter,
        candidates: Candidates,
        nominations: Nominations,
        *,
        evictions: Evictions,
        grounds: Sequence[GangReason],
        feeds: Sequence[Feed] = (),
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Evict nobody yet.

        Args:
            gangs: The groups.
            decide: What filter would say.
            candidates: Who may be evicted.
            nominations: Keeps the room.
            evictions: Evicts.
            grounds: Why pods may be evicted, those first that are tried first.
            feeds: What reads the cluster.
            clock: Monotonic seconds.
            patience_seconds: How long a group waits before others are evicted for it.
        """
        self._gangs = gangs
        self._filter = decide
        self._candidates = candidates
        self._nominations = nominations
        self._evictions = evictions
        self._grounds = grounds
        self._feeds = feeds
        self._clock = clock
        self._patience = patience_seconds
        self._held: dict[GroupKey, _Held] = {}
        self._pauses: dict[GroupKey, _Pause] = {}

    async def run(self) -> None:
        """Evict until cancelled; begin once the cluster has been read."""
        await run_rounds(self.look, self._feeds, self._clock)

    async def look(self) -> None:
        """One round: every group that waits is seen to once, the highest priority first."""
        waiting = list(self._waiting())
        keys = {gang.key for gang in waiting}
        for key in self._held.keys() - keys:
            if not self._is_reserved(key):
                self._let_go(key)
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in keys}
        for gang in waiting:
            if not self._is_held(gang):
                self._let_go(gang.key)
                await self._serve(gang)
            await asyncio.sleep(0)  # filter calls come first

    def _waiting(self) -> Iterator[Gang]:
        """The groups that lack places for several members, as many of which have waited for long enough."""
        seen, now = set[GroupKey](), self._candidates.clock()
        for waiter in self._filter.waiting.all():
            gang = self._gangs.of(waiter.request.uid)
            if gang is None or gang.key in seen or not self._filter.waits_for_others(waiter.pod):
                continue
            seen.add(gang.key)
            patient = sum(now - one.since >= self._patience for one in self._waiters(gang))
            if patient >= gang.lacking > 0 and gang.since is None and not gang.obstacle(self._clock()):
                yield gang

    def _waiters(self, gang: Gang) -> list[PendingPod]:
        """The members without a place, as kube-scheduler has asked for them; the hardest to place first."""
        uids = (member.request.uid for member in gang.seekers() if member.request)
        return [waiter for waiter in map(self._filter.waiting.get, uids) if waiter is not None]

    # ---- what is held ----

    def _is_held(self, gang: Gang) -> bool:
        """Whether as many members as it needs have a place once those have gone that leave.

        On a node that takes no pods there is none after a while: what the others hold would wait for its return.
        """
        held, ledger = self._held.get(gang.key), self._filter.ledger
        if held is None:
            return False
        with self._filter.waiting.trial(), ledger.without(*self._candidates.leaving()):
            entries = [entry for entry in map(ledger.entry, held.uids) if entry and entry.stage is Stage.HELD]
            fit = [entry for entry in entries if still_fits(entry.placement, ledger.cards_of(entry))]
        open_nodes, now = ledger.hosts.open_to([entry.node for entry in fit], NO_HOST), self._clock()
        if sum(entry.node in open_nodes for entry in fit) >= gang.lacking:
            held.closed = None
            return True
        held.closed = now if held.closed is None else held.closed
        return len(fit) >= gang.lacking and now - held.closed < OVERDUE_SECONDS

    def _is_reserved(self, key: GroupKey) -> bool:
        """Whether a group has places that are not bound yet: to kube-scheduler their CPU may be free meanwhile."""
        entries = map(self._filter.ledger.entry, self._held[key].uids)
        return any(entry is not None and entry.stage is Stage.RESERVED for entry in entries)

    def _let_go(self, key: GroupKey) -> None:
        held = self._held.pop(key, None)
        for uid in held.uids if held else ():
            self._nominations.revoke(uid)

    def _hold(self, gang: Gang, found: Found) -> None:
        """Hold these very places, at the expense of those that leave: for cards, or for a quota's sake elsewhere."""
        gone = tuple(pod.uid for pod in found.pods)
        self._held[gang.key] = _Held(frozenset(found.places))
        for uid, placement in found.places.items():
            waiter, node = self._filter.waiting.get(uid), placement.node
            if waiter is not None:
                self._filter.ledger.hold(waiter.request, placement)
                self._nominations.claim(waiter.pod, waiter.request, {node: gone})
                self._nominations.grant(uid, node)

    # ---- who goes ----

    async def _serve(self, gang: Gang) -> None:
        pause, changes = self._pauses.get(gang.key), self._filter.waiting.changes
        if pause is not None and pause.changes == changes:
            return
        demand = self._demand(gang)
        rules = [ground.rule(demand, self._candidates.borrowing()) for ground in self._grounds]
        if not any(rules) or self._fits(gang, ()):
            return
        places = self._fits(gang, self._candidates.leaving())
        if places:
            self._hold(gang, Found((), places))
            return
        if pause is not None and self._clock() < pause.until:
            return
        for ground, rule in zip(self._grounds, rules, strict=True):
            found = await self._search(gang, rule) if rule is not None else None
            if rule is not None and found is not None:
                if self._evictions.affordable(ground.name, ground.per_minute, len(found.pods)):
                    await self._carry_out(demand, ground, rule, found)
                return
        lost = pause.lost if pause is not None else 0
        self._pauses[gang.key] = _Pause(lost, self._clock() + self._patience, changes)

    def _demand(self, gang: Gang) -> GangDemand:
        waiters = self._waiters(gang)
        fewest = waiters[-gang.lacking :]  # no more than these have to fit
        quotas, wanted = self._candidates.quotas, dict[str, Amounts]()
        for node in {quotas.accounts.kind_of(node): node for node in gang.offered_nodes}.values():
            each = [quotas.wanted(waiter.request, node) for waiter in fewest]
            for pool in each[0]:
                wanted[pool] = wanted.get(pool, NOTHING) | sum((one[pool] for one in each), NOTHING)
        return GangDemand(gang, tuple(waiter.pod for waiter in waiters), wanted)

    async def _search(self, gang: Gang, rule: Rule) -> Found | None:
        """Who has to go beside those that leave; None where nobody helps."""
        candidates = self._candidates
        search = UnitSearch(lambda uids: bool(self._fits(gang, [*candidates.leaving(), *uids])), self._clock)
        units = sorted(self._units(gang, rule), key=lambda unit: unit.reluctance)
        try:
            for _ in range(MOST_OBJECTIONS):
                pods = await search.least(units)
                # Where all are not enough, more may be free without those whose departure opens a guarantee.
                chosen = pods or [pod for unit in units for pod in unit.pods]
                stay = {*rule.objection(chosen), *candidates.budgets.violated_by(pods)}
                if not (pods or stay):
                    return None
                if not stay:
                    # Nothing is awaited between this look and the places being held.
                    places = self._fits(gang, [*candidates.leaving(), *(pod.uid for pod in pods)])
                    return Found(tuple(pods), places) if places else None
                units = [unit for unit in units if stay.isdisjoint(pod.uid for pod in unit.pods)]
        except TooLongError:
            pass
        candidates.cut()
        return None

    def _fits(self, gang: Gang, gone: Iterable[str]) -> dict[str, Placement]:
        """The places of the group's members once these pods have gone; none where it would not have enough.

        What they were offered may have been closed since.
        """
        ledger = self._filter.ledger
        with (
            self._filter.waiting.trial(),
            self._nominations.aside(gang.priority),
            ledger.without(*gone, with_host=False),
        ):
            places = self._gangs.places(gang, self._filter)
        nodes = ledger.hosts.open_to(tuple({placement.node for placement in places.values()}), NO_HOST)
        there = {uid: placement for uid, placement in places.items() if placement.node in nodes}
        return there if len(there) >= gang.lacking else {}

    def _units(self, gang: Gang, rule: Rule) -> Iterator[Unit]:
        """Who may be evicted on the nodes that the group may have, and for quotas on others."""
        candidates, seen = self._candidates, set[str]()
        borrowing, running_pods = candidates.borrowing(), candidates.running_pods
        nodes = {node for member in gang.seekers() for node in member.nodes or gang.offered_nodes}
        open_nodes = sorted(self._filter.ledger.hosts.open_to(tuple(nodes), NO_HOST))
        there = [pod for node in open_nodes for pod, _ in running_pods.on(node)]
        helpful = running_pods.of(borrowing.helpful(gang.key.namespace, running_pods.namespaces()))
        for pod in (*there, *helpful):
            if pod.uid not in seen:
                together = self._together(pod)
                seen.update(one.uid for one in together)
                if all(self._may_go(one, rule, borrowing) for one in together):
                    yield Unit(max(candidates.rank(one, (), borrowing) for one in together), together)

    def _together(self, pod: RunningPod) -> tuple[RunningPod, ...]:
        """A pod, and all of its group that could not go on without it."""
        gang = self._gangs.of(pod.uid) if self._candidates.breaks(pod.uid) else None
        if gang is None:
            return (pod,)
        found = (self._candidates.running_pods.get(uid) for uid in gang.working)
        return tuple(one for one in found if one is not None and not one.deleted) or (pod,)

    def _may_go(self, pod: RunningPod, rule: Rule, borrowing: Borrowing) -> bool:
        return rule.may_go(pod) and not pod.deleted and self._candidates.settled(pod, borrowing)

    async def _carry_out(self, demand: GangDemand, ground: GangReason, rule: Rule, found: Found) -> None:
        """Hold the places, and then evict; where one may not be evicted after all, nothing is held any more."""
        gang, meta = demand.gang, demand.pods[0].metadata
        self._hold(gang, found)
        self._rest(gang.key)
        _log.info("%d pods are evicted for group %s", len(found.pods), gang.key)
        gains = (meta.namespace, meta.name, meta.uid), rule.gains
        for pod in found.pods:
            evictee = Evictee(pod.namespace, pod.name, pod.uid)
            if not await self._evictions.evict(evictee, ground.name, rule.leaves, gains):
                self._let_go(gang.key)
                return

    def _rest(self, key: GroupKey) -> None:
        """Leave a group alone for a while if the places that it has now are lost, longer each time."""
        before = self._pauses.get(key)
        lost = before.lost if before is not None else 0
        until = self._clock() + self._patience * 2.0 ** min(lost, MOST_DOUBLINGS)
        self._pauses[key] = _Pause(lost + 1, until)
