"""Pods of several cards, or of a whole one, that wait for room on one node.

Among a steady stream of small pods no node ever has so many cards free at one moment, and nobody keeps one that becomes
free for a pod that needs eight. What `partial_reservations` does about it is to keep a node for such a pod for a while.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np

from aliquot.kube.objects import Pod
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.gang.empty_cluster import Candidate, EmptyCluster
from aliquot.scheduler_ext.placement.reasons import Reason
from aliquot.scheduler_ext.state.pending_pods import PendingPods

MOST_NODES: Final = 64
"""Nodes that are looked at before a pod is taken to fit on none."""
_CURABLE: Final = frozenset(reason.name.lower() for reason in Reason if reason.curable)


@dataclass
class LargePod:
    """One of them.

    Attributes:
        pod: The pod.
        request: What it asks for.
        waiting: Where it waits.
        short_since: When it first found no room, in monotonic seconds.
        saved: How often a node was kept for it in vain.
        too_large: It was found not to fit even if no other pod were there.
        node: The node that is kept for it.
    """

    pod: Pod
    request: PodRequest
    waiting: PendingPods
    short_since: float | None
    saved: int = 0
    too_large: bool = False
    node: str = ""

    def __str__(self) -> str:
        """As it is written to the log."""
        return f"pod {self.pod.key}"

    @property
    def priority(self) -> int:
        """The pod's."""
        return self.pod.spec.priority or 0

    @property
    def offered_nodes(self) -> tuple[str, ...]:
        """Those that kube-scheduler offered when it last asked; none where it does not wait."""
        waiter = self.waiting.get(self.request.uid)
        return tuple(waiter.nodes) if waiter else ()

    def obstacle(self, now: float) -> str:
        """Why room would not help it; empty where it would."""
        del now
        waiter = self.waiting.get(self.request.uid)
        if waiter is None:
            return "it does not wait"
        return "" if waiter.reason in _CURABLE else f"it waits for something else: {waiter.reason}"


class LargePods:
    """Those that wait; one entry each."""

    def __init__(self, waiting: PendingPods, clock: Callable[[], float]) -> None:
        self._waiting = waiting
        self._clock = clock
        self._pods: dict[str, LargePod] = {}
        waiting.on_refusal(self._refused)

    def all(self) -> Iterator[LargePod]:
        """Those that still wait."""
        self._pods = {uid: one for uid, one in self._pods.items() if self._waiting.get(uid) is not None}
        return iter(self._pods.values())

    def choose_node(self, large: LargePod, table: CardTable, closed: AbstractSet[str]) -> str:
        """The node with the fewest slices taken of those on which the pod would fit, were it alone there."""
        nodes = [name for name in large.offered_nodes if name in table]
        taken = table.slots.sum(axis=0)[table.rows_of(nodes)] if nodes else np.zeros(0)
        ordered = sorted(zip(taken.tolist(), nodes, strict=True))
        empty = EmptyCluster(table)
        for _, name in ordered[:MOST_NODES]:
            candidate = Candidate(large.request, (name,), closed)
            if empty.place(candidate, (name,)) is not None:
                return name
        return ""

    def _refused(self, pod: Pod, request: PodRequest) -> None:
        if request.uid not in self._pods and _is_large(request):
            self._pods[request.uid] = LargePod(pod, request, self._waiting, self._clock())


def _is_large(request: PodRequest) -> bool:
    """Whether a pod needs more of one node than small pods leave it by chance."""
    return any(one.slice and (one.slice.cards > 1 or one.slice.exclusive) for one in request.containers)
