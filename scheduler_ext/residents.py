"""The pods that hold cards, as far as it matters to whoever would have them leave: priority, age, labels.

Where they are and what they hold is the ledger's business; this is the rest, one entry for each bound pod with cards.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from aliquot.kube.objects import ObjectMeta
from aliquot.placement import Placement
from scheduler_ext.ledger import Entry, Ledger
from scheduler_ext.pods import PlacedPod


class Resident(msgspec.Struct, frozen=True, gc=False):
    """A bound pod that holds cards.

    Attributes:
        uid, namespace, name: The pod's.
        priority: As its PriorityClass says; 0 where it says nothing.
        burst: All its memory may be overcommitted.
        started: When the kubelet took it on, else when it was made; in seconds since 1970.
        leaving: It is being deleted: what it holds will be free without anybody's doing.
        labels: What disruption budgets pick it by.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    burst: bool
    started: float
    leaving: bool
    labels: Mapping[str, str]


class Residents:
    """The bound pods with cards, by UID and by node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pods: dict[str, Resident] = {}
        self._priorities: Counter[int] = Counter()

    def put(self, pod: PlacedPod, placement: Placement | None) -> None:
        """Take over what a bound pod says of itself."""
        if placement is None:
            self.drop(pod.metadata.uid)
            return
        meta = pod.metadata
        self.drop(meta.uid)
        self._priorities[pod.spec.priority or 0] += 1
        self._pods[meta.uid] = Resident(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            priority=pod.spec.priority or 0,
            burst=all(container.burst for container in placement.containers),
            started=_seconds(pod.status.start_time or meta.creation_timestamp),
            leaving=is_leaving(meta),
            labels=meta.labels,
        )

    def drop(self, uid: str) -> None:
        """A pod has gone."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._priorities[pod.priority] -= 1
            if not self._priorities[pod.priority]:
                del self._priorities[pod.priority]

    def any_below(self, priority: int) -> bool:
        """Whether anybody has a lower priority."""
        return min(self._priorities, default=priority) < priority

    def get(self, uid: str) -> Resident | None:
        """A pod, if it is bound and holds cards."""
        return self._pods.get(uid)

    def on(self, node: str) -> list[tuple[Resident, Entry]]:
        """The pods on a node, each with its place."""
        pods = self._pods
        return [
            (pods[uid], entry) for entry in self._ledger.on(node) if (uid := entry.placement.pod_uid) in pods
        ]


def is_leaving(meta: ObjectMeta) -> bool:
    """Whether an object is being deleted."""
    return meta.deletion_timestamp is not None


@lru_cache(maxsize=4096)
def _seconds(timestamp: str | None) -> float:
    """A time as Kubernetes writes it; the beginning of time for one that cannot be read.

    One object for all pods of the same second: many are made at once.
    """
    try:
        return dt.datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return 0.0
