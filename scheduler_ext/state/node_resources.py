"""What is left of every node's CPU and memory, and of its slices, from what nodes allow and pods request.

kube-scheduler decides whether CPU and memory fit; placement uses them to tell free cards that still can be reached from
those that cannot. Slices are device ids, which the kubelet gives to containers: it turns a pod away for good for which
it has too few, so no pod is placed beyond them. Every pod on a node counts, with slices or without. One entry of three
numbers a pod, and one a node.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from aliquot.request.host_resources import NO_HOST, HostShare
from aliquot.scheduler_ext.cards.card_table import PLENTY, UNKNOWN, CardTable

LEAST: Final = HostShare(100, 64, 1)
"""A node that has less than this left takes no pod with a slice, as far as quotas are concerned."""


class _Guest(msgspec.Struct, frozen=True, gc=False):
    """What a pod takes, and of which node."""

    node: str
    share: HostShare


class NodeResources:
    """Keeps the table's CPU, memory and slices in step with nodes and pods."""

    def __init__(self, table: CardTable) -> None:
        """Know no node.

        Args:
            table: Gets what is left of each.
        """
        self._table = table
        self._closed: set[str] = set()
        self._full: set[str] = set()
        self._whole: dict[str, HostShare] = {}
        self._used: dict[str, HostShare] = {}
        self._pods: dict[str, _Guest] = {}
        self._listeners: list[Callable[[], None]] = []
        self._on_turn: list[Callable[[str], None]] = []

    def on_turn(self, heard: Callable[[str], None]) -> None:
        """Have this called with each node with cards that takes pods now, or takes none any more."""
        self._on_turn.append(heard)

    def on_freed(self, heard: Callable[[], None]) -> None:
        """Have this called each time a node with cards has more CPU, memory or slices left than before."""
        self._listeners.append(heard)

    def put_node(self, node: str, whole: HostShare, *, closed: bool = False) -> bool:
        """Take over what pods may take of a node; whether it has become another number of slices.

        Neither CPU nor memory means that it does not say how much. `closed`: no pod is sent there now.
        """
        if closed != (node in self._closed):
            (self._closed.add if closed else self._closed.discard)(node)
            self._turned(node)
        if not whole.cpu_milli and not whole.memory_mib:
            whole = HostShare(PLENTY, PLENTY, whole.slices)
        known = self._whole.get(node)
        if whole != known:
            self._whole[node] = whole
            self._write(node)
            if known is None or (whole - known) | NO_HOST != NO_HOST:
                self._tell(node)
        return known is None or whole.slices != known.slices

    def drop_node(self, node: str) -> None:
        """Forget a node; its pods stay, in case it comes back."""
        self._whole.pop(node, None)
        self._closed.discard(node)
        self._full.discard(node)
        self._table.drop_host(node)

    def pods(self) -> Iterable[str]:
        """The UIDs of those that take something of a node."""
        return self._pods

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
        self._tell(guest.node)

    def with_room(self, nodes: Sequence[str], share: HostShare) -> Sequence[str]:
        """Those of the nodes that have so much left, as far as is known; the very same where all have."""
        return with_room(self._table, nodes, share)

    def open_to(self, nodes: Sequence[str], share: HostShare) -> list[str]:
        """Those of the nodes that have so much left and are neither cordoned nor NotReady, as far as is known."""
        return [name for name in self.with_room(nodes, share) if name not in self._closed]

    def takes_pods(self, node: str, gone: Iterable[str] = ()) -> bool:
        """Whether a pod with a slice could be sent to a node, as far as is known, once these of its pods have left."""
        if node in self._closed:
            return False
        whole = self._whole.get(node)
        if whole is None:
            return True
        given = sum((self.of(uid) for uid in gone), NO_HOST)
        left = whole - self._used.get(node, NO_HOST) + given
        return (
            left.cpu_milli >= LEAST.cpu_milli
            and left.memory_mib >= LEAST.memory_mib
            and left.slices >= LEAST.slices
        )

    def lacks(self, node: str, share: HostShare, gone: Iterable[str] = ()) -> bool:
        """Whether a node has less CPU or memory left than this, once these pods have left; unknown is enough."""
        whole = self._whole.get(node)
        if whole is None:
            return False
        given = (guest.share for guest in map(self._pods.get, gone) if guest and guest.node == node)
        left = sum(given, whole - self._used.get(node, NO_HOST))
        return left.cpu_milli < share.cpu_milli or left.memory_mib < share.memory_mib

    def slices_left(self, node: str) -> int:
        """Device ids that nobody has on a node; fewer than none where it has come to offer less than pods hold."""
        whole = self._whole.get(node)
        return PLENTY if whole is None else whole.slices - self._used.get(node, NO_HOST).slices

    def _write(self, node: str) -> None:
        whole = self._whole.get(node)
        if whole is not None:
            self._table.put_host(node, whole, whole - self._used.get(node, NO_HOST))
            self._note_full(node)

    def _note_full(self, node: str) -> None:
        """Tell of a node that has become full, or is full no more."""
        full = node not in self._closed and not self.takes_pods(node)
        if full != (node in self._full):
            (self._full.add if full else self._full.discard)(node)
            self._turned(node)

    def _turned(self, node: str) -> None:
        if node in self._table:
            for heard in self._on_turn:
                heard(node)

    def _tell(self, node: str) -> None:
        if node in self._table:
            for heard in self._listeners:
                heard()


def with_room(table: CardTable, nodes: Sequence[str], share: HostShare) -> Sequence[str]:
    """Those of the nodes that have so much left in a table; the very same where all have."""
    if share == NO_HOST:
        return nodes
    rows = table.rows_of(nodes)
    enough = (
        (table.host_cpu[rows] >= share.cpu_milli)
        & (table.host_mib[rows] >= share.memory_mib)
        & (table.host_slices[rows] >= share.slices)
    )
    enough |= rows == UNKNOWN
    return nodes if enough.all() else [node for node, room in zip(nodes, enough, strict=True) if room]
