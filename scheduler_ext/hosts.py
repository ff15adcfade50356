"""What is left of every node's CPU and memory, from what nodes allow and pods request.

kube-scheduler decides whether they fit; placement uses them to tell free cards that still can be reached from those
that cannot. Every pod on a node counts, with slices or without. One entry of two numbers a pod, and one a node.
"""

from collections.abc import Sequence

import msgspec

from aliquot.host import NO_HOST, HostShare
from scheduler_ext.table import PLENTY, UNKNOWN, CardTable


class _Guest(msgspec.Struct, frozen=True, gc=False):
    """What a pod takes, and of which node."""

    node: str
    share: HostShare


class Hosts:
    """Keeps the table's CPU and memory in step with nodes and pods."""

    def __init__(self, table: CardTable) -> None:
        self._table = table
        self._whole: dict[str, HostShare] = {}
        self._used: dict[str, HostShare] = {}
        self._pods: dict[str, _Guest] = {}

    def put_node(self, node: str, whole: HostShare) -> None:
        """Take over what pods may take of a node; nothing at all means that it does not say."""
        if whole != self._whole.get(node):
            self._whole[node] = whole if whole != NO_HOST else HostShare(PLENTY, PLENTY)
            self._write(node)

    def drop_node(self, node: str) -> None:
        """Forget a node; its pods stay, in case it comes back."""
        self._whole.pop(node, None)
        self._table.drop_host(node)

    def of(self, uid: str) -> HostShare:
        """What a pod takes, as far as it is known."""
        guest = self._pods.get(uid)
        return guest.share if guest else NO_HOST

    def put_pod(self, uid: str, node: str, share: HostShare) -> None:
        """A pod is on this node, or is about to be, and nowhere else."""
        known = self._pods.get(uid)
        if known is not None:
            if (known.node, known.share) == (node, share):
                return
            self.drop_pod(uid)
        if share != NO_HOST:
            self._pods[uid] = _Guest(node, share)
            self._used[node] = self._used.get(node, NO_HOST) + share
            self._write(node)

    def drop_pod(self, uid: str) -> None:
        """A pod has gone, or is not where it was to be."""
        guest = self._pods.pop(uid, None)
        if guest is None:
            return
        left = self._used[guest.node] - guest.share
        if left == NO_HOST:
            del self._used[guest.node]
        else:
            self._used[guest.node] = left
        self._write(guest.node)

    def with_room(self, nodes: Sequence[str], share: HostShare) -> Sequence[str]:
        """Those of the nodes that have so much left, as far as is known; the very same where all have."""
        if share == NO_HOST:
            return nodes
        rows = self._table.rows_of(nodes)
        enough = (self._table.host_cpu[rows] >= share.cpu_milli) & (
            self._table.host_mib[rows] >= share.memory_mib
        )
        enough |= rows == UNKNOWN
        return nodes if enough.all() else [node for node, room in zip(nodes, enough, strict=True) if room]

    def _write(self, node: str) -> None:
        whole = self._whole.get(node)
        if whole is not None:
            self._table.put_host(node, whole, whole - self._used.get(node, NO_HOST))
