"""Replays a trace: pods arrive in random order, each is placed once or not at all, and what is allocated is noted.

As in the study of fragmentation gradient descent (USENIX ATC'23): the pods are shuffled, random ones are repeated
until what they ask for comes to `load` times the cluster's cards, and none leaves. *Churn* is our own addition:
pods are drawn at random and leave after an exponential time, so long that on average `load` times the cards are
asked for.

kube-scheduler's part is played here: nodes whose CPU or memory is short are not offered, and a sample of them only
where it would sample. Nodes get random names, so that no order of a file can help. Pods without cards are placed by
the same policy.
"""

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from aliquot.request.placement import Placement
from aliquot.request.placement_policy import Preference
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.replay.trace import WHOLE_CARD, TraceNode, TracePod
from aliquot.scheduler_ext.state.ledger import Ledger

FEWEST_SAMPLED: Final = 100
"""kube-scheduler never looks at fewer feasible nodes than this."""
CHURN_ARRIVALS: Final = 45_000
CHURN_WARM_UP: Final = 20_000

Heard = Callable[[float], None]
"""Is told how much of a run is done, from 0 to 1."""


class Site(Protocol):
    """Where pods are placed: the placing code itself, or an extender process."""

    def place(self, uid: str, pod: TracePod, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """Place a pod on one of the named nodes; the node and its cards, None where it has no room."""

    def leave(self, uid: str) -> None:
        """A pod goes."""


class InProcess:
    """The ledger and the placing code, called directly."""

    def __init__(self, nodes: dict[str, TraceNode], default: Preference) -> None:
        self._ledger = Ledger(lambda: 0.0)
        self._placer = Placer(self._ledger.table, default)
        for name, node in nodes.items():
            self._ledger.put_node(name, node.status(name))
            self._ledger.hosts.put_node(name, node.host)

    def place(self, uid: str, pod: TracePod, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """Place a pod, and keep the place."""
        request = pod.request(uid)
        placement = self._placer.choose(request, names).placement
        if placement is None:
            return None
        self._ledger.reserve(request, placement)
        return placement.node, cards_of(placement)

    def leave(self, uid: str) -> None:
        """A pod goes."""
        self._ledger.depart(uid)


def cards_of(placement: Placement) -> tuple[str, ...]:
    """The cards of a placement, container after container."""
    return tuple(share.uuid for container in placement.containers for share in container.cards)


@dataclass
class Cluster:
    """The nodes as kube-scheduler sees them, and what has been placed on them.

    Attributes:
        names: Of the nodes, in the order in which kube-scheduler goes through them.
        sample: Percentage of the nodes that it looks at; 100 for all.
    """

    nodes: dict[str, TraceNode]
    sample: int = 100
    names: np.ndarray[tuple[int], np.dtype[np.object_]] = field(init=False)
    capacity: int = field(init=False)
    allocated: int = 0
    placed: dict[str, tuple[int, TracePod]] = field(default_factory=dict)
    _start: int = 0

    def __post_init__(self) -> None:
        nodes = self.nodes.values()
        self.names = np.array(list(self.nodes), object)
        self.capacity = sum(node.cards for node in nodes) * WHOLE_CARD
        self._cpu = np.array([node.host.cpu_milli for node in nodes])
        self._mib = np.array([node.host.memory_mib for node in nodes])
        self._rows = {name: row for row, name in enumerate(self.nodes)}

    def offered(self, pod: TracePod) -> list[str]:
        """The nodes that the extender is asked about."""
        feasible = (self._cpu >= pod.host.cpu_milli) & (self._mib >= pod.host.memory_mib)
        if self.sample >= 100:  # noqa: PLR2004 - percent
            return list(self.names[feasible])
        order = np.roll(np.arange(len(self.names)), -self._start)
        (found,) = np.nonzero(feasible[order])
        most = max(FEWEST_SAMPLED, len(order) * self.sample // 100)
        looked_at = int(found[most - 1]) + 1 if len(found) >= most else len(order)
        self._start = (self._start + looked_at) % len(order)
        return list(self.names[order[found[:most]]])

    def take(self, uid: str, pod: TracePod, node: str, sign: int = 1) -> None:
        """A pod has got a place on a node, or leaves it (sign -1)."""
        row = self._rows[node]
        self._cpu[row] -= sign * pod.host.cpu_milli
        self._mib[row] -= sign * pod.host.memory_mib
        self.allocated += sign * pod.size
        if sign > 0:
            self.placed[uid] = (row, pod)
        else:
            del self.placed[uid]

    def leave(self, uid: str) -> None:
        """A pod goes."""
        row, pod = self.placed[uid]
        self.take(uid, pod, self.names[row], -1)


def named(nodes: Sequence[TraceNode], dice: random.Random) -> dict[str, TraceNode]:
    """The nodes under random names, in the order of the names."""
    shuffled = dice.sample(nodes, len(nodes))
    return {f"node-{number:05}": node for number, node in enumerate(shuffled)}


def inflated(pods: Sequence[TracePod], size: float, dice: random.Random) -> list[TracePod]:
    """The pods in random order, and random ones again until they ask for this much."""
    arriving = dice.sample(pods, len(pods))
    asked = sum(pod.size for pod in arriving)
    while asked < size:
        arriving.append(dice.choice(pods))
        asked += arriving[-1].size
    return arriving


def replay(
    cluster: Cluster, site: Site, arriving: Sequence[TracePod], marks: Sequence[int], heard: Heard
) -> dict[int, float]:
    """Place pods that never leave; percent allocated when what was asked for comes to each mark, in percent."""
    asked, found, left = 0, {}, list(marks)
    for number, pod in enumerate(arriving):
        uid = f"pod-{number:06}"
        place = site.place(uid, pod, cluster.offered(pod))
        if place is not None:
            cluster.take(uid, pod, place[0])
        asked += pod.size
        while left and asked * 100 >= left[0] * cluster.capacity:
            found[left.pop(0)] = 100 * cluster.allocated / cluster.capacity
        heard((number + 1) / len(arriving))
    return found


@dataclass(frozen=True)
class Churned:
    """What a run with departures came to, in percent: of the cards, allocated; of what was asked for, placed."""

    allocated: float
    accepted: float


def churn(
    cluster: Cluster,
    site: Site,
    pods: Sequence[TracePod],
    load: float,
    dice: random.Random,
    *,
    heard: Heard,
    arrivals: int = CHURN_ARRIVALS,
    warm_up: int = CHURN_WARM_UP,
) -> Churned:
    """Place pods that leave again; one arrives each unit of time."""
    life = load * cluster.capacity * len(pods) / sum(pod.size for pod in pods)
    leaving: list[tuple[float, str]] = []
    area = asked = accepted = 0.0
    for now in range(arrivals):
        measured = now >= warm_up
        area += sum(_depart(cluster, site, leaving, now)) * measured
        pod, uid = dice.choice(pods), f"pod-{now:06}"
        gone = now + dice.expovariate(1 / life)
        place = site.place(uid, pod, cluster.offered(pod))
        asked += pod.size * measured
        if place is not None:
            cluster.take(uid, pod, place[0])
            heapq.heappush(leaving, (gone, uid))
            accepted += pod.size * measured
        heard((now + 1) / arrivals)
    return Churned(100 * area / cluster.capacity / (arrivals - warm_up), 100 * accepted / max(asked, 1))


def _depart(cluster: Cluster, site: Site, leaving: list[tuple[float, str]], now: float) -> Iterator[float]:
    """Have the pods go whose time came in the unit of time before now; yields what was allocated times how long."""
    since = now - 1.0
    while leaving and leaving[0][0] <= now:
        when, uid = heapq.heappop(leaving)
        yield cluster.allocated * (when - since)
        since = when
        cluster.leave(uid)
        site.leave(uid)
    yield cluster.allocated * (now - since)


def quiet(_: float) -> None:
    """Hears nothing."""
