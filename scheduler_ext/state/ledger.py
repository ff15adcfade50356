"""Who was promised which part of which card: derived from the cluster, never stored.

A pod is in the ledger from the moment filter chooses its place until it is gone, always at most once, by its
UID:

    RESERVED --bind--> BINDING --written--> ASSUMED --seen by the watch--> BOUND
                          |
                          +--no answer--> UNCERTAIN --asked again--> ASSUMED or RESERVED

    HELD --next filter--> RESERVED

- HELD is room that others are leaving for the pod (`nominations.py`); it may be more than is free now.
- RESERVED is only ours: the next filter of the pod replaces it, time ends it.
- BINDING, UNCERTAIN and ASSUMED may be in the API server already. Nothing but the truth read from there moves
  or ends them: giving such a place away could promise memory twice.
- BOUND is what the pod itself says in its annotation; it ends when the pod has finished or is deleted. Its
  amounts change by `resize`, in the same place; an edit seen in the annotation alone can add to them and frees nothing.

After a restart the bound pods come back from the watch and the reservations from kube-scheduler's next tries.
What grows: one entry per pod that holds a slice or is about to (some 1 KiB each, with all that is kept of the pod
elsewhere), the card table, and the names of the last `REMEMBERED_DEPARTURES` pods that went. Every change costs the
number of cards of that pod, whatever the cluster's size.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

import msgspec

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.crds.gpu_pool import NO_POOL, PoolSpec
from aliquot.request.host_resources import NO_HOST
from aliquot.request.placement import Charge, Placement
from aliquot.request.placement_policy import SILENT
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.cards.topology import shape_of
from aliquot.scheduler_ext.state.namespace_usage import NamespaceUsage
from aliquot.scheduler_ext.state.node_resources import NodeResources

REMEMBERED_DEPARTURES = 4096
"""Departed pods whose late filter calls are recognised."""


class Stage(Enum):
    """How far a pod has come; the module's docstring has the transitions."""

    HELD = "held"
    RESERVED = "reserved"
    BINDING = "binding"
    UNCERTAIN = "uncertain"
    ASSUMED = "assumed"
    BOUND = "bound"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One pod's place.

    Attributes:
        placement: The cards.
        stage: How far the pod has come.
        since: When it came to that stage, on the ledger's clock, in seconds; 0 once it is bound, when nothing ends it.
        request: What it asked for; None once it is bound, when its placement says all that matters.
        version: The pod's resource version that said so; 0 where that is not known.
        namespace: The pod's.
    """

    placement: Placement
    stage: Stage
    since: float
    request: PodRequest | None = None
    version: int = 0
    namespace: str = ""

    @property
    def charges(self) -> dict[str, Charge]:
        """What it costs each card, by UUID; worked out when it is asked for, which is seldom."""
        return self.placement.charges()

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.placement.pod_uid

    @property
    def node(self) -> str:
        """The node it is placed on."""
        return self.placement.node


class Ledger:
    """The promises of a whole cluster.

    Attributes:
        no_saving: The nodes with cards of a pool on which nobody may save up places.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty.

        Args:
            clock: Monotonic seconds.
        """
        self.no_saving = set[str]()
        self.table = CardTable()
        self.hosts = NodeResources(self.table)
        self.accounts = NamespaceUsage(self.table.cards, self.entry, self.hosts.takes_pods)
        self.hosts.on_turn(self.accounts.room_changed)
        self._clock = clock
        self._listeners: list[Callable[[str], None]] = [self.accounts.room_changed]
        self._entries: dict[str, Entry] = {}
        self._unconfirmed: dict[str, Entry] = {}
        self._on_node: dict[str, list[str]] = {}
        self._departed: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def on_change(self, heard: Callable[[str], None]) -> None:
        """Have this called, too, with a node's name each time its room may have changed."""
        self._listeners.append(heard)

    def entry(self, uid: str) -> Entry | None:
        """The pod's place, if it has one."""
        return self._entries.get(uid)

    def entries(self) -> Iterable[Entry]:
        """All places."""
        return self._entries.values()

    def on(self, node: str) -> list[Entry]:
        """The places on a node."""
        return list(map(self._entries.__getitem__, self._on_node.get(node, ())))

    def unconfirmed(self) -> Iterator[Entry]:
        """The places that the watch has not confirmed: everything short of BOUND."""
        return iter(tuple(self._unconfirmed.values()))

    def departed(self, uid: str) -> bool:
        """Whether this pod has been seen to go; it will not come back under the same UID."""
        return uid in self._departed

    # ---- what the watches say ----

    def put_node(
        self, node: str, status: GPUNodeStatus, pool_of: Callable[[str], PoolSpec] = lambda _: NO_POOL
    ) -> None:
        """Take over a node's cards as its agent publishes them; the promises stay.

        Args:
            node: Its name.
            status: Its cards.
            pool_of: The pool of a card model on this node.
        """
        slots = status.slices_per_card
        cards = [_card_state(card, slots, pool_of(card.model)) for card in status.cards]
        preference = pool_of(status.cards[0].model).preference if status.cards else SILENT
        saves = all(pool_of(card.model).saving_up for card in status.cards)
        (self.no_saving.discard if saves else self.no_saving.add)(node)
        self.table.put(node, cards, preference, shape_of(status))
        for uid in self._on_node.get(node, ()):
            self._count(self._entries[uid], 1)
        self._tell(node)

    def put_pools(self, node: str, pools: Mapping[str, str]) -> None:
        """Take over the names of the pools that a node's cards are in, by UUID."""
        self.accounts.put_pools(node, pools, self.on(node))

    def drop_node(self, node: str) -> None:
        """Forget a node's cards; the promises stay, in case the node comes back."""
        self.table.drop(node)
        self.no_saving.discard(node)
        self._tell(node)

    def rate_limit_node(self, node: str) -> None:
        """Forget a node's cards because it publishes others too often; who asks why it has none is told so."""
        self.drop_node(node)
        self.table.rate_limited.add(node)

    def confirm(self, uid: str, placement: Placement | None, version: int = 0, namespace: str = "") -> None:
        """A pod is bound with this placement, or without any, whatever was thought of it before.

        The first placement seen on a bound pod counts as long as the pod lives: the Binding wrote it, and
        changing the annotation later does not free what the pod's containers hold. Larger amounts in the same
        place are counted: an extender before this one may have approved them.
        """
        known = self._entries.get(uid)
        if known and known.stage is Stage.BOUND:
            late = version and version < known.version
            if placement and not late and known.placement.same_place(placement):
                self.resize(uid, known.placement | placement)
            return
        if placement is None:
            self.release(uid)
        elif known and known.placement == placement:
            # As nearly always: nothing that anybody counts has changed.
            self._entries[uid] = Entry(known.placement, Stage.BOUND, 0.0, None, version, known.namespace)
            del self._unconfirmed[uid]
        else:
            namespace = known.namespace if known else namespace
            self._put(Entry(placement, Stage.BOUND, 0.0, None, version, namespace))

    def resize(self, uid: str, placement: Placement, version: int = 0) -> None:
        """Change a bound pod's amounts, in the same place; nothing happens when it has gone."""
        known = self._entries.get(uid)
        if known is None or (placement, version or known.version) == (known.placement, known.version):
            return
        assert known.placement.same_place(placement)  # noqa: S101 - a running pod does not move
        self._put(msgspec.structs.replace(known, placement=placement, version=version or known.version))

    def depart(self, uid: str) -> None:
        """The pod has finished or is deleted: what it held is free."""
        self.release(uid)
        self._departed[uid] = None
        if len(self._departed) > REMEMBERED_DEPARTURES:
            self._departed.popitem(last=False)

    # ---- what filter and bind do ----

    def reserve(self, request: PodRequest, placement: Placement) -> None:
        """Hold a place for a pod, instead of any it had."""
        self._put(Entry(placement, Stage.RESERVED, self._clock(), request, namespace=request.namespace))

    def hold(self, request: PodRequest, placement: Placement) -> None:
        """Hold a place for a pod that others are leaving, instead of any it had."""
        self._put(Entry(placement, Stage.HELD, self._clock(), request, namespace=request.namespace))

    def move_on(self, uid: str, stage: Stage) -> None:
        """Bring a pod to another stage; nothing happens when it has gone or the watch was faster."""
        entry = self._entries.get(uid)
        if entry is not None and entry.stage is not Stage.BOUND:
            entry = msgspec.structs.replace(entry, stage=stage, since=self._clock())
            self._entries[uid] = self._unconfirmed[uid] = entry

    def release(self, uid: str) -> None:
        """Free what a pod holds; nothing happens when it holds nothing."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._unconfirmed.pop(uid, None)
        self.accounts.give_up(entry)
        self.hosts.drop_pod(uid)
        self._charge(entry, -1)
        here = self._on_node[entry.node]
        here.remove(uid)
        if not here:
            del self._on_node[entry.node]

    def expire(self, longest: float, keeps: Callable[[str], bool] = lambda _: False) -> list[str]:
        """Free the reservations older than `longest` seconds, but for those that are kept; the UIDs of their pods."""
        now, reserved = self._clock(), (e for e in self.unconfirmed() if e.stage is Stage.RESERVED)
        old = [e.uid for e in reserved if now - e.since >= longest and not keeps(e.uid)]
        for uid in old:
            self.release(uid)
        return old

    @contextmanager
    def without(self, *uids: str, with_host: bool = True) -> Iterator[None]:
        """As if these pods held nothing, until the block ends, in which nothing may be waited for.

        `with_host`: nor CPU and memory of their nodes.
        """
        held = [(self._entries.get(uid), self.hosts.of(uid)) for uid in uids]
        for uid in uids:
            self.release(uid)
        for entry, share in held if not with_host else ():
            if entry is not None:
                self.hosts.put_pod(entry.uid, entry.node, msgspec.structs.replace(share, slices=0))
        try:
            yield
        finally:
            for entry, host in held:
                if entry is not None:
                    self._put(entry)
                    self.hosts.put_pod(entry.uid, entry.node, host)

    def cards_of(self, entry: Entry) -> list[CardState]:
        """The cards that a place is on, as they would be without it."""
        charges = entry.charges
        return [card.without(charges[card.uuid]) for card in self.table.cards(entry.node, charges)]

    def cards_without(self, node: str, uid: str) -> list[CardState]:
        """A node's cards as they would be without this pod."""
        cards = self.table.cards(node)
        entry = self._entries.get(uid)
        if entry is None or entry.node != node:
            return cards
        charges = entry.charges
        return [card.without(charges[card.uuid]) if card.uuid in charges else card for card in cards]

    def _put(self, entry: Entry) -> None:
        uid, node = entry.placement.pod_uid, entry.placement.node
        host = entry.request.host if entry.request else self.hosts.of(uid)
        self.release(uid)
        self._entries[uid] = entry
        if entry.stage is not Stage.BOUND:
            self._unconfirmed[uid] = entry
        self._on_node.setdefault(node, []).append(uid)
        self.accounts.take(entry)
        if host != NO_HOST:
            self.hosts.put_pod(uid, node, host)
        self._charge(entry, 1)

    def _charge(self, entry: Entry, sign: int) -> None:
        self._count(entry, sign)
        self._tell(entry.node)

    def _count(self, entry: Entry, sign: int) -> None:
        placement = entry.placement
        for uuid, charge in placement.charges().items():
            self.table.charge(placement.node, uuid, charge, sign)

    def _tell(self, node: str) -> None:
        for heard in self._listeners:
            heard(node)


def _card_state(card: Card, slots: int, pool: PoolSpec) -> CardState:
    return CardState(
        uuid=card.uuid,
        usable_mib=card.usable_mib,
        usable_cores=card.cores * pool.core_percent // 100,
        slots=slots,
        healthy=card.healthy,
        mig=card.mig_enabled,
        extra_mib=card.usable_mib * (pool.memory_percent - 100) // 100,
        model=card.model,
    )
