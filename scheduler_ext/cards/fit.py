"""Places one pod on the cards of one node: pure arithmetic, no state, no clock.

Which containers of a pod run at the same time decides what must fit together. Kubernetes starts init
containers one after the other; a sidecar (an init container that restarts always) stays from its turn on;
regular containers come last and run beside all sidecars. So a pod is a list of *phases*, one per plain init
container and a last one, and a placement is right when in every phase the shares on each card fit beside what
the card carries already. That is the max/sum rule Kubernetes itself uses for init and sidecar containers,
card by card.

The search walks the containers and takes the best cards first; it goes back on a choice when a later
container finds no room, within a budget of steps, since packing in general has no fast exact answer. Pods of
one slice never need to go back.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from types import MappingProxyType

from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import ContainerKind, ContainerRequest, PodRequest, SliceRequest
from aliquot.request.topology import Topology
from aliquot.scheduler_ext.cards.card_sets import Wish
from aliquot.scheduler_ext.cards.card_state import CardState, Load

SEARCH_BUDGET = 512
"""Choices the search may take for one pod on one node before it says that the pod does not fit."""


NO_LOAD = Load()
NOTHING_FIRST: Mapping[int, Sequence[int]] = MappingProxyType({})


def fit(
    request: PodRequest,
    node: str,
    cards: Sequence[CardState],
    policy: Policy,
    budget: int = SEARCH_BUDGET,
    *,
    first: Mapping[int, Sequence[int]] = NOTHING_FIRST,
) -> Placement | None:
    """Where the pod's slices go on this node, or None when they do not fit.

    Args:
        request: What the pod asks for.
        node: The node's name, recorded in the placement.
        cards: The node's cards in the order of their index, without the pod's own charges.
        policy: Which cards to prefer.
        budget: Choices the search may take; with as many as there are containers it hardly goes back on any.
        first: The cards to try first, by the container's position in the request.
    """
    slices = [n for n, c in enumerate(request.containers) if c.slice is not None]
    wished = [first.get(n, ()) for n in slices]
    search = _Search([request.containers[n] for n in slices], cards, policy, budget, wished)
    if not search.run():
        return None
    return Placement(pod_uid=request.uid, node=node, containers=search.placements())


def fit_one(request: PodRequest, node: str, cards: Sequence[CardState]) -> Placement | None:
    """Where a pod's only container goes that gets all of these cards, linked or not; None where it does not fit.

    Says what `fit` would of these cards, in a quarter of the time.
    """
    (container,) = request.containers
    wanted = container.slice
    assert wanted is not None  # noqa: S101 - there would be nothing to place
    shares = tuple([card.share(wanted) for card in cards])
    for card, share in zip(cards, shares, strict=True):
        small = 0 < share.memory_mib <= card.usable_mib
        if not (small and card.admits(wanted) and NO_LOAD.plus(share, wanted.burst).fits(card)):
            return None
    placed = ContainerPlacement(
        container.name, container.kind, shares, burst=wanted.burst, policy=wanted.policy
    )
    return Placement(request.uid, node, (placed,))


def still_fits(placement: Placement, cards: Sequence[CardState]) -> bool:
    """Whether a placement made earlier is valid on the cards as they are now, its own charges left out."""
    by_uuid = {card.uuid: card for card in cards}
    return all(
        (card := by_uuid.get(uuid)) is not None and card.carries(charge)
        for uuid, charge in placement.charges().items()
    )


def phases(kinds: Sequence[ContainerKind]) -> list[frozenset[int]]:
    """Which containers run at the same time: a set of positions per plain init container and a last one."""
    sidecars: list[int] = []
    found: list[frozenset[int]] = []
    for position, kind in enumerate(kinds):
        if kind is ContainerKind.SIDECAR:
            sidecars.append(position)
        elif kind is ContainerKind.INIT:
            found.append(frozenset([*sidecars, position]))
    running = [p for p, kind in enumerate(kinds) if kind is not ContainerKind.INIT]
    return [*found, frozenset(running)] if running else found


def turn(container: ContainerRequest, position: int) -> tuple[bool, int, int, int]:
    """Init containers last (they must find room on the others' cards), and big ones before small ones."""
    wanted = container.slice
    cards, size = (wanted.cards, wanted.memory_mib or 0) if wanted else (0, 0)
    return (container.kind is ContainerKind.INIT, -cards, -size, position)


class _Search:
    """A depth-first walk over the containers of one pod."""

    def __init__(
        self,
        containers: list[ContainerRequest],
        cards: Sequence[CardState],
        policy: Policy,
        budget: int,
        first: Sequence[Sequence[int]],
    ) -> None:
        self._containers = containers
        self._cards = cards
        self._policy = policy
        self._budget = budget
        self._first = first
        together = phases([c.kind for c in containers])
        self._phases_of = [
            [n for n, phase in enumerate(together) if i in phase] for i in range(len(containers))
        ]
        self._loads = [[Load()] * len(cards) for _ in together]
        self._chosen: dict[int, tuple[int, ...]] = {}

    def run(self) -> bool:
        """Whether a placement was found."""
        order = sorted(range(len(self._containers)), key=lambda n: turn(self._containers[n], n))
        return self._place(order)

    def placements(self) -> tuple[ContainerPlacement, ...]:
        """The found placement, in the pod's own order of containers."""
        return tuple(
            ContainerPlacement(
                name=c.name,
                kind=c.kind,
                cards=tuple(self._shares(i)),
                burst=self._wanted(i).burst,
                policy=self._wanted(i).policy,
            )
            for i, c in enumerate(self._containers)
        )

    def _wanted(self, position: int) -> SliceRequest:
        wanted = self._containers[position].slice
        assert wanted is not None  # noqa: S101 - containers without a slice were left out
        return wanted

    def _shares(self, position: int) -> Iterator[CardShare]:
        wanted = self._wanted(position)
        return (self._cards[n].share(wanted) for n in self._chosen[position])

    def _place(self, pending: list[int]) -> bool:
        if not pending:
            return True
        position, rest = pending[0], pending[1:]
        for chosen in self._choices(position):
            self._budget -= 1
            undo = self._take(position, chosen)
            if self._place(rest):
                return True
            self._give_back(position, undo)
            if self._budget <= 0:
                return False
        return False

    def _choices(self, position: int) -> Iterator[tuple[int, ...]]:
        """Sets of distinct cards that have room for this container, the preferred ones first."""
        count, demanded = self._wanted(position).cards, self._demanded(position)
        named = tuple(self._first[position][:count])
        plain = demanded is None and self._containers[position].kind is not ContainerKind.INIT
        if plain and len({*named}) == count and all(self._has_room(position, n) for n in named):
            return chain((named,), self._others(position))
        return self._sets(position)

    def _others(self, position: int) -> Iterator[tuple[int, ...]]:
        """The sets after the first, which need not be known unless they are asked for."""
        yield from islice(self._sets(position), 1, None)

    def _sets(self, position: int) -> Iterator[tuple[int, ...]]:
        wanted, demanded = self._wanted(position), self._demanded(position)
        room = [n for n in range(len(self._cards)) if self._has_room(position, n)]
        if self._containers[position].kind is ContainerKind.INIT:
            room = self._on_the_pods_cards(position, room, wanted.cards)
        else:
            room.sort(key=lambda n: self._preference(position, n))
        if demanded is not None:
            return self._linked(Wish(wanted.cards, demanded), room)
        return combinations(room, wanted.cards)

    def _demanded(self, position: int) -> Topology | None:
        """How a container's cards have to be linked."""
        wanted = self._wanted(position)
        return wanted.topology if wanted.cards > 1 and wanted.topology and wanted.topology.demands else None

    def _linked(self, wish: Wish, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Sets that are linked as is demanded, those of the cards that come first in `room` first."""
        if not room:
            return
        positions = {self._cards[n].column: n for n in room}
        for columns in self._cards[room[0]].sets.all(wish, list(positions)):
            yield tuple(positions[column] for column in columns)

    def _on_the_pods_cards(self, position: int, room: list[int], wanted: int) -> list[int]:
        """The cards an init container may use: the pod's; others only when it wants more than the pod has."""
        own = {n for chosen in self._chosen.values() for n in chosen}
        if len(own) >= wanted:
            room = [n for n in room if n in own]
        return sorted(room, key=lambda n: (n not in own, *self._preference(position, n)))

    def _preference(self, position: int, n: int) -> tuple[int, float, int]:
        """Sort key of a card, best first: those named in their order, then by how full they would be."""
        first, card = self._first[position], self._cards[n]
        extra = max(loads[n].mib for loads in self._loads)
        fill = (card.used_mib + extra) / max(card.usable_mib, 1)
        place = first.index(n) if n in first else len(first)
        return (place, fill if self._policy is Policy.SPREAD else -fill, n)

    def _has_room(self, position: int, n: int) -> bool:
        card, wanted = self._cards[n], self._wanted(position)
        share = card.share(wanted)
        if not card.admits(wanted) or not 0 < share.memory_mib <= card.usable_mib:
            return False
        loads = (self._loads[phase][n] for phase in self._phases_of[position])
        return all(load.plus(share, wanted.burst).fits(card) for load in loads)

    def _take(self, position: int, chosen: tuple[int, ...]) -> list[tuple[int, int, Load]]:
        """Charge the container to its cards; the answer is what `_give_back` needs."""
        self._chosen[position] = chosen
        undo = []
        for n, share in zip(chosen, self._shares(position), strict=True):
            for phase in self._phases_of[position]:
                undo.append((phase, n, self._loads[phase][n]))
                self._loads[phase][n] = self._loads[phase][n].plus(share, self._wanted(position).burst)
        return undo

    def _give_back(self, position: int, undo: list[tuple[int, int, Load]]) -> None:
        del self._chosen[position]
        for phase, n, load in undo:
            self._loads[phase][n] = load
