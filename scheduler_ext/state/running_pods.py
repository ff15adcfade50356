"""The pods that hold cards, as far as it matters to whoever would have them leave: priority, age, labels.

Where they are and what they hold is the ledger's business; this is the rest, one entry for each bound pod with cards.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.kube.objects import ObjectMeta
from aliquot.request.placement import Placement
from aliquot.scheduler_ext.state.ledger import Entry, Ledger
from aliquot.scheduler_ext.state.pods import PlacedPod, seconds_of


class RunningPod(msgspec.Struct, frozen=True, gc=False):
    """A bound pod that holds cards.

    Attributes:
        uid, namespace, name: The pod's.
        priority: As its PriorityClass says; 0 where it says nothing.
        burst: All its memory may be overcommitted.
        started: When the kubelet took it on, else when it was made; in seconds since 1970.
        leaves_by: When it is to have ended, in seconds since 1970; None unless it is being deleted.
        labels: What disruption budgets pick it by.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    burst: bool
    started: float
    leaves_by: float | None
    labels: Mapping[str, str]

    @property
    def deleted(self) -> bool:
        """Whether it is being deleted: evicting it would change nothing."""
        return self.leaves_by is not None


class RunningPods:
    """The bound pods with cards, by UID and by node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pods: dict[str, RunningPod] = {}
        self._priorities: Counter[int] = Counter()
        self._deleted: dict[str, RunningPod] = {}
        self._of: defaultdict[str, dict[str, RunningPod]] = defaultdict(dict)

    def put(self, pod: PlacedPod, placement: Placement | None) -> None:
        """Take over what a bound pod says of itself."""
        if placement is None:
            self.drop(pod.metadata.uid)
            return
        meta = pod.metadata
        self.drop(meta.uid)
        self._priorities[pod.spec.priority or 0] += 1
        self._pods[meta.uid] = resident = RunningPod(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            priority=pod.spec.priority or 0,
            burst=all(container.burst for container in placement.containers),
            started=seconds_of(pod.status.start_time or meta.creation_timestamp),
            leaves_by=seconds_of(meta.deletion_timestamp) if is_leaving(meta) else None,
            labels=meta.labels,
        )
        self._of[meta.namespace][meta.uid] = resident
        if resident.deleted:
            self._deleted[meta.uid] = resident

    def drop(self, uid: str) -> None:
        """A pod has gone."""
        pod = self._pods.pop(uid, None)
        self._deleted.pop(uid, None)
        if pod is not None:
            del self._of[pod.namespace][uid]
            self._priorities[pod.priority] -= 1
            if not self._priorities[pod.priority]:
                del self._priorities[pod.priority]

    def any_below(self, priority: int) -> bool:
        """Whether anybody has a lower priority."""
        return min(self._priorities, default=priority) < priority

    def below(self, namespaces: Iterable[str], priority: int) -> list[RunningPod]:
        """Those of these namespaces that have a lower priority."""
        return [
            pod for one in namespaces for pod in self._of.get(one, {}).values() if pod.priority < priority
        ]

    def of(self, namespaces: Iterable[str]) -> list[RunningPod]:
        """Those of these namespaces."""
        return [pod for one in namespaces for pod in self._of.get(one, {}).values()]

    def namespaces(self) -> list[str]:
        """Those that have any."""
        return [namespace for namespace, pods in self._of.items() if pods]

    def deleted(self) -> list[RunningPod]:
        """Those that are being deleted."""
        return list(self._deleted.values())

    def get(self, uid: str) -> RunningPod | None:
        """A pod, if it is bound and holds cards."""
        return self._pods.get(uid)

    def on(self, node: str) -> list[tuple[RunningPod, Entry]]:
        """The pods on a node, each with its place."""
        pods = self._pods
        return [
            (pods[uid], entry) for entry in self._ledger.on(node) if (uid := entry.placement.pod_uid) in pods
        ]


def is_leaving(meta: ObjectMeta) -> bool:
    """Whether an object is being deleted."""
    return meta.deletion_timestamp is not None
