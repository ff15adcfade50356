"""Where a pod may run, whatever is free there: by what its spec says of nodes, and what nodes and their pods say of it.

As kube-scheduler has it: cordoned nodes and taints, node selector, required node affinity, required anti-affinity of
pods on one node, of both sides. Volumes and host ports are not looked at. A pod is left where it is when other nodes
would have to be known to tell whether it may move: required affinity to pods, hard spread constraints, anti-affinity
by anything but the node. So are pods that are made again where they were, and those that say that they are not
to be evicted.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from aliquot.kube.listing import Listing
from aliquot.kube.objects import KubeObject, KubeStruct, Node, Pod, PodSpec, Taint
from aliquot.kube.resources import NODES, Resource
from aliquot.kube.selectors import LabelSelector, NodeSelector

BOUND_TO_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods are made again where they were."""
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
HARD: Final = frozenset({"NoSchedule", "NoExecute"})
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
HOSTNAME: Final = "kubernetes.io/hostname"

_T = TypeVar("_T", bound=KubeObject)


class Reader(Protocol):
    """What is needed of the API server; `aliquot.kube.api.Api` has it."""

    async def list(
        self, resource: Resource[_T], namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[_T]:
        """Read all that a selector picks; ApiError when that fails."""


class Toleration(KubeStruct, frozen=True, kw_only=True):
    """A taint that a pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether it is this taint; without a key it is every one."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class PodTerm(KubeStruct, frozen=True, kw_only=True):
    """Some pods, and what is to be the same of their nodes and the pod's."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it can be judged by one node and the pods on it."""
        others = self.namespace_selector or self.match_label_keys or self.mismatch_label_keys
        return self.topology_key == HOSTNAME and not others

    def picks(self, owner: Pod, other: Pod) -> bool:
        """Whether a pod is meant by the term of another; where it cannot be judged it is."""
        if self.namespace_selector or self.match_label_keys or self.mismatch_label_keys:
            return True
        if other.metadata.namespace not in (self.namespaces or (owner.metadata.namespace,)):
            return False
        return self.label_selector is not None and self.label_selector.picks(other.metadata.labels)


class _NodeAffinity(KubeStruct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class _PodAffinity(KubeStruct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] | None = None


class _Affinity(KubeStruct, frozen=True, kw_only=True):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Spread(KubeStruct, frozen=True, kw_only=True):
    when_unsatisfiable: str = ""


class _Spec(PodSpec, frozen=True, kw_only=True):
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[_Spread, ...] | None = None


class Tenant(Pod, frozen=True, kw_only=True):
    """A pod with what it says of nodes."""

    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def nodes(self) -> NodeSelector | None:
        """The nodes that its affinity demands."""
        affinity = self.spec.affinity.node_affinity if self.spec.affinity else None
        return affinity.required_during_scheduling_ignored_during_execution if affinity else None

    @property
    def beside(self) -> Sequence[PodTerm]:
        """The pods that it demands to be near."""
        return _terms(self.spec.affinity.pod_affinity if self.spec.affinity else None)

    @property
    def apart(self) -> Sequence[PodTerm]:
        """The pods that it may not be near."""
        return _terms(self.spec.affinity.pod_anti_affinity if self.spec.affinity else None)

    @property
    def stays(self) -> bool:
        """Whether it is to be left where it is."""
        spreads = any(
            s.when_unsatisfiable != "ScheduleAnyway" for s in self.spec.topology_spread_constraints or ()
        )
        owned = any(owner.kind in BOUND_TO_NODE for owner in self.metadata.owner_references)
        kept = self.metadata.annotations.get(SAFE_TO_EVICT) == "false"
        return owned or kept or spreads or bool(self.beside) or not all(one.is_plain for one in self.apart)

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        """Whether none of a node's taints keeps it off."""
        tolerations = self.spec.tolerations or ()
        return all(taint.effect not in HARD or any(t.covers(taint) for t in tolerations) for taint in taints)

    def likes(self, node: Node) -> bool:
        """Whether a node is as it demands."""
        name, labels = node.metadata.name, node.metadata.labels
        chosen = all(labels.get(key) == value for key, value in self.spec.node_selector.items())
        return chosen and (self.nodes is None or self.nodes.picks(name, labels))

    def shuns(self, other: "Tenant") -> bool:
        """Whether it may not be where another is."""
        return any(term.picks(self, other) for term in self.apart)


TENANTS: Final = Resource("", "v1", "pods", Tenant)


class NodeConstraints:
    """Some nodes and the pods on them, as they are when they are visited."""

    def __init__(self, api: Reader) -> None:
        """Know none yet.

        Args:
            api: The cluster.
        """
        self._api = api
        self._nodes: dict[str, Node | None] = {}
        self._tenants: dict[str, list[Tenant]] = {}

    async def visit(self, name: str) -> None:
        """Read a node and its pods, once.

        Raises:
            ApiError: the API server does not say.
        """
        if name not in self._nodes:
            nodes = await self._api.list(NODES, field_selector=f"metadata.name={name}")
            tenants = await self._api.list(TENANTS, field_selector=f"spec.nodeName={name}")
            self._nodes[name] = next(iter(nodes.items), None)
            self._tenants[name] = [pod for pod in tenants.items if not pod.finished]

    def on(self, name: str) -> Sequence[Tenant]:
        """The pods on a node that has been visited."""
        return self._tenants[name]

    def admit(self, pod: Tenant, name: str) -> bool:
        """Whether a pod may run on a node that has been visited, beside the pods there."""
        node = self._nodes[name]
        if node is None:
            return False
        taints = (*node.spec.taints, CORDON) if node.spec.unschedulable else node.spec.taints
        if not (pod.tolerates(taints) and pod.likes(node)):
            return False
        return not any(pod.shuns(other) or other.shuns(pod) for other in self._tenants[name])


def _terms(affinity: _PodAffinity | None) -> Sequence[PodTerm]:
    return (affinity and affinity.required_during_scheduling_ignored_during_execution) or ()
