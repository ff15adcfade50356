"""Takes back what others borrowed of a guarantee when a pod within that guarantee waits for room.

Only where the pod's quota says `reclaim: true`. The pods to be evicted are the least set on one node, all of them
borrowed, and none whose disruption budget allows no more. What was decided is written into the waiting pod first, in
`aliquot.dev/reclaim`: node and pods by UID. Only then are they evicted, through the eviction API, and the room is held
for the pod (`holds`). Whoever comes to lead finds the plan in the pod and carries on with it: it evicts nobody who is
not in the plan, and of those only who is needed yet and could be chosen now, since anybody might have written the
plan. One pod has one plan in its life: where it did not help, nobody else is evicted for it.

Evictions are bounded by the minute. A round costs a search of the nodes offered, for the first waiting pod of each kind
that is owed room.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from aliquot.amounts import asked
from aliquot.kube.api import ApiError
from aliquot.kube.events import pod_event
from aliquot.kube.objects import UNREADABLE, Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.names import RECLAIM_ANNOTATION
from aliquot.request import PodRequest
from scheduler_ext.borrowing import Borrowing
from scheduler_ext.evictable import Departure, Evictable
from scheduler_ext.filter import Filter
from scheduler_ext.groups import group_of
from scheduler_ext.holds import Holds
from scheduler_ext.waiting import Feed, Waiter, Waiting

EVICTIONS_PER_MINUTE: Final = 10
PAUSE_SECONDS: Final = 1.0
"""Between rounds."""
PAUSES_PER_ROUND: Final = 10
"""A long round is followed by a pause so many times as long: looking is no more than a tenth of the work."""
NODES_AT_ONCE: Final = 8
"""Looked at without a pause, in which filter calls are answered."""
COMPONENT: Final = "aliquot-scheduler-ext"

_log = logging.getLogger(__name__)


class EvictionApi(Protocol):
    """What reclaiming needs of the API server; `aliquot.kube.api.Api` has it."""

    async def get(self, resource: Resource[Pod], name: str, namespace: str = "", /) -> Pod:
        """Read a pod; ApiError when that fails."""

    async def patch(
        self, resource: Resource[Pod], name: str, body: Any, namespace: str = "", /, *, subresource: str = ""
    ) -> Pod:
        """Patch a pod; ApiError when that fails."""

    async def evict_pod(self, namespace: str, name: str, uid: str, /) -> None:
        """Evict a pod; ApiError when that fails."""

    async def request(self, method: str, path: str, /, *, body: Any = None) -> bytes:
        """Send any request; ApiError when that fails."""


class Evictee(msgspec.Struct, frozen=True):
    """A pod that is to go."""

    namespace: str
    name: str
    uid: str


class Plan(msgspec.Struct, frozen=True):
    """What is done for one waiting pod."""

    node: str
    pods: tuple[Evictee, ...]


@dataclass
class _Work:
    """A plan, and the UIDs of those that have been evicted or are gone."""

    plan: Plan
    done: set[str] = field(default_factory=set)


class Reclaimer:
    """Evicts for pods that wait for what they are guaranteed."""

    def __init__(
        self,
        api: EvictionApi,
        waiting: Waiting,
        decide: Filter,
        evictable: Evictable,
        holds: Holds,
        *,
        feeds: Sequence[Feed] = (),
        per_minute: int = EVICTIONS_PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
        looked: Callable[[], None] = lambda: None,
        counted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wait for pods that wait.

        Args:
            api: The cluster.
            waiting: Who waits.
            decide: What filter would say.
            evictable: Who may be asked to leave.
            holds: Keeps the room.
            feeds: What reads the cluster.
            per_minute: How many pods are evicted at most in any minute.
            clock: Monotonic seconds.
            looked: Counts rounds.
            counted: Counts evictions, by outcome.
        """
        self._api = api
        self._waiting = waiting
        self._decide = decide
        self._evictable = evictable
        self._holds = holds
        self._feeds = feeds
        self._per_minute = per_minute
        self._clock = clock
        self._looked = looked
        self._counted = counted
        self._works: dict[str, _Work] = {}
        self._evicted: deque[float] = deque()

    async def run(self) -> None:
        """Reclaim until cancelled; begin once the cluster has been read."""
        for feed in self._feeds:
            await feed.read()
        while True:
            start = self._clock()
            await self.look()
            self._looked()
            took = self._clock() - start
            await asyncio.sleep(max(PAUSE_SECONDS, took * PAUSES_PER_ROUND))

    async def look(self) -> None:
        """One round: carry on with every plan, and make one for those that are owed room."""
        waiters = self._waiting.all()
        uids = {waiter.request.uid for waiter in waiters}
        self._works = {uid: work for uid, work in self._works.items() if uid in uids}
        hopeless: set[Hashable] = set()
        for waiter in waiters:
            if waiter.request.uid not in self._works:
                self._adopt(waiter)
            work = self._works.get(waiter.request.uid)
            try:
                if work is not None:
                    await self._carry_out(waiter, work)
                elif waiter.kind not in hopeless and not await self._serve(waiter):
                    hopeless.add(waiter.kind)
            except ApiError as error:
                _log.warning("reclaim for pod %s is not done yet: %s", waiter.pod.key, error)
            await asyncio.sleep(0)

    def _adopt(self, waiter: Waiter) -> None:
        """Go on with what the leader before this one has begun."""
        plan = _read(waiter.pod.metadata.annotations)
        if plan is not None:
            self._begin(waiter, plan)

    def _begin(self, waiter: Waiter, plan: Plan) -> _Work:
        uid = waiter.request.uid
        work = self._works[uid] = _Work(plan)
        leaving = {plan.node: tuple(pod.uid for pod in plan.pods)}
        self._holds.claim(waiter.pod, waiter.request, leaving)
        self._holds.grant(uid, plan.node)
        return work

    async def _serve(self, waiter: Waiter) -> bool:
        """Make a plan for a pod and carry it out; False where there is none, for it and all of its kind."""
        best = await self._best(waiter)
        if best is None or not self._affordable(len(best.pods)):
            return best is not None
        pod = await self._api.get(PODS, waiter.pod.metadata.name, waiter.pod.metadata.namespace)
        if pod.metadata.uid != waiter.request.uid or pod.spec.node_name:
            return True
        plan = _read(pod.metadata.annotations)
        if plan is None:
            # Nothing is awaited between this look and the patch, which fails if the pod has changed since.
            fresh = self._on(waiter, best.node, self._evictable.borrowing())
            if fresh is None or not fresh.pods:
                return True
            plan = _plan(fresh)
            await self._write(pod, plan)
        await self._carry_out(waiter, self._begin(waiter, plan))
        return True

    async def _best(self, waiter: Waiter) -> Departure | None:
        """The departure that costs least, of all nodes that the pod was offered."""
        pod, request = waiter.pod, waiter.request
        borrowing = self._evictable.borrowing()
        if not borrowing.reclaims or self._left_alone(waiter):
            return None
        if not any(
            borrowing.owed(request.namespace, amounts, request.uid) for amounts in self._wanted(request)
        ):
            return None
        shut = self._decide.shut_to(pod, request)
        found = []
        for number, node in enumerate(waiter.nodes):
            if node not in shut and (departure := self._on(waiter, node, borrowing)) is not None:
                if not departure.pods:
                    return None
                found.append(departure)
            if number % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return min(found, key=lambda d: (d.worst, len(d.pods), d.node), default=None)

    def _left_alone(self, waiter: Waiter) -> bool:
        """Whether a pod needs no eviction: it is about to get a place, or it goes with others that cannot yet."""
        pod, request = waiter.pod, waiter.request
        grouped = group_of(pod.metadata, pod.spec.scheduling_group) is not None
        return (
            not self._per_minute
            or grouped
            or bool(self._holds.node_of(request.uid))
            or self._decide.would_place(pod, request, waiter.nodes)
        )

    def _wanted(self, request: PodRequest) -> list[Any]:
        """What a pod would take on each kind of node."""
        kinds = self._evictable.quotas.accounts.kinds()
        return [asked(request, max(mib for _, mib in kind)) for kind in kinds]

    def _on(
        self, waiter: Waiter, node: str, borrowing: Borrowing, work: _Work | None = None
    ) -> Departure | None:
        """Who would leave a node, all of them borrowed and of the plan, if there is one; None where nobody helps."""
        request = waiter.request
        cards = self._evictable.ledger.table.cards(node)
        if not cards:
            return None
        wanted = asked(request, max(card.usable_mib for card in cards))
        owed = borrowing.owed(request.namespace, wanted, request.uid)
        spared = set[str]()
        planned = None if work is None else {pod.uid for pod in work.plan.pods}
        while owed:
            departure = self._evictable.departure(
                request,
                node,
                borrowing,
                lambda pod: (
                    pod.uid not in spared
                    and (planned is None or pod.uid in planned)
                    and borrowing.may_go([pod], request.namespace, owed)
                ),
                gone=frozenset(work.done) if work else (),
                within_budgets=True,
            )
            if departure is None or borrowing.may_go(departure.pods, request.namespace, owed):
                return departure
            spared.add(departure.pods[-1].uid)
        return None

    def _affordable(self, number: int) -> bool:
        """Whether so many may be evicted now; more than a minute's worth only where nobody else was."""
        now = self._clock()
        while self._evicted and now - self._evicted[0] >= 60.0:  # noqa: PLR2004 - a minute
            self._evicted.popleft()
        return not self._evicted or len(self._evicted) + number <= self._per_minute

    async def _write(self, pod: Pod, plan: Plan) -> None:
        """Put a plan into the pod that it is for, if that is as it was when it was read."""
        meta = pod.metadata
        body = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {RECLAIM_ANNOTATION: msgspec.json.encode(plan).decode()},
            }
        }
        await self._api.patch(PODS, meta.name, body, meta.namespace, subresource="status")

    async def _carry_out(self, waiter: Waiter, work: _Work) -> None:
        """Evict those of a plan that are needed yet, each once."""
        departure = self._on(waiter, work.plan.node, self._evictable.borrowing(), work)
        for pod in departure.pods if departure is not None else ():
            evictee = Evictee(pod.namespace, pod.name, pod.uid)
            if evictee.uid not in work.done and await self._evict(evictee, waiter):
                work.done.add(evictee.uid)

    async def _evict(self, evictee: Evictee, waiter: Waiter) -> bool:
        """Whether a pod has been evicted, or is gone."""
        try:
            await self._api.evict_pod(evictee.namespace, evictee.name, evictee.uid)
        except ApiError as error:
            self._counted("refused")
            if error.not_found or error.conflict:
                return True
            _log.info("pod %s/%s is not evicted: %s", evictee.namespace, evictee.name, error)
            return False
        self._evicted.append(self._clock())
        self._counted("evicted")
        await self._tell(evictee, waiter)
        return True

    async def _tell(self, evictee: Evictee, waiter: Waiter) -> None:
        """Say it on both pods."""
        meta, work = waiter.pod.metadata, self._works[waiter.request.uid]
        victim = f"{evictee.namespace}/{evictee.name}"
        await self._say(
            (evictee.namespace, evictee.name, evictee.uid),
            "Reclaimed",
            f"Evicted: its cards are guaranteed to namespace {meta.namespace}, whose pod {meta.name} waits for them",
        )
        await self._say(
            (meta.namespace, meta.name, meta.uid),
            "Reclaiming",
            f"Pod {victim}, which had borrowed, was evicted from {work.plan.node} to make room for this one",
        )

    async def _say(self, pod: tuple[str, str, str], reason: str, message: str) -> None:
        body = pod_event(pod, reason, message, kind="Normal", component=COMPONENT)
        try:
            await self._api.request("POST", f"/api/v1/namespaces/{pod[0]}/events", body=body)
        except ApiError as error:
            _log.info("event of pod %s/%s is not written: %s", pod[0], pod[1], error)


def _plan(departure: Departure) -> Plan:
    return Plan(departure.node, tuple(Evictee(p.namespace, p.name, p.uid) for p in departure.pods))


def _read(annotations: Mapping[str, str]) -> Plan | None:
    """The plan that is in a pod; None, and a line in the log, for one that is none."""
    text = annotations.get(RECLAIM_ANNOTATION)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Plan)
    except UNREADABLE as error:
        _log.warning("annotation %s is no plan and is left alone: %s", RECLAIM_ANNOTATION, error)
        return Plan("", ())
