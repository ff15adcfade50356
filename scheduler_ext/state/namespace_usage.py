"""Which namespace has how much, and how much is free, in all and on the cards of each pool.

The ledger keeps it in step: every place that is taken or given up is added or taken back here, so an answer costs
nothing that grows with the pods of the cluster. What is free is added up again for the nodes that have changed since
it was last asked for.

`ALL`, the empty name, stands for all cards of the cluster; a card of no pool counts there alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Protocol

from aliquot.request.amounts import NOTHING, Amounts, placed
from aliquot.request.placement import Charge, Placement
from aliquot.scheduler_ext.cards.card_state import CardState

ALL: Final = ""
CARD: Final = 1000
"""What is free of a card is counted in parts of so many; as many are a card."""

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

    @property
    def charges(self) -> Mapping[str, Charge]:
        """What it costs each card, by UUID."""


@dataclass(frozen=True)
class Relief:
    """What the departure of some pods gives back.

    Attributes:
        used: By pool and namespace, how much less these have.
        free: By pool, how much more can be promised; cards in parts, `CARD` of which are one.
    """

    used: Mapping[tuple[str, str], Amounts]
    free: Mapping[str, Amounts]

    def given(self, pool: str, namespaces: Iterable[str]) -> Amounts:
        """How much less these namespaces have of a pool."""
        if not self.used:
            return NOTHING
        return sum((self.used.get((pool, one), NOTHING) for one in namespaces), NOTHING)

    def plus(self, other: "Relief", sign: int = 1) -> "Relief":
        """Both together, or with -1 what is left of this one without the other."""
        if not other.used and not other.free:
            return self
        used, free = defaultdict(Amounts, self.used), defaultdict(Amounts, self.free)
        for whose, amounts in other.used.items():
            used[whose] = used[whose] + amounts if sign > 0 else used[whose] - amounts
        for pool, amounts in other.free.items():
            free[pool] = free[pool] + amounts if sign > 0 else free[pool] - amounts
        return Relief(used, free)


NO_RELIEF: Final = Relief(MappingProxyType({}), MappingProxyType({}))


class NamespaceUsage:
    """Adds up what is taken, by namespace and pool.

    What a single pod has follows from its place and the pools of its node's cards, and is not kept.
    """

    def __init__(
        self,
        cards: Callable[[str], Iterable[CardState]],
        place_of: Callable[[str], Place | None] = lambda _: None,
        takes_pods: Callable[[str, Iterable[str]], bool] = lambda _, __: True,
    ) -> None:
        """Start empty.

        Args:
            cards: A node's cards as they are now.
            place_of: The place of a pod, by its UID.
            takes_pods: Whether a node takes pods once those of these UIDs have left it.
        """
        self._takes_pods = takes_pods
        self._cards = cards
        self._place_of = place_of
        self._pools: dict[str, dict[str, str]] = {}
        self._used: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
        self._changed: set[str] = set()
        self._changed_as_one: set[str] | None = None
        self._useless: dict[str, frozenset[str]] = {}
        self._free: dict[str, dict[str, Amounts]] = {}
        self._free_in_all: defaultdict[str, Amounts] = defaultdict(Amounts)
        self._whole: dict[str, dict[str, Amounts]] = {}
        self._whole_in_all: defaultdict[str, Amounts] = defaultdict(Amounts)
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

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Places that are taken meanwhile take what they ask for of what is free now, and nothing more.

        What is left of a card, or of a node, whose last slice they take is free until all have their places. Else it
        would depend on the choice of cards what a group may borrow.
        """
        self._settle()
        self._changed_as_one = changed = set[str]()
        try:
            yield
        finally:
            self._changed_as_one = None
            self._changed |= changed

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

    def parts(self, uids: Iterable[str]) -> Mapping[tuple[str, str], Amounts]:
        """What these pods have, by pool and namespace."""
        return self._parts(filter(None, map(self._place_of, uids)))

    def _parts(self, places: Iterable[Place]) -> Mapping[tuple[str, str], Amounts]:
        found = defaultdict[tuple[str, str], Amounts](Amounts)
        for place in places:
            for pool, amounts in self.split(place.placement).items():
                found[pool, place.namespace] += amounts
        return found

    def relief(self, uids: Iterable[str]) -> Relief:
        """What the departure of these pods gives back; a card that takes no pods has nothing more free."""
        places = [place for uid in sorted({*uids}) if (place := self._place_of(uid)) is not None]
        if not places:
            return NO_RELIEF
        free, on_node = defaultdict[str, Amounts](Amounts), defaultdict[str, list[Place]](list)
        for place in places:
            on_node[place.placement.node].append(place)
        self._settle()
        for node, gone in on_node.items():
            for pool, amounts in self._free_without(node, gone).items():
                free[pool] += amounts - self._free.get(node, {}).get(pool, NOTHING)
        return Relief(self._parts(places), free)

    def by_node(self, uids: Iterable[str]) -> dict[str, list[str]]:
        """Pods that have cards, by UID, on their nodes."""
        found = defaultdict[str, list[str]](list)
        for uid in uids:
            place = self._place_of(uid)
            if place is not None:
                found[place.placement.node].append(uid)
        return found

    def _free_without(self, node: str, gone: Iterable[Place]) -> dict[str, Amounts]:
        """What would be free on a node without these pods."""
        gone = tuple(gone)
        if not self._takes_pods(node, [place.placement.pod_uid for place in gone]):
            return {}
        given, holders = defaultdict[str, Charge](Charge), defaultdict[str, int](int)
        for place in gone:
            for uuid, charge in place.charges.items():
                given[uuid] += charge
                holders[uuid] += charge.exclusive
        cards = (card.without(given[card.uuid], holders[card.uuid]) for card in self._cards(node))
        return _free_of(filter(_has_room, cards), self._pools.get(node, {}))

    def kind_of(self, node: str) -> Kind | None:
        """What pods take on a node; None where it has no cards."""
        self._settle()
        return self._kind_of.get(node)

    def namespaces(self) -> list[str]:
        """Those that have anything."""
        return sorted({namespace for _, namespace in self._used})

    def free(self, pool: str, relief: Relief = NO_RELIEF) -> Amounts:
        """What could be promised yet on the cards of a pool that take pods, on nodes that do, once this is given back.

        Cards are those that the free parts of all would make, were they together: ten free tenths are one.
        """
        exact = self.free_parts(pool) + relief.free.get(pool, NOTHING)
        return Amounts(exact.memory_mib, exact.cores, exact.cards // CARD)

    def free_parts(self, pool: str) -> Amounts:
        """The same, with cards in parts."""
        self._settle()
        return self._free_in_all[pool]

    def whole(self, pool: str) -> Amounts:
        """What the cards of a pool can be promised in all, those that take no pods left out; `cards` are slices."""
        self._settle()
        return self._whole_in_all[pool]

    def kinds(self) -> Mapping[Kind, set[str]]:
        """The nodes with cards, by what a pod takes on them."""
        self._settle()
        return self._nodes_of

    def _settle(self) -> None:
        """Add up again what has changed."""
        for node in self._changed:
            cards, pools = list(self._cards(node)), self._pools.get(node, {})
            self._sort(node, frozenset(_largest(cards, pools).items()))
            if self._changed_as_one is None:
                self._note_useless(node, cards)
            useless = self._useless.get(node, ())
            free = _free_of((card for card in cards if card.uuid not in useless), pools)
            _replace(self._free, self._free_in_all, node, free)
            _replace(self._whole, self._whole_in_all, node, _whole_of(cards, pools))
        if self._changed_as_one is not None:
            self._changed_as_one |= self._changed
        self._changed.clear()

    def _note_useless(self, node: str, cards: Iterable[CardState]) -> None:
        """Take note of the cards of which nobody can have anything: few nodes have any."""
        takes_pods = self._takes_pods(node, ())
        useless = frozenset(card.uuid for card in cards if not (takes_pods and _has_room(card)))
        self._useless.pop(node, None)
        if useless:
            self._useless[node] = useless

    def useless(self) -> Mapping[str, frozenset[str]]:
        """The UUIDs of the cards of which nobody can have anything, as all their slots are taken, by node."""
        self._settle()
        return self._useless

    def _sort(self, node: str, kind: Kind) -> None:
        before = self._kind_of.pop(node, None)
        if before is not None:
            self._nodes_of[before].discard(node)
            if not self._nodes_of[before]:
                del self._nodes_of[before]
        if kind:
            self._kind_of[node] = kind
            self._nodes_of.setdefault(kind, set()).add(node)


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


def _replace(
    parts: dict[str, dict[str, Amounts]], in_all: dict[str, Amounts], node: str, now: dict[str, Amounts]
) -> None:
    """Put a node's part of sums in place of the one that it had."""
    before = parts.pop(node, {})
    if before != now:
        for pool, amounts in before.items():
            in_all[pool] -= amounts
        for pool, amounts in now.items():
            in_all[pool] += amounts
    if now:
        parts[node] = now


def _whole_of(cards: Iterable[CardState], pools: Mapping[str, str]) -> dict[str, Amounts]:
    """What a node's cards can be promised in all, and by pool."""
    whole: defaultdict[str, Amounts] = defaultdict(Amounts)
    for card in cards:
        if card.healthy and not card.mig:
            for pool in {ALL, pools.get(card.uuid, ALL)}:
                whole[pool] += Amounts(card.usable_mib, card.usable_cores, card.slots)
    return whole


def _has_room(card: CardState) -> bool:
    """Whether a slice could be promised of a card, were it small enough."""
    return card.healthy and not card.mig and not card.holders and card.used_slots < card.slots


def _free_of(cards: Iterable[CardState], pools: Mapping[str, str]) -> dict[str, Amounts]:
    """What is free on these cards of a node, in all and by pool, cards in parts."""
    free: defaultdict[str, Amounts] = defaultdict(Amounts)
    for card in cards:
        cores = card.usable_cores - card.used_cores
        left = Amounts(card.left_mib(burst=True), cores, _part_left(card)).positive
        for pool in {ALL, pools.get(card.uuid, ALL)}:
            free[pool] += left
    return free


def _part_left(card: CardState) -> int:
    """How much of a card could be promised yet: of memory or compute whichever has less of its own left."""
    if not card.usable_mib or not card.usable_cores:
        return 0
    memory = CARD * card.left_mib() // card.usable_mib
    return min(memory, CARD * (card.usable_cores - card.used_cores) // card.usable_cores)
