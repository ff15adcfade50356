"""Whose turn it is: of pods of the same priority, those of the namespace with the lowest share go first.

kube-scheduler asks for pods in its own order, which knows no shares. So filter does not give a node to a pod while a
pod of a lower share waits that could have this very node: the room is left for that pod, which is woken, and comes
within kube-scheduler's longest pause. A share is what `Quotas.share` says. Nothing is held or reserved for anybody.

Room stays unused meanwhile, so yielding is bounded. It lasts until the absent pod may be expected, at most
`MOST_IDLE_SECONDS` for a node. A namespace none of whose pods came is not waited for in the next `REST_SECONDS`, and
then not for the same pod, unless filter has been asked for that pod since. Pods that get their places together with
others, that room was made for, or for which kube-scheduler has not asked lately take no part.

What grows: an entry for each namespace that was waited for, and for each node that was left. A filter call that finds
a place looks at `MOST_NAMESPACES` with a lower share and at `MOST_KINDS` kinds of pods in each; where nobody else
waits it looks at nothing.
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from aliquot.kube.objects import Pod
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.placement.node_survey import roomy
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPod, PendingPods, Rest

YIELD_SECONDS: Final = 3.0
"""Until a pod that is woken has been asked for."""
BACKOFF_SECONDS: Final = 11.0
"""From a refusal to the next call at the latest: kube-scheduler's podMaxBackoffSeconds, 10, and its way."""
MOST_IDLE_SECONDS: Final = 15.0
"""How long a node is left for others without a break."""
REST_SECONDS: Final = 60.0
"""How long a namespace is not waited for after nobody of it came."""
LATELY_SECONDS: Final = 330.0
"""kube-scheduler tries every pod again after five minutes; one for which it did not ask in that time may not come."""
MOST_NAMESPACES: Final = 4
MOST_KINDS: Final = 8
MOST_PODS: Final = 8
"""Of a kind, in search of one that may be waited for."""
MOST_ENTRIES: Final = 256
"""Of namespaces and of nodes, before those that no longer matter are forgotten."""


class Finder(Protocol):
    """What filter knows; `Filter` has it."""

    @property
    def ledger(self) -> Ledger:
        """What is promised."""

    @property
    def placer(self) -> Placer:
        """Chooses cards."""

    @property
    def quotas(self) -> Quotas:
        """Who has which share."""

    @property
    def waiting(self) -> PendingPods:
        """Who waits."""

    def open_nodes(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> Sequence[str]:
        """Those of these nodes that are not closed to a pod, whatever room they have."""

    def has_claim(self, uid: str) -> bool:
        """Whether room was made for a pod, or is kept for it."""


@dataclass(frozen=True)
class Ahead:
    """A pod that goes before another one.

    Attributes:
        waiter: The pod.
        text: Why the other one has to wait.
    """

    waiter: PendingPod
    text: str


@dataclass(frozen=True)
class _Yield:
    """A namespace that others wait for.

    Attributes:
        uid: The pod of it that was waited for first.
        asked: When filter had been asked for that pod, in monotonic seconds.
        end: Until when it is waited for.
        rest: Until when the namespace is not waited for again, where nobody of it has come.
    """

    uid: str
    asked: float
    end: float
    rest: float


@dataclass(frozen=True)
class _Left:
    """A node that was left for others: since when, and when last."""

    since: float
    last: float


@dataclass
class FairShare:
    """Who is waited for, and where; `clock` gives monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _yields: dict[str, _Yield] = field(default_factory=dict)
    _left: dict[str, _Left] = field(default_factory=dict)

    # ---- questions ----

    def ahead(self, finder: Finder, pod: Pod, request: PodRequest, node: str = "") -> dict[str, Ahead]:
        """The nodes that a pod has to leave to others now, each with the pod that goes first; nothing is noted.

        Args:
            finder: What filter knows; the ledger is without any charge of this pod.
            pod: The pod that asks.
            request: What it asks for.
            node: The only node that matters; empty where all do.
        """
        if not finder.waiting.others(request.namespace) or finder.has_claim(request.uid):
            return {}
        found: dict[str, Ahead] = {}
        pools = [finder.quotas.pool_of(node)] if node else finder.quotas.pools
        for pool in pools:
            for waiter, text in self._lower(finder, pool, pod, request):
                for name in _usable(finder, waiter, node):
                    if name not in found and self._may_be_left(name) and finder.quotas.pool_of(name) == pool:
                        found[name] = Ahead(waiter, text)
                if node and found:
                    return found
        return found

    def seconds_left(self) -> float | None:
        """Until the first of those that are waited for is waited for no longer; None where nobody is."""
        now = self.clock()
        return min((one.end - now for one in self._yields.values() if one.end > now), default=None)

    # ---- what filter tells ----

    def begin(self, waiting: PendingPods, ahead: Mapping[str, Ahead]) -> None:
        """A pod leaves these nodes to others, who are to be woken."""
        self._tidy()
        now = self.clock()
        for node, one in ahead.items():
            known = self._left.get(node)
            since = known.since if known and now - known.last < MOST_IDLE_SECONDS else now
            self._left[node] = _Left(since, now)
            request, asked = one.waiter.request, one.waiter.asked
            running = self._yields.get(request.namespace)
            if running is None or running.end <= now:
                end = max(now + YIELD_SECONDS, asked + BACKOFF_SECONDS)
                self._yields[request.namespace] = _Yield(request.uid, asked, end, end + REST_SECONDS)
                waiting.put(replace(one.waiter, rest=Rest()))
                waiting.somebody_to_tell()

    def placed(self, namespace: str, node: str) -> None:
        """A pod of this namespace has got a place on this node."""
        self._left.pop(node, None)
        known = self._yields.get(namespace)
        if known is not None:
            self._yields[namespace] = replace(known, rest=0.0)

    # ---- who goes first ----

    def _lower(
        self, finder: Finder, pool: str, pod: Pod, request: PodRequest
    ) -> Iterator[tuple[PendingPod, str]]:
        """Pods of namespaces with a lower share, the lowest first, and in which words they go first."""
        quotas, waiting = finder.quotas, finder.waiting
        for namespace in quotas.lower(pool, request.namespace, waiting.namespaces())[:MOST_NAMESPACES]:
            text = _words(quotas, pool, namespace, request.namespace)
            for uids in itertools.islice(waiting.kinds(namespace), MOST_KINDS):
                waiter = self._expected(finder, namespace, uids)
                if waiter is not None and (waiter.pod.spec.priority or 0) >= (pod.spec.priority or 0):
                    yield waiter, text

    def _expected(self, finder: Finder, namespace: str, uids: Collection[str]) -> PendingPod | None:
        """The pod of a kind that may be waited for: the one that comes back first; None where none may."""
        for uid in itertools.islice(uids, MOST_PODS):
            waiter = finder.waiting.get(uid)
            if (
                waiter is not None
                and self._may_come(finder, waiter)
                and self._is_waited_for(finder, namespace, uid)
            ):
                return waiter
        return None

    def _may_come(self, finder: Finder, waiter: PendingPod) -> bool:
        """Whether kube-scheduler asks for a pod by itself, and the pod may go alone to wherever it has room."""
        lately = self.clock() - waiter.asked <= LATELY_SECONDS
        alone = not waiter.told and finder.ledger.entry(waiter.request.uid) is None
        return lately and alone and bool(waiter.reason)

    def _is_waited_for(self, finder: Finder, namespace: str, uid: str) -> bool:
        """Whether a namespace may be waited for, for this pod."""
        known, now = self._yields.get(namespace), self.clock()
        if known is None or now < known.end:
            return True
        first = finder.waiting.get(known.uid)
        if first is None or first.asked > known.asked:  # it came
            return True
        return now >= known.rest and uid != known.uid

    def _may_be_left(self, node: str) -> bool:
        """Whether a node may be left unused for longer."""
        known, now = self._left.get(node), self.clock()
        if known is None or now - known.last >= MOST_IDLE_SECONDS:
            return True
        return now - known.since < MOST_IDLE_SECONDS

    def _tidy(self) -> None:
        """Forget what no longer matters."""
        now = self.clock()
        if len(self._yields) > MOST_ENTRIES:
            self._yields = {name: one for name, one in self._yields.items() if max(one.end, one.rest) > now}
        if len(self._left) > MOST_ENTRIES:
            self._left = {name: one for name, one in self._left.items() if now - one.last < MOST_IDLE_SECONDS}


def _usable(finder: Finder, waiter: PendingPod, node: str) -> Sequence[str]:
    """The nodes that a pod would fit on and may go to; where one is named, of that alone."""
    request = waiter.request
    if node and node not in waiter.nodes:
        return ()
    host = HostShare(request.host.cpu_milli, request.host.memory_mib)
    offered = finder.ledger.hosts.with_room([node] if node else waiter.nodes, host)
    nodes = finder.open_nodes(waiter.pod, request, offered)
    if node and nodes:
        return nodes if finder.placer.place(request, nodes) is not None else ()
    return roomy(finder.ledger.table, request, nodes)


def _words(quotas: Quotas, pool: str, first: str, second: str) -> str:
    """Why the second namespace waits."""
    low, high = (f"{share:.1%}" for share in quotas.shares(pool, first, second))
    there = f"GPUPool {pool}" if pool else "the cluster"
    return (
        f"it is the turn of namespace {first}, whose share of {there} by weight is {low} beyond its guarantee; "
        f"namespace {second} has {high}"
    )
