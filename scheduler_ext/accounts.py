"""Which namespace has how much, and how much is free, in all and on the cards of each pool.

The ledger keeps it in step: every place that is taken or given up is added or taken back here, so an answer costs
nothing that grows with the pods of the cluster. What is free is added up again for the nodes that have changed since
it was last asked for.

`ALL`, the empty name, stands for all cards of the cluster; a card of no pool counts there alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Protocol

from aliquot.amounts import NOTHING, Amounts, placed
from aliquot.placement import Placement
from scheduler_ext.cards import CardState

ALL: Final = ""

Kind = frozenset[tuple[str, int]]
"""What nodes have in common on which a pod takes the same: the pools of their cards, each with its largest in MiB."""


class Place(Protocol):
    """One pod's place, as the ledger has it."""

    @property
    def namespace(self) -> str:
        """The pod's."""

    @property
    def placement(self) -> Placement:
        """Its cards."""


class Accounts:
    """Adds up what is taken, by namespace and pool.

    What a single pod has follows from its place and the pools of its node's cards, and is not kept.
    """

    def __init__(
        self,
        cards: Callable[[str], Iterable[CardState]],
        place_of: Callable[[str], Place | None] = lambda _: None,
    ) -> None:
        """Start empty.

        Args:
            cards: A node's cards as they are now.
            place_of: The place of a pod, by its UID.
        """
        self._cards = cards
        self._place_of = place_of
        self._pools: dict[str, dict[str, str]] = {}
        self._used: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        self._changed: set[str] = set()
        self._free: dict[str, dict[str, Amounts]] = {}
        self._free_in_all: defaultdict[str, Amounts] = defaultdict(Amounts)
        self._kind_of: dict[str, Kind] = {}
        self._nodes_of: dict[Kind, set[str]] = {}
        self._heard: Callable[[str, str, bool], None] = lambda _, __, ___: None

    def on_change(self, heard: Callable[[str, str, bool], None]) -> None:
        """Have this called with pool, namespace and whether it is less, when what the one has of the other changes."""
        self._heard = heard

    # ---- what the ledger says ----

    def put_pools(self, node: str, pools: Mapping[str, str], places: Sequence[Place]) -> None:
        """The pool of each card of a node, by UUID; what is in these places there is counted anew."""
        named = {uuid: pool for uuid, pool in pools.items() if pool != ALL}
        if self._pools.get(node, {}) == named:
            return
        for place in places:
            self.give_up(place)
        self._pools[node] = named
        for place in places:
            self.take(place)
        self._changed.add(node)

    def room_changed(self, node: str) -> None:
        """What is free on a node is no longer what it was."""
        self._changed.add(node)

    def take(self, place: Place) -> None:
        """A pod has these cards."""
        self._add(place.namespace, self.split(place.placement), 1)

    def give_up(self, place: Place) -> None:
        """It has them no more."""
        self._add(place.namespace, self.split(place.placement), -1)

    def _add(self, namespace: str, by_pool: Mapping[str, Amounts], sign: int) -> None:
        for pool, amounts in by_pool.items():
            now = self._used[pool, namespace]
            self._used[pool, namespace] = left = now + amounts if sign > 0 else now - amounts
            if sign < 0 and left == NOTHING:
                del self._used[pool, namespace]
            self._heard(pool, namespace, sign < 0)

    # ---- what quotas ask ----

    def split(self, placement: Placement) -> Mapping[str, Amounts]:
        """What a placement takes of all cards, and of each pool's that it touches."""
        pools = self._pools.get(placement.node)
        if not pools:
            return _alone(placed(placement))
        uuids = {share.uuid for container in placement.containers for share in container.cards}
        touched = {pools.get(uuid, ALL) for uuid in uuids} - {ALL}
        by_pool = {ALL: placed(placement)}
        for pool in touched:
            by_pool[pool] = placed(
                placement, {uuid for uuid in uuids if pools.get(uuid) == pool}.__contains__
            )
        return by_pool

    def held(self, uid: str) -> Mapping[str, Amounts]:
        """What a pod has, of all cards and by pool; empty where it has nothing."""
        place = self._place_of(uid)
        return self.split(place.placement) if place is not None else _NOT_PLACED

    def used(self, pool: str, namespace: str) -> Amounts:
        """What a namespace has of a pool."""
        return self._used.get((pool, namespace), NOTHING)

    def namespaces(self) -> list[str]:
        """Those that have anything."""
        return sorted({namespace for _, namespace in self._used})

    def free(self, pool: str) -> Amounts:
        """What could be promised yet on the cards of a pool that take pods."""
        self._settle()
        return self._free_in_all[pool]

    def kinds(self) -> Mapping[Kind, set[str]]:
        """The nodes with cards, by what a pod takes on them."""
        self._settle()
        return self._nodes_of

    def _settle(self) -> None:
        """Add up again what has changed."""
        for node in self._changed:
            cards, pools = list(self._cards(node)), self._pools.get(node, {})
            self._sort(node, frozenset(_largest(cards, pools).items()))
            self._replace_free(node, _free_of(cards, pools))
        self._changed.clear()

    def _sort(self, node: str, kind: Kind) -> None:
        before = self._kind_of.pop(node, None)
        if before is not None:
            self._nodes_of[before].discard(node)
            if not self._nodes_of[before]:
                del self._nodes_of[before]
        if kind:
            self._kind_of[node] = kind
            self._nodes_of.setdefault(kind, set()).add(node)

    def _replace_free(self, node: str, free: dict[str, Amounts]) -> None:
        for pool, amounts in self._free.pop(node, {}).items():
            self._free_in_all[pool] -= amounts
        for pool, amounts in free.items():
            self._free_in_all[pool] += amounts
        if free:
            self._free[node] = free


_NOT_PLACED: Final[Mapping[str, Amounts]] = MappingProxyType({})


@lru_cache(maxsize=4096)
def _alone(amounts: Amounts) -> Mapping[str, Amounts]:
    """Amounts on cards of no pool; one object for all pods that have as much."""
    return MappingProxyType({ALL: amounts})


def _largest(cards: Iterable[CardState], pools: Mapping[str, str]) -> dict[str, int]:
    """The memory of the largest card of each pool."""
    largest: dict[str, int] = {}
    for card in cards:
        pool = pools.get(card.uuid, ALL)
        largest[pool] = max(card.usable_mib, largest.get(pool, 0))
    return largest


def _free_of(cards: Iterable[CardState], pools: Mapping[str, str]) -> dict[str, Amounts]:
    """What is free on a node, in all and by pool; a card that takes nobody has nothing free."""
    free: defaultdict[str, Amounts] = defaultdict(Amounts)
    for card in cards:
        if not card.healthy or card.mig or card.holders:
            continue
        left = Amounts(
            card.left_mib(burst=True), card.usable_cores - card.used_cores, card.slots - card.used_slots
        ).positive
        for pool in {ALL, pools.get(card.uuid, ALL)}:
            free[pool] += left
    return free
