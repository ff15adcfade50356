"""Which pods have to leave a node so that a request fits there, and no more of them than that.

The caller says who may leave and how gladly: every `Victim` has a rank, and a lower one goes first. Of all sets that
admit the request the least is wanted: the one whose highest rank is lowest, then with the fewest of that rank, then
so on down the ranks; of equal ones the one whose pods started last. None of a set found could stay.

A request of one slice asks each card for itself and takes the cheapest. That is exact, but for `STEPS` that bound the
search on a card, and as long as nobody of those found is on several cards. Where somebody is, who must leave the
cheapest cards is asked card by card, and whoever turns out not to be needed stays. Everything else, and what says how
its cards are linked, is placed on the node as it would be without all leavers, and then treated alike.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from aliquot.request.placement import Charge, Placement
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.request.topology import Rdma
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.fit import fit

STEPS: Final = 512
"""Decisions about pods that the search may take for one card before it is content with the best that it has found."""

Need = tuple[int, int, int, int, int]
"""What of a card has to be given up: memory, guaranteed memory (MiB), compute (percent), slices, sole holders."""

ENOUGH: Final[Need] = (0, 0, 0, 0, 0)


class Victim(msgspec.Struct, frozen=True):
    """A pod that could leave its node.

    Attributes:
        uid: The pod's.
        charges: What it holds of each card, by UUID.
        rank: How gladly it is let go: anything that can be compared with the others' ranks; the lowest goes first.
        since: When it started, in seconds of any clock; of equal ranks the youngest goes first.
    """

    uid: str
    charges: Mapping[str, Charge]
    rank: Any = 0
    since: float = 0.0


Leavers = tuple[Victim, ...]
_Cost = tuple[list[Any], list[float]]
NOTHING: Final[_Cost] = ([], [])
"""What it costs when nobody leaves."""


def least(
    request: PodRequest, node: str, cards: Sequence[CardState], leavers: Sequence[Victim], policy: Policy
) -> Leavers | None:
    """Who has to leave a node so that a request fits; nobody where it fits as it is, None where that does not help.

    Args:
        request: What is to be placed.
        node: The node's name.
        cards: Its cards as they are, everybody's charges included but the request's own.
        leavers: Who may leave it.
        policy: Which cards are preferred among equals.
    """
    on_card = _by_card(willing_first(leavers))
    slices = {n: c.slice for n, c in enumerate(request.containers) if c.slice}
    wanted = next(iter(slices.values()), None)
    if wanted is not None and len(slices) == 1 and wanted.topology is None and wanted.rdma is Rdma.NONE:
        if wanted.cards == 1:
            return _from_one_card(wanted, cards, on_card)
        return _from_cards(wanted, cards, on_card)
    if fit(request, node, cards, policy) is not None:
        return ()
    emptied = relieved(cards, leavers)
    orders = {n: _cheapest_first(wanted, cards, emptied, on_card) for n, wanted in slices.items()}
    placement = fit(request, node, emptied, policy, first=orders)
    return None if placement is None else _off_placement(request, placement, cards, on_card, policy)


def relieved(cards: Sequence[CardState], leavers: Iterable[Victim]) -> list[CardState]:
    """A node's cards as they would be without these pods."""
    leavers = tuple(leavers)
    if not leavers:
        return list(cards)
    gone: defaultdict[str, Charge] = defaultdict(Charge)
    holders: defaultdict[str, int] = defaultdict(int)
    for leaver in leavers:
        for uuid, charge in leaver.charges.items():
            gone[uuid] += charge
            holders[uuid] += charge.exclusive
    return [
        card.without(gone[card.uuid], holders[card.uuid]) if card.uuid in gone else card for card in cards
    ]


def place_after(
    request: PodRequest, node: str, cards: Sequence[CardState], gone: Iterable[Victim], policy: Policy
) -> Placement | None:
    """Where a request goes on a node once these pods have left it."""
    return fit(request, node, relieved(cards, gone), policy)


def willing_first(leavers: Iterable[Victim]) -> list[Victim]:
    """In the order of their reluctance: by rank, of equal ones the youngest first."""
    ordered = sorted(leavers, key=attrgetter("since"), reverse=True)
    ordered.sort(key=attrgetter("rank"))
    return ordered


def _by_card(leavers: Sequence[Victim]) -> dict[str, list[Victim]]:
    found: defaultdict[str, list[Victim]] = defaultdict(list)
    for leaver in leavers:
        for uuid in leaver.charges:
            found[uuid].append(leaver)
    return found


def _from_one_card(
    wanted: SliceRequest, cards: Sequence[CardState], on_card: Mapping[str, list[Victim]]
) -> Leavers | None:
    """The least set of any card; the first of equals."""
    best: Leavers | None = None
    bound: _Cost | None = None
    for card in cards:
        charge = _charge_on(card, wanted)
        if charge is None:
            continue
        found = _least_on(card, charge, on_card.get(card.uuid, []), bound)
        if found == ():
            return found
        if found is not None:
            best, bound = found, _cost(found)
    return best


def _from_cards(
    wanted: SliceRequest, cards: Sequence[CardState], on_card: Mapping[str, list[Victim]]
) -> Leavers | None:
    """The least sets of as many cards as are wanted, the cheapest; None where there are not so many."""
    charges = {n: charge for n, card in enumerate(cards) if (charge := _charge_on(card, wanted))}
    all_needed = len(charges) == wanted.cards
    taken: list[tuple[_Cost, int, Leavers]] = []
    for n, charge in charges.items():
        bound = taken[-1][0] if len(taken) == wanted.cards else None
        leavers = _least_on(cards[n], charge, on_card.get(cards[n].uuid, []), bound)
        if leavers is not None:
            cost = NOTHING if all_needed else _cost(leavers)
            taken = sorted([*taken, (cost, n, leavers)])[: wanted.cards]
        elif all_needed:
            return None
    if len(taken) < wanted.cards:
        return None
    chosen = {one.uid: one for *_, leavers in taken for one in leavers}
    if all(len(one.charges) == 1 for one in chosen.values()):
        return tuple(sorted(chosen.values(), key=_reluctance))

    def fits(gone: Iterable[Victim]) -> bool:
        left = [] if all_needed and wanted.exclusive else relieved(cards, gone)
        free = sum(_need(card, charges[n]) == ENOUGH for n, card in enumerate(left) if n in charges)
        return free >= wanted.cards

    return _only_needed({cards[n].uuid: charges[n] for _, n, _ in taken}, cards, on_card, fits)


def _charge_on(card: CardState, wanted: SliceRequest) -> Charge | None:
    """What a slice would cost a card that nobody else is on; None where it cannot be there at all."""
    memory_mib = card.memory_of(wanted)
    bare = card.healthy and not card.mig and 0 < memory_mib <= card.usable_mib
    if not bare or wanted.cores > card.usable_cores:
        return None
    if wanted.only and not wanted.only.allows(card.model, card.uuid):
        return None
    if wanted.rdma.demands and not card.near(wanted.rdma):
        return None
    return _charge(memory_mib, wanted.cores, wanted.exclusive, wanted.burst)


@lru_cache(maxsize=1024)
def _charge(memory_mib: int, cores: int, exclusive: bool, burst: bool) -> Charge:
    """One object for cards that are alike."""
    return Charge(memory_mib, cores, 1, exclusive, memory_mib if burst else 0)


def _need(card: CardState, charge: Charge) -> Need:
    """What has to be given up on a card so that it carries a charge."""
    if charge.exclusive:
        return (
            card.used_mib,
            card.used_mib - card.burst_mib,
            card.used_cores,
            card.used_slots,
            card.holders,
        )
    return (
        max(charge.memory_mib - card.left_mib(burst=True), 0),
        0 if card.can_guarantee(charge.guaranteed_mib) else charge.guaranteed_mib - card.guarantee_left_mib,
        max(charge.cores - (card.usable_cores - card.used_cores), 0),
        max(charge.slots - (card.slots - card.used_slots), 0),
        card.holders,
    )


def _least_on(
    card: CardState, charge: Charge, leavers: Sequence[Victim], bound: _Cost | None = None
) -> Leavers | None:
    """Who has to leave a card so that it carries a charge; None where nobody can help, or for less than `bound`."""
    need = _need(card, charge)
    if need == ENOUGH:
        return ()
    if bound == NOTHING:
        return None
    if charge.exclusive:
        return _everybody(card.uuid, need, leavers, bound)
    return _Search(card.uuid, need, leavers, bound).run()


def _everybody(uuid: str, need: Need, leavers: Sequence[Victim], bound: _Cost | None) -> Leavers | None:
    """All of them, for whoever wants a card alone; None where that is not enough, or costs no less than `bound`."""
    if _until_enough(uuid, need, leavers) is None:
        return None
    if bound is not None and (leavers[-1].rank > bound[0][0] or _cost(leavers) >= bound):
        return None
    return tuple(leavers)


def _until_enough(uuid: str, need: Need, leavers: Iterable[Victim]) -> Victim | None:
    """The one with whose departure, after those before it, a card has what is needed; None where all are not enough.

    Written out, for every pod of every node comes by here.
    """
    memory, guaranteed, cores, slots, holders = need
    for leaver in leavers:
        charge = leaver.charges[uuid]
        memory -= charge.memory_mib
        guaranteed -= charge.memory_mib - charge.burst_mib
        cores -= charge.cores
        slots -= charge.slots
        holders -= charge.exclusive
        if memory <= 0 and guaranteed <= 0 and cores <= 0 and slots <= 0 and holders <= 0:
            return leaver
    return None


def _cheapest_first(
    wanted: SliceRequest,
    cards: Sequence[CardState],
    emptied: Sequence[CardState],
    on_card: Mapping[str, list[Victim]],
) -> list[int]:
    """The cards that could have a slice, those first that have to lose least for it."""
    costs: list[tuple[_Cost, int]] = []
    for n, (card, bare) in enumerate(zip(cards, emptied, strict=True)):
        charge = _charge_on(card, wanted)
        if charge is None or not bare.admits(wanted):
            continue
        found = _least_on(card, charge, on_card.get(card.uuid, []))
        if found is not None:
            costs.append((_cost(found), n))
    return [n for _, n in sorted(costs)]


def _off_placement(
    request: PodRequest,
    placement: Placement,
    cards: Sequence[CardState],
    on_card: Mapping[str, list[Victim]],
    policy: Policy,
) -> Leavers | None:
    """Who has to leave for a placement on the node as it would be without all leavers."""
    first = _cards_of(request, placement, cards)

    def fits(gone: Iterable[Victim]) -> bool:
        return fit(request, placement.node, relieved(cards, gone), policy, first=first) is not None

    return _only_needed(placement.charges(), cards, on_card, fits)


def _only_needed(
    charges: Mapping[str, Charge],
    cards: Sequence[CardState],
    on_card: Mapping[str, list[Victim]],
    fits: Callable[[Iterable[Victim]], bool],
) -> Leavers | None:
    """Who has to leave so that cards carry these charges, and nobody who could stay all the same.

    None where that cannot be said.
    """
    chosen: dict[str, Victim] = {}
    by_uuid = {card.uuid: card for card in cards}
    for uuid, charge in sorted(charges.items(), key=_uuid_of):
        gone = [leaver for leaver in chosen.values() if uuid in leaver.charges]
        (card,) = relieved([by_uuid[uuid]], gone)
        there = [leaver for leaver in on_card.get(uuid, []) if leaver.uid not in chosen]
        found = _least_on(card, charge, there)
        if found is None:
            return None
        chosen |= {leaver.uid: leaver for leaver in found}
    return _pruned(sorted(chosen.values(), key=_reluctance), fits)


def _uuid_of(charged: tuple[str, Charge]) -> str:
    return charged[0]


def _cards_of(request: PodRequest, placement: Placement, cards: Sequence[CardState]) -> dict[int, list[int]]:
    """The cards of each container of a request, by their positions."""
    position = {card.uuid: n for n, card in enumerate(cards)}
    places = {container.name: container for container in placement.containers}
    return {
        n: [position[share.uuid] for share in places[container.name].cards]
        for n, container in enumerate(request.containers)
        if container.slice
    }


def _pruned(leavers: Sequence[Victim], fits: Callable[[Iterable[Victim]], bool]) -> Leavers:
    """The same without those that need not leave, looked at from the one that goes least gladly."""
    kept = list(leavers)
    for leaver in reversed(leavers):
        others = [one for one in kept if one is not leaver]
        if fits(others):
            kept = others
    return tuple(kept)


def _cost(leavers: Iterable[Victim]) -> _Cost:
    """What a set costs: its ranks, the highest first, then the ages, the eldest first."""
    ordered = sorted(leavers, key=_reluctance, reverse=True)
    return [one.rank for one in ordered], [-one.since for one in ordered]


def _reluctance(leaver: Victim) -> tuple[Any, float]:
    return leaver.rank, -leaver.since


@dataclass
class _Search:
    """A walk over the pods of one card, from the one that goes least gladly: each stays if it can, else it leaves."""

    uuid: str
    need: Need
    leavers: Sequence[Victim]
    """Those who go most gladly come first."""
    bound: _Cost | None
    """What a set has to cost less than."""
    _order: list[Victim] = field(init=False)
    _given: list[Need] = field(init=False)
    _after: list[Need] = field(init=False)
    _found: Leavers | None = field(init=False, default=None)
    _steps: int = field(init=False, default=STEPS)

    def run(self) -> Leavers | None:
        """The least set that costs less than the bound; None where there is none."""
        willing = self._willing()
        if willing is None:
            return None
        single = self._single(willing)
        if single is not None:
            self._note([single])
        else:
            self._walk_over(willing)
        return self._found

    def _willing(self) -> list[Victim] | None:
        """Those that may be asked, the most willing first: nobody of a higher rank than it takes one of."""
        leavers = self.leavers
        if self.bound is not None:
            highest = self.bound[0][0]
            leavers = [one for one in leavers if one.rank <= highest]
        last = _until_enough(self.uuid, self.need, leavers)
        return None if last is None else [one for one in leavers if one.rank <= last.rank]

    def _single(self, willing: Sequence[Victim]) -> Victim | None:
        """The youngest of the highest rank that is enough alone: no set without one of that rank is."""
        highest = willing[-1].rank
        for leaver in willing:
            if leaver.rank == highest and _until_enough(self.uuid, self.need, (leaver,)):
                return leaver
        return None

    def _walk_over(self, willing: Sequence[Victim]) -> None:
        self._order = list(reversed(willing))
        self._given = [_given(leaver.charges[self.uuid]) for leaver in self._order]
        self._after = [ENOUGH]
        for given in reversed(self._given):
            self._after.append(_plus(self._after[-1], given))
        self._after.reverse()
        self._walk(0, self.need, [])

    def _walk(self, at: int, need: Need, chosen: list[Victim]) -> None:
        """Decide about the pods from this one on; those chosen so far leave this need open."""
        if need == ENOUGH:
            self._note(chosen)
            return
        self._steps -= 1
        if self._hopeless(chosen):
            return
        if _covers(self._after[at + 1], need):
            self._walk(at + 1, need, chosen)
            if self._steps <= 0:
                return
        chosen.append(self._order[at])
        self._walk(at + 1, _less(need, self._given[at]), chosen)
        chosen.pop()

    def _hopeless(self, chosen: Sequence[Victim]) -> bool:
        """Whether one more, however gladly it goes, is too many already."""
        if self.bound is None:
            return False
        ranks = [one.rank for one in chosen]
        known = self.bound[0][: len(ranks)]
        return ranks > known or (ranks == known and len(self.bound[0]) == len(ranks))

    def _note(self, chosen: Sequence[Victim]) -> None:
        cost = _cost(chosen)
        if self.bound is None or cost < self.bound:
            self.bound, self._found = cost, tuple(reversed(chosen))


def _given(charge: Charge) -> Need:
    return charge.memory_mib, charge.guaranteed_mib, charge.cores, charge.slots, int(charge.exclusive)


def _covers(given: Need, need: Need) -> bool:
    return (
        given[0] >= need[0]
        and given[1] >= need[1]
        and given[2] >= need[2]
        and given[3] >= need[3]
        and given[4] >= need[4]
    )


def _plus(one: Need, other: Need) -> Need:
    return (
        one[0] + other[0],
        one[1] + other[1],
        one[2] + other[2],
        one[3] + other[3],
        one[4] + other[4],
    )


def _less(need: Need, given: Need) -> Need:
    return (
        max(need[0] - given[0], 0),
        max(need[1] - given[1], 0),
        max(need[2] - given[2], 0),
        max(need[3] - given[3], 0),
        max(need[4] - given[4], 0),
    )
