"""Which nodes serve another project's resources natively: a dialect's pods must not land there.

A pod written for another project keeps that project's resources. On a node where that project's own device
plugin still runs, the kubelet would serve them a second time, on cards of its own choice. When that plugin has gone,
the kubelet keeps a count of 0 and fails every pod that names the resource, until somebody removes the count from the
node's status (docs/migrate-from-hami.md).
"""

from collections.abc import Collection, Sequence

from aliquot.dialects import Dialect
from aliquot.kube.objects import Node, Pod


class ForeignPlugins:
    """The nodes that advertise a dialect's resources, kept per resource; grows with those nodes only."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._nodes: dict[str, set[str]] = {name: set() for d in dialects for name in d.resources}

    @property
    def resources(self) -> Collection[str]:
        """The resources of the dialects that are switched on."""
        return self._nodes.keys()

    def put_node(self, node: Node) -> None:
        """Take over what a node advertises."""
        for resource, nodes in self._nodes.items():
            if resource in node.status.allocatable:
                nodes.add(node.metadata.name)
            else:
                nodes.discard(node.metadata.name)

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        for nodes in self._nodes.values():
            nodes.discard(name)

    def nodes_serving(self, pod: Pod) -> set[str]:
        """The nodes that serve one of the pod's foreign resources themselves."""
        if not self._nodes:
            return set()
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        used = {name for c in containers for name in c.resources.limits if name in self._nodes}
        return set[str]().union(*(self._nodes[name] for name in used))
