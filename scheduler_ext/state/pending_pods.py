"""Wakes waiting pods: tries for itself what filter has refused, and touches the pods that would get a place now.

kube-scheduler tries a refused pod again when something changes that it knows of. Of quotas, pools, the cards that
agents publish and reservations that end here it knows nothing; its own patience is five minutes. What it does heed
is a change of the pod itself. So the extender remembers whom it has refused and, after every change in its ledger or
its quotas, asks itself whether that pod would be placed among the nodes it was offered. If so it writes the time into
the pod's annotation `aliquot.dev/retry`, and kube-scheduler asks again.

Members of a group are touched, too, when what keeps the group waiting is no more what they were told.

Nothing is reserved by asking. A pod that was touched in vain (something else keeps it from its node) is let be for
twice as long each time. kube-scheduler often notices by itself, when a pod has gone, and is given a moment to.

What grows: the pods that wait. A change costs one look for every kind of waiting pod (namespace, priority, shape, nodes
offered),
at most once in `PAUSE_SECONDS`, and no more than a tenth of the time in all.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from aliquot.api.names import DEFAULT_SCHEDULER, RETRY_ANNOTATION
from aliquot.api.pod_groups import group_of
from aliquot.kube.answers import ApiError
from aliquot.kube.listing import Listing
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS, Resource
from aliquot.request.pod_request import PodRequest

_log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
"""From a change to the first touch, and between rounds."""
PAUSES_PER_ROUND = 10
"""A long round is followed by a pause so many times as long: looking is no more than a tenth of the work."""
TOUCHES_PER_ROUND = 20
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 2.0, 120.0
"""How long a pod that was touched is let be, at first and at most."""


class TouchApi(Protocol):
    """What touching needs of the API server; `aliquot.kube.api.Api` has it."""

    async def list(
        self, resource: Resource[Pod], namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Pod]:
        """Read all pods that a selector picks; ApiError when that fails."""

    async def patch(
        self, resource: Resource[Pod], name: str, body: Any, namespace: str = "", /, *, subresource: str = ""
    ) -> Pod:
        """Patch a pod; ApiError when that fails."""


class Feed(Protocol):
    """What reads the cluster."""

    async def read(self) -> None:
        """Return once all has been read."""


class Decision(Protocol):
    """What filter would say."""

    def nodes(self) -> Sequence[str]:
        """All nodes with cards, for pods of which it is not known where they may go."""

    def request_of(self, pod: Pod) -> PodRequest:
        """What a pod asks for; RequestError where it makes no sense."""

    def would_place(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool:
        """Whether it would get one of these nodes now."""

    def is_special(self, uid: str) -> bool:
        """Whether a pod may get a place where others of its kind get none: it has one that is its own."""

    def group_waits(self, uid: str) -> str:
        """What keeps the group of a pod waiting, in words; empty for a pod that goes alone."""

    def by_share(self, waiters: "Iterable[PendingPod]") -> "list[PendingPod]":
        """The same in the order in which they are to be woken."""

    def turn_seconds(self) -> float | None:
        """Until somebody need no longer wait for the turn of others; None where nobody does."""


@dataclass(frozen=True)
class Rest:
    """How long a pod that was touched is let be: longer each time.

    Attributes:
        times: How often it was touched.
        until: Not to be touched before this time, in monotonic seconds.
    """

    times: int = 0
    until: float = 0.0

    def after(self, now: float) -> "Rest":
        """The next, which begins now."""
        seconds = min(FIRST_REST_SECONDS * 2.0**self.times, LONGEST_REST_SECONDS)
        return Rest(self.times + 1, now + seconds)


@dataclass(frozen=True)
class PendingPod:
    """A pod that filter has refused.

    Attributes:
        pod: As filter got it.
        request: What it asks for.
        nodes: Where it might have gone.
        reason: What keeps it from the node that came nearest, in a word; empty where it was refused before the start.
        since: When it was refused first, in seconds since 1970.
        asked: When it was refused last, in monotonic seconds.
        told: What it was told of its group.
        rest: Of touches because it would get a place; all were in vain.
        telling: Of touches because it was told something else of its group.
    """

    pod: Pod
    request: PodRequest
    nodes: tuple[str, ...]
    reason: str = ""
    since: float = field(default_factory=time.time)
    asked: float = field(default_factory=time.monotonic)
    told: str = ""
    rest: Rest = Rest()
    telling: Rest = Rest()

    @property
    def kind(self) -> Hashable:
        """Equal for pods that get a place or get none together."""
        shape = tuple((c.kind, c.slice) for c in self.request.containers)
        spec = self.pod.spec
        written = frozenset(
            name for c in (*spec.init_containers, *spec.containers) for name in c.resources.limits
        )
        group = group_of(self.pod.metadata, spec.scheduling_group)
        return (self.request.namespace, spec.priority or 0, shape, written, id(self.nodes), group)

    @property
    def shape(self) -> Hashable:
        """Equal for pods of a namespace that are the same to others: in priority, and in what they ask for."""
        asked = tuple((c.kind, c.slice) for c in self.request.containers)
        return (self.pod.spec.priority or 0, asked)


class PendingPods:
    """The pods that filter has refused and that have not got a place since.

    Attributes:
        changed: Set when what was refused may be possible.
        changes: Grows with everything that has changed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody waits yet; `clock` gives monotonic seconds."""
        self.changed = asyncio.Event()
        self.changes = 0
        self._clock = clock
        self._trials = 0
        self._pods: dict[str, PendingPod] = {}
        self._kinds: dict[str, dict[Hashable, dict[str, None]]] = {}
        self._listeners: list[Callable[[Pod, PodRequest], None]] = []

    def __len__(self) -> int:
        return len(self._pods)

    def on_refusal(self, heard: Callable[[Pod, PodRequest], None]) -> None:
        """Have this called each time filter refuses a pod."""
        self._listeners.append(heard)

    def all(self) -> list[PendingPod]:
        """The pods, those of the highest priority first, and of equal ones those that wait longest."""
        return sorted(self._pods.values(), key=lambda waiter: -(waiter.pod.spec.priority or 0))

    def get(self, uid: str) -> PendingPod | None:
        """A pod that waits; None where it is not known to."""
        return self._pods.get(uid)

    def refused(
        self, pod: Pod, request: PodRequest, nodes: Sequence[str], reason: str = "", told: str = ""
    ) -> None:
        """Filter has found no place for a pod, and has said this of its group."""
        old = self._pods.get(request.uid) or PendingPod(pod, request, ())
        offered, now = canonical(frozenset(nodes)), self._clock()
        self._remove(request.uid)
        waiter = replace(old, nodes=offered, reason=reason, told=told, asked=now)
        self._pods[request.uid] = waiter
        kinds = self._kinds.setdefault(request.namespace, {})
        kinds.setdefault(waiter.shape, {})[request.uid] = None
        for heard in self._listeners:
            heard(pod, request)

    def put(self, waiter: PendingPod) -> None:
        """Change what is known of a pod, if it still waits."""
        if waiter.request.uid in self._pods:
            self._pods[waiter.request.uid] = waiter

    def forget(self, uid: str) -> None:
        """The pod has got a place, or is gone."""
        self._remove(uid)

    def _remove(self, uid: str) -> None:
        waiter = self._pods.pop(uid, None)
        if waiter is None:
            return
        namespace, shape = waiter.request.namespace, waiter.shape
        kinds = self._kinds[namespace]
        kinds[shape].pop(uid)
        if not kinds[shape]:
            del kinds[shape]
        if not kinds:
            del self._kinds[namespace]

    def namespaces(self) -> Collection[str]:
        """Those of the pods."""
        return self._kinds.keys()

    def others(self, namespace: str) -> bool:
        """Whether pods of other namespaces than this one wait."""
        return len(self._kinds) > (namespace in self._kinds)

    def kinds(self, namespace: str) -> Iterator[Collection[str]]:
        """The UIDs of a namespace's pods, of each kind; those first that filter was asked for longest ago."""
        for uids in self._kinds.get(namespace, {}).values():
            yield uids.keys()

    def something_changed(self, *_: object) -> None:
        """What was refused may be possible now."""
        if self._trials:
            return
        self.changes += 1
        self.somebody_to_tell()

    def somebody_to_tell(self) -> None:
        """Nothing has become possible, but something else may be said of it."""
        if self._pods:
            self.changed.set()

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """What changes meanwhile is taken back before anybody looks, or told of afterwards."""
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1


@lru_cache(maxsize=64)
def canonical(nodes: frozenset[str]) -> tuple[str, ...]:
    """The same tuple for the same nodes, in whatever order kube-scheduler names them, which differs from call to call.

    Thousands of pods are offered the same thousands of names.
    """
    return tuple(sorted(nodes))


class Waker:
    """Touches pods that wait for nothing any more."""

    def __init__(
        self,
        api: TouchApi,
        waiting: PendingPods,
        decision: Decision,
        feeds: Sequence[Feed] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        touched: Callable[[], None] = lambda: None,
        missed: Callable[[Pod], Awaitable[None]] | None = None,
    ) -> None:
        """Wait for changes.

        Args:
            api: The cluster.
            waiting: Who waits.
            decision: What filter would say.
            feeds: What reads the cluster.
            clock: Monotonic seconds.
            touched: Counts touches.
            missed: Is told at the start of pods that the cluster's own scheduler looks after.
        """
        self._missed = missed
        self._api = api
        self._waiting = waiting
        self._decision = decision
        self._feeds = feeds
        self._clock = clock
        self._touched = touched

    async def run(self) -> None:
        """Wake pods until cancelled; begin once the cluster has been read."""
        for feed in self._feeds:
            await feed.read()
        await self._recover()
        rest: float | None = None
        took = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._waiting.changed.wait()
            await asyncio.sleep(max(PAUSE_SECONDS, took * PAUSES_PER_ROUND))
            self._waiting.changed.clear()
            start = self._clock()
            rest = await self.wake()
            took = self._clock() - start

    async def wake(self) -> float | None:
        """Touch those that would get a place; the seconds until it is worth looking again, None for a change only."""
        hopeless: set[Hashable] = set()
        left, rests = TOUCHES_PER_ROUND, list[float]()
        for waiter in self._decision.by_share(self._waiting.all()):
            hopeful = await self._is_hopeful(waiter, hopeless)
            if not (hopeful or self._told_otherwise(waiter)):
                continue
            rest = waiter.rest if hopeful else waiter.telling
            if rest.until > self._clock():
                rests.append(rest.until - self._clock())
            elif left:
                left -= 1
                rests.append(await (self.touch(waiter) if hopeful else self._tell(waiter)))
            else:
                rests.append(0.0)
        turn = self._decision.turn_seconds()
        return min(rests if turn is None else [*rests, turn], default=None)

    async def _is_hopeful(self, waiter: PendingPod, hopeless: set[Hashable]) -> bool:
        """Whether a pod would get a place; of which kinds none would is noted."""
        if waiter.kind in hopeless and not self._decision.is_special(waiter.request.uid):
            return False
        await asyncio.sleep(0)  # filter calls come first
        hopeful = self._decision.would_place(waiter.pod, waiter.request, waiter.nodes)
        if not hopeful and not self._decision.is_special(waiter.request.uid):
            hopeless.add(waiter.kind)
        return hopeful

    def _told_otherwise(self, waiter: PendingPod) -> bool:
        """Whether something else keeps a pod's group waiting than it was told."""
        return bool(waiter.told) and self._decision.group_waits(waiter.request.uid) not in {"", waiter.told}

    async def touch(self, waiter: PendingPod) -> float:
        """Have kube-scheduler ask again, for it would get a place; how long the pod is to be let be then."""
        rest = waiter.rest.after(self._clock())
        self._waiting.put(replace(waiter, rest=rest))
        await self._write(waiter)
        return rest.until - self._clock()

    async def _tell(self, waiter: PendingPod) -> float:
        """The same to have it told what keeps its group waiting."""
        rest = waiter.telling.after(self._clock())
        self._waiting.put(replace(waiter, telling=rest))
        await self._write(waiter)
        return rest.until - self._clock()

    async def _write(self, waiter: PendingPod) -> None:
        """Change a pod, so that kube-scheduler asks for it."""
        meta = waiter.pod.metadata
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        body = {"metadata": {"uid": meta.uid, "annotations": {RETRY_ANNOTATION: now}}}
        try:
            await self._api.patch(PODS, meta.name, body, meta.namespace, subresource="status")
        except ApiError as error:
            _log.info("pod %s is not touched: %s", waiter.pod.key, error)
            if error.not_found or error.conflict:
                self._waiting.forget(meta.uid)
        else:
            self._touched()

    async def _recover(self) -> None:
        """Remember whom the extender before this one has refused."""
        try:
            pending = await self._api.list(PODS, field_selector="spec.nodeName=")
        except ApiError as error:
            _log.warning("pods refused before the start are not woken: %s", error)
            return
        for pod in pending.items:
            if pod.spec.scheduler_name != DEFAULT_SCHEDULER:
                self._remember(pod)
            elif self._missed:
                await self._missed(pod)
        self._waiting.something_changed()

    def _remember(self, pod: Pod) -> None:
        refused = any(
            (c.type, c.status, c.reason) == ("PodScheduled", "False", "Unschedulable")
            for c in pod.status.conditions
        )
        if not refused or pod.finished:
            return
        with contextlib.suppress(ValueError):
            request = self._decision.request_of(pod)
            if request.wants_slices:
                self._waiting.refused(pod, request, self._decision.nodes())
