"""Evicts pods for others that wait: carries out a plan for each of these, begun on one of several grounds.

On which ground, and whom it may hit, say `reclaim` and `extender_preemption`. What was decided is written into the
waiting pod first, in `aliquot.dev/reclaim`: node and pods by UID. Only then are they evicted, through the eviction API,
and the room is held for the pod (`nominations`). Whoever comes to lead finds the plan in the pod and carries on with
it: it evicts nobody who is not in the plan, and of those only who is needed yet and could be chosen now.

Those of the highest priority come first, one after the other: what is planned for one is held before the next is
looked at. A round costs a search of the nodes offered, for the first waiting pod of each kind that a ground holds for.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from aliquot.api.names import RECLAIM_ANNOTATION
from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.request.host_resources import NO_HOST
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.preemption.candidates import Candidates, Departure
from aliquot.scheduler_ext.preemption.eviction_plans import (
    Evictee,
    EvictionPlan,
    plan_of,
    read_plan,
    write_plan,
)
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.runtime.periodic import run_rounds
from aliquot.scheduler_ext.state.pending_pods import Feed, PendingPod, PendingPods

NODES_AT_ONCE: Final = 8
"""Looked at without a pause, in which filter calls are answered."""
MOST_DOUBLINGS: Final = 6
MOST_SECONDS: Final = 5.0
"""For the search for one pod, pauses left out; then the best of what was found is taken."""
OFFER_SECONDS: Final = 15.0
"""How long it is believed where a pod may go. kube-scheduler does not ask where it refuses a pod everywhere itself."""

_log = logging.getLogger(__name__)


class PlanApi(Protocol):
    """What plans need of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Pod], name: str, namespace: str = "", /) -> Pod:
        """Read a pod; ApiError when that fails."""

    async def patch(
        self, resource: Resource[Pod], name: str, body: Any, namespace: str = "", /, *, subresource: str = ""
    ) -> Pod:
        """Patch a pod; ApiError when that fails."""


class EvictionReason(Protocol):
    """Why pods are evicted for one that waits."""

    @property
    def name(self) -> str:
        """As plans have it."""

    @property
    def per_minute(self) -> int | None:
        """How many are evicted at most in any minute; None where that has no bound."""

    @property
    def again_after(self) -> float:
        """The first pause, in seconds, before a pod whose room was lost gets another plan."""

    def holds_for(self, waiter: PendingPod, borrowing: Borrowing, /) -> bool:
        """Whether others might be evicted for this pod now; asked of each pod in each round, so it costs little."""

    def might_help(self, waiter: PendingPod, borrowing: Borrowing, /) -> bool:
        """Whether the eviction of any pod might help pods of this kind; asked before the nodes are searched."""

    def departure(
        self,
        waiter: PendingPod,
        node: str,
        borrowing: Borrowing,
        *,
        planned: Collection[str] | None = None,
        gone: Collection[str] = (),
    ) -> Departure | None:
        """Who would leave a node; None where nobody helps.

        Args:
            waiter: The pod that waits.
            node: The node.
            borrowing: Who is beyond their guarantee.
            planned: The UIDs of those that may be chosen; None for all.
            gone: The UIDs of those that leave in any case.
        """

    def told(
        self, evictee: Evictee, waiter: PendingPod, node: str
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Reason and message of the events: on the pod that has gone, and on the one that it was for."""


@dataclass
class _Work:
    """A plan that is carried out.

    Attributes:
        done: The UIDs of those that have been evicted or are gone.
        ended: When one of them was last about to end, in monotonic seconds.
    """

    plan: EvictionPlan
    ground: EvictionReason
    ended: float
    done: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Lost:
    """A plan whose room was lost, how many were, and when another may be made, in monotonic seconds."""

    plan: EvictionPlan
    times: int
    until: float


class Evictor:
    """Evicts for pods that wait."""

    def __init__(
        self,
        api: PlanApi,
        waiting: PendingPods,
        decide: Filter,
        candidates: Candidates,
        nominations: Nominations,
        *,
        evictions: Evictions,
        grounds: Sequence[EvictionReason],
        touch: Callable[[PendingPod], Awaitable[object]],
        feeds: Sequence[Feed] = (),
        clock: Callable[[], float] = time.monotonic,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait for pods that wait.

        Args:
            api: The cluster.
            waiting: Who waits.
            decide: What filter would say.
            candidates: Who is beyond their guarantee.
            nominations: Keeps the room.
            evictions: Evicts.
            grounds: Why pods may be evicted, those first that are tried first.
            touch: Has kube-scheduler ask for a pod again.
            feeds: What reads the cluster.
            clock: Monotonic seconds.
            looked: Counts rounds.
        """
        self._api = api
        self._waiting = waiting
        self._decide = decide
        self._candidates = candidates
        self._nominations = nominations
        self._grounds = {ground.name: ground for ground in grounds}
        self._touch = touch
        self._feeds = feeds
        self._clock = clock
        self._looked = looked
        self._evictions = evictions
        self._works: dict[str, _Work] = {}
        self._lost: dict[str, _Lost] = {}

    async def run(self) -> None:
        """Evict until cancelled; begin once the cluster has been read."""
        await run_rounds(self.look, self._feeds, self._clock)

    async def look(self) -> None:
        """One round: carry on with every plan, make one for those that a ground holds for, and end lost nominations."""
        waiters = self._waiting.all()
        self._nominations.review()
        uids = {waiter.request.uid for waiter in waiters}
        self._works = {uid: work for uid, work in self._works.items() if uid in uids}
        self._lost = {uid: lost for uid, lost in self._lost.items() if uid in uids}
        borrowing, hopeless = self._candidates.borrowing(), set[Hashable]()
        for waiter in waiters:
            if waiter.request.uid not in self._works:
                self._adopt(waiter)
            work = self._works.get(waiter.request.uid)
            try:
                if work is not None:
                    await self._carry_out(waiter, work)
                else:
                    await self._serve(waiter, borrowing, hopeless)
            except ApiError as error:
                _log.warning("eviction for pod %s is not done yet: %s", waiter.pod.key, error)
            await asyncio.sleep(0)
        await self._end_nominations()
        self._looked()

    def _adopt(self, waiter: PendingPod) -> None:
        """Go on with what the leader before this one has begun."""
        plan = self._plan_in(waiter.pod)
        if plan is not None:
            self._begin(waiter, plan)

    def _plan_in(self, pod: Pod) -> EvictionPlan | None:
        """The plan in a pod, unless its room has been lost."""
        plan, lost = read_plan(pod.metadata.annotations, self._grounds), self._lost.get(pod.metadata.uid)
        return None if lost is not None and lost.plan == plan else plan

    def _begin(self, waiter: PendingPod, plan: EvictionPlan) -> _Work:
        uid = waiter.request.uid
        work = self._works[uid] = _Work(plan, self._grounds[plan.ground], self._clock())
        self._nominations.claim(waiter.pod, waiter.request, {plan.node: plan.uids})
        self._nominations.grant(uid, plan.node)
        return work

    async def _serve(self, waiter: PendingPod, borrowing: Borrowing, hopeless: set[Hashable]) -> None:
        """Make a plan for a pod, if a ground holds for it, and carry it out; note of which kinds no pod is helped.

        Who borrows what was read at the beginning of the round; it is read anew before anybody is chosen.
        """
        lost = self._lost.get(waiter.request.uid)
        if self._left_alone(waiter) or (lost is not None and self._clock() < lost.until):
            return
        for name, ground in self._grounds.items():
            kind = (name, waiter.kind, waiter.reason)
            if kind in hopeless or not ground.holds_for(waiter, borrowing):
                continue
            if not waiter.reason:
                await self._ask(waiter)
                return
            best = await self._best(waiter, ground)
            if best is None:
                hopeless.add(kind)
                continue
            if self._clock() - waiter.asked > OFFER_SECONDS:
                await self._ask(waiter)
            elif not best.pods:
                self._nominations.expect(waiter.request.uid, best.node)
            elif self._evictions.affordable(name, ground.per_minute, len(best.pods)):
                await self._plan(waiter, ground, best.node)
            return

    async def _ask(self, waiter: PendingPod) -> None:
        """Only kube-scheduler knows on which nodes a pod may be."""
        if waiter.rest.until <= self._clock():
            await self._touch(waiter)

    def _left_alone(self, waiter: PendingPod) -> bool:
        """Whether a pod is about to get a place, or goes with others that cannot yet; then it is to get none alone."""
        uid = waiter.request.uid
        if self._decide.waits_for_others(waiter.pod):
            self._nominations.expect_nothing(uid)
            return True
        return bool(self._nominations.node_of(uid)) and not self._nominations.late(uid)

    async def _best(self, waiter: PendingPod, ground: EvictionReason) -> Departure | None:
        """The departure that costs least, of all nodes that the pod may have; None where it needs or finds none.

        It is one of no pods where it is enough that those leave that are leaving.
        """
        pod, request = waiter.pod, waiter.request
        borrowing, shut = self._candidates.borrowing(), self._decide.shut_to(pod)
        if not ground.might_help(waiter, borrowing) or self._decide.has_room(pod, request, waiter.nodes):
            return None
        found, spent = [], 0.0
        for number, node in enumerate(self._open(waiter.nodes)):
            if spent > MOST_SECONDS:
                self._candidates.cut()
                break
            start = self._clock()
            departure = None if node in shut else ground.departure(waiter, node, borrowing)
            spent += self._clock() - start
            if departure is not None:
                if not departure.pods:
                    return departure
                found.append(departure)
            if number % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return min(found, key=lambda departure: (departure.cost, departure.node), default=None)

    def _open(self, nodes: Sequence[str]) -> list[str]:
        """Those of the nodes that pods are sent to now: a node may have been cordoned since it was offered."""
        return self._decide.ledger.hosts.open_to(nodes, NO_HOST)

    async def _plan(self, waiter: PendingPod, ground: EvictionReason, node: str) -> None:
        """Begin with the plan that the pod has by now, else with one for this node, if it waits yet."""
        pod = await self._api.get(PODS, waiter.pod.metadata.name, waiter.pod.metadata.namespace)
        if not self._waits(pod, waiter.request.uid):
            return
        plan = self._plan_in(pod)
        if plan is None:
            # Nothing is awaited between this look and the patch, which fails if the pod has changed since.
            fresh = ground.departure(waiter, node, self._candidates.borrowing())
            if fresh is None or not fresh.pods or not self._open([node]):
                return
            plan = plan_of(fresh, ground.name)
            await self._write(pod, {"metadata": {"annotations": {RECLAIM_ANNOTATION: write_plan(plan)}}})
        await self._carry_out(waiter, self._begin(waiter, plan))

    async def _end_nominations(self) -> None:
        """Have kube-scheduler keep no CPU of a node for pods that cannot have a place there any more.

        Filter may not have been asked for them: where kube-scheduler refuses a pod everywhere itself it asks
        `preempt` alone.
        """
        for request in self._nominations.lost_for_long():
            try:
                pod = await self._api.get(PODS, request.name, request.namespace)
                if self._waits(pod, request.uid):
                    await self._write(pod, {"status": {"nominatedNodeName": None}})
            except ApiError as error:
                _log.warning(
                    "the nomination of pod %s/%s is not ended yet: %s", request.namespace, request.name, error
                )

    async def _write(self, pod: Pod, changes: dict[str, Any]) -> None:
        """Change a pod, if it is as it was when it was read."""
        meta = pod.metadata
        guarded = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**changes, "metadata": {**changes.get("metadata", {}), **guarded}}
        await self._api.patch(PODS, meta.name, body, meta.namespace, subresource="status")

    async def _carry_out(self, waiter: PendingPod, work: _Work) -> None:
        """Evict those of a plan that are needed yet, each once."""
        plan, borrowing = work.plan, self._candidates.borrowing(work.done)
        told = self._candidates.told(plan.uids)
        offered = (
            plan.node in waiter.nodes or not waiter.reason or (told and self._may_be_offered(waiter, work))
        )
        if not offered or not self._open([plan.node]) or self._decide.waits_for_others(waiter.pod):
            self._give_up(waiter, work, work.ground.again_after)
            return
        if told and self._nominations.comes(waiter.request.uid, work.done):
            return
        departure = work.ground.departure(
            waiter, plan.node, borrowing, planned=plan.uids, gone=frozenset(work.done)
        )
        if departure is None:
            self._give_up(waiter, work, work.ground.again_after)
            return
        for pod in departure.pods:
            evictee = Evictee(pod.namespace, pod.name, pod.uid)
            if evictee.uid not in work.done and await self._evict(evictee, waiter, work):
                work.done.add(evictee.uid)

    def _may_be_offered(self, waiter: PendingPod, work: _Work) -> bool:
        """Whether kube-scheduler cannot have offered the node again yet: it may lack CPU until those have ended."""
        now = self._clock()
        victims = filter(None, map(self._candidates.running_pods.get, work.plan.uids))
        if any(map(self._candidates.leaves, victims)):
            work.ended = now
        return waiter.asked <= work.ended and now - work.ended <= OFFER_SECONDS

    def _give_up(self, waiter: PendingPod, work: _Work, pause: float) -> None:
        """The room is lost, or is no use to the pod any more: keep nothing, and look anew after a pause."""
        uid = waiter.request.uid
        times = self._lost[uid].times + 1 if uid in self._lost else 0
        until = self._clock() + pause * 2.0 ** min(times, MOST_DOUBLINGS)
        _log.info("room on %s for pod %s is lost", work.plan.node, waiter.pod.key)
        self._lost[uid] = _Lost(work.plan, times, until)
        del self._works[uid]
        self._nominations.revoke(uid)

    async def _evict(self, evictee: Evictee, waiter: PendingPod, work: _Work) -> bool:
        """Whether a pod has been evicted, or is gone."""
        meta, ground = waiter.pod.metadata, work.ground
        leaves, gains = ground.told(evictee, waiter, work.plan.node)
        whose = meta.namespace, meta.name, meta.uid
        return await self._evictions.evict(evictee, ground.name, leaves, (whose, gains))

    def _waits(self, pod: Pod, uid: str) -> bool:
        """Whether this is the pod, and no place for it was found or made meanwhile, or none that is of use."""
        gone = pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None
        nominated = pod.status.nominated_node_name
        useless = {"", self._nominations.lost(uid), self._nominations.late(uid)}
        return not gone and not pod.spec.node_name and nominated in useless
