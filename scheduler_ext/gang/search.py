"""Looks for places for all members of a group that wait.

The hardest to place come first: those with the least choice of nodes, then the largest. Where members do not fit in
that order, the kind that found no place comes first and all are placed anew, as often as that puts another kind first;
then the same with other preferences of nodes and cards than the pods' own, because several slices fill cards exactly
only in certain patterns; then in any order. It is no proof where it fails. For members of one kind with one card each
it is exact, but for quotas.

What grows: one search for each member that finds a place, one for each kind that finds none. Further attempts are made
only where enough members would have room if their kinds were not in each other's way, and cost `MOST_FINDS` searches in
all.
"""

import itertools
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from aliquot.api.pod_groups import GroupKey
from aliquot.kube.objects import Pod
from aliquot.request.placement import Placement
from aliquot.request.placement_policy import SILENT, Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.gang.empty_cluster import Candidate, EmptyCluster, Taken
from aliquot.scheduler_ext.gang.gang import Gang, Look
from aliquot.scheduler_ext.gang.member import Member
from aliquot.scheduler_ext.kube_scheduler.wire import FilterResult
from aliquot.scheduler_ext.placement.placer import slices_of
from aliquot.scheduler_ext.state.ledger import Entry, Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods

MOST_FINDS: Final = 96
STUCK_FINDS: Final = 64
"""Of these, for attempts with the stuck kind first, before any others are made."""
_PREFERENCES: Final = (
    SILENT,
    Preference(Policy.SPREAD, Policy.SPREAD),
    Preference(Policy.BINPACK, Policy.BINPACK),
)
"""What pods are taken to prefer, one attempt after the other; nothing but what they say themselves at first."""

_Found = TypeVar("_Found")
_Plan = Sequence[tuple[int, Preference]]
"""The members by position, in order, each with what it is taken to prefer."""


class Finder(Protocol):
    """Where a pod would go; `Filter` has it."""

    def find(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> Placement | FilterResult:
        """The place of a pod without one, or why it gets none; nothing is reserved or learned."""

    def reason_against(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> str:
        """What keeps a pod without a place from the nodes that come nearest to having room, in a word for counting."""

    def quota_against(self, request: PodRequest, nodes: Sequence[str]) -> str:
        """The quota that keeps a pod from each of these nodes with cards; empty where there is none."""

    def as_one(self) -> AbstractContextManager[None]:
        """Quotas judge places that are taken meanwhile as those of one pod."""

    def closed_for_good(self, pod: Pod) -> AbstractSet[str]:
        """The nodes that a pod may never have: another device plugin serves them."""

    def beyond_quotas(self, requests: Sequence[PodRequest]) -> str:
        """The quota that these pods of one namespace exceed even if it is not used; empty where there is none."""


@dataclass(frozen=True)
class Arrangement(Generic[_Found]):
    """Who has a place, and who has none.

    Attributes:
        places: What was found, by the position of the member.
        failed: The members of each kind for which nothing was found.
    """

    places: dict[int, _Found]
    failed: dict[Hashable, Member]


class Arranger(Generic[_Found]):
    """Takes places for as many members as possible, in several orders where one is not enough."""

    def __init__(
        self,
        members: Sequence[Member],
        take: Callable[[Member, Preference], _Found | None],
        undo: Callable[[_Found], None],
        enough: Callable[[int], bool],
    ) -> None:
        """Take nothing yet.

        Args:
            members: The hardest to place first.
            take: Takes the place of one that is taken to prefer this; None where there is none.
            undo: Gives a place back.
            enough: Whether so many places are.
        """
        self._members = members
        self._take = take
        self._undo = undo
        self._enough = enough

    def run(self, worthwhile: Callable[[Sequence[Member]], bool]) -> Arrangement[_Found]:
        """The best arrangement that was found, whose places are taken.

        Args:
            worthwhile: Whether it is worth while to look in further orders; asked while no place is taken.
        """
        first = _plan(range(len(self._members)), SILENT)
        now = self._attempt(first)
        if not now.failed or self._enough(len(now.places)):
            return now
        best, how = now, first
        self._clear(now)
        if worthwhile(self._members):
            for plan, found in self._further(now):
                if len(found.places) > len(best.places):
                    best, how = found, plan
                if self._enough(len(found.places)):
                    return found
                self._clear(found)
        return self._attempt(how)

    def _further(self, first: Arrangement[_Found]) -> Iterator[tuple[_Plan, Arrangement[_Found]]]:
        """Further attempts, of `MOST_FINDS` searches in all; the first ones are those that help most often."""
        stuck, count = self._stuck_first(first), len(self._members)
        attempts = itertools.chain(
            itertools.islice(stuck, STUCK_FINDS // count),
            map(self._tried, self._easiest_first()),
            stuck,
            map(self._tried, self._shuffled()),
        )
        return itertools.islice(attempts, MOST_FINDS // count)

    def _tried(self, plan: _Plan) -> tuple[_Plan, Arrangement[_Found]]:
        return plan, self._attempt(plan)

    def _easiest_first(self) -> Iterator[_Plan]:
        """Where fewer than all are enough: quotas may bear the smaller ones alone."""
        kinds = {one.kind for one in self._members}
        if len(kinds) > 1 and self._enough(len(self._members) - 1):
            for preference in _PREFERENCES:
                yield _plan(reversed(range(len(self._members))), preference)

    def _stuck_first(self, first: Arrangement[_Found]) -> Iterator[tuple[_Plan, Arrangement[_Found]]]:
        """The kind that has found no place first, with each preference as often as that is another one."""
        kinds = [one.kind for one in self._members]
        for preference in _PREFERENCES:
            order, tried, now = list(range(len(kinds))), set[Hashable](), first
            if preference is not SILENT:
                now = self._attempt(_plan(order, preference))
                yield _plan(order, preference), now
            while (stuck := next(iter(now.failed), None)) is not None:
                if stuck in tried or kinds[order[0]] == stuck:
                    break
                tried.add(stuck)
                order = sorted(order, key=lambda n: kinds[n] != stuck)
                now = self._attempt(_plan(order, preference))
                yield _plan(order, preference), now

    def _shuffled(self) -> Iterator[_Plan]:
        """Members that ask for different things in any order, with any preferences; the same ones each time."""
        if are_alike(self._members):
            return
        chance = random.Random(len(self._members))  # noqa: S311 - no secret
        while True:
            order = chance.sample(range(len(self._members)), len(self._members))
            yield [(n, chance.choice(_PREFERENCES)) for n in order]

    def _attempt(self, plan: _Plan) -> Arrangement[_Found]:
        places, failed = dict[int, _Found](), dict[Hashable, Member]()
        for n, preference in plan:
            member = self._members[n]
            if member.kind in failed:
                continue
            found = self._take(member, preference)
            if found is None:
                failed[member.kind] = member
            else:
                places[n] = found
        return Arrangement(places, failed)

    def _clear(self, done: Arrangement[_Found]) -> None:
        for place in done.places.values():
            self._undo(place)


def _plan(order: Iterable[int], preference: Preference) -> _Plan:
    return [(n, preference) for n in order]


def are_alike(members: Sequence[Member]) -> bool:
    """Whether all members ask for the same slices."""
    return len({tuple(_slices(one)) for one in members}) <= 1


def enough_apart(table: CardTable, members: Sequence[Member], needed: int) -> bool:
    """Whether so many members would have room if each kind were alone; False where all are alike, in any order."""
    kinds = dict[Hashable, list[Member]]()
    for member in members:
        kinds.setdefault(member.kind, []).append(member)
    if len(kinds) == 1 and all(one.cards == 1 for one in _slices(members[0])):
        return False
    most = ([len(alike), *(_most(table, one) for one in _slices(alike[0]))] for alike in kinds.values())
    return sum(map(min, most)) >= needed


def _slices(member: Member) -> Sequence[SliceRequest]:
    return slices_of(member.request) if member.request is not None else ()


def _most(table: CardTable, wanted: SliceRequest) -> int:
    """How many such slices the cards of all nodes could have, at most."""
    count = table.slots_each - table.slots
    if wanted.memory_mib:
        count = np.minimum(count, table.left(wanted.burst) // wanted.memory_mib)
    if wanted.cores:
        count = np.minimum(count, (table.usable_cores - table.cores) // wanted.cores)
    usable = table.exists & table.healthy & ~table.mig & (table.holders == 0)
    return int(np.where(usable, np.maximum(count, 0), 0).sum()) // wanted.cards


class GangSearch:
    """Takes places in the ledger, and has groups woken that CPU or memory of nodes has kept waiting."""

    def __init__(self, ledger: Ledger, waiting: PendingPods) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._host_bound = dict[GroupKey, Gang]()
        ledger.hosts.on_freed(self._host_freed)

    def note(self, gang: Gang, look: Look) -> None:
        """Remember what was found: it is looked for again once something has changed."""
        gang.look = replace(look, changes=self._waiting.changes)
        if look.host_bound and not look.enough:
            self._host_bound[gang.key] = gang

    def _host_freed(self) -> None:
        """kube-scheduler knows which node has CPU and memory for one pod, not which have for a group."""
        if self._host_bound:
            waiting = self._host_bound.items()
            self._host_bound = {
                key: one for key, one in waiting if one.look.host_bound and not one.look.enough
            }
        if self._host_bound:
            self._waiting.something_changed()

    def place_all(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> tuple[list[str], Look]:
        """Reserve a place for every member that has none and finds one; who they are, and how it looks then.

        Members that kube-scheduler has not asked for yet are taken to be offered `nodes`. Room that others leave for
        members is free to all members meanwhile.
        """
        with self.aside(gang), finder.as_one():
            return self._place_all(gang, finder, nodes)

    def _place_all(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> tuple[list[str], Look]:
        short_of_host = False
        members, had = _offered(gang.seekers(), nodes), gang.covered

        def take(member: Member, preference: Preference) -> str | None:
            nonlocal short_of_host
            if member.request is None:
                return None
            request = _preferring(member.request, preference)
            roomy = self._ledger.hosts.with_room(member.nodes or (), request.host)
            short_of_host |= roomy is not member.nodes
            found = finder.find(member.pod, request, roomy)
            if not isinstance(found, Placement):
                return None
            self._ledger.reserve(request, found)
            return request.uid

        def worthwhile(members: Sequence[Member]) -> bool:
            return enough_apart(self._ledger.table, members, gang.lacking)

        least = gang.terms.members or 0
        arranger = Arranger(members, take, self._ledger.release, lambda number: had + number >= least)
        done = arranger.run(worthwhile)
        barred = ""
        if not gang.whole:
            against = (
                finder.quota_against(one.request, one.nodes or ())
                for one in done.failed.values()
                if one.request is not None
            )
            barred = next((title for title in against if title), "")
        look = Look(-1, gang.whole, gang.covered, frozenset(gang.held), short_of_host, barred)
        return list(done.places.values()), look

    def probe(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> Look:
        """How it would look with places for all that find one; all is as before afterwards."""
        return self.arrangement(gang, finder, nodes)[0]

    def arrangement(
        self, gang: Gang, finder: Finder, nodes: tuple[str, ...]
    ) -> tuple[Look, dict[str, Placement]]:
        """The same, and the places that were found, by UID."""
        with self._ledger.without(*(entry.uid for entry in self._held_for(gang))):
            placed, look = self.place_all(gang, finder, nodes)
            entries = [entry for entry in map(self._ledger.entry, placed) if entry is not None]
            for uid in placed:
                self._ledger.release(uid)
        return look, {entry.uid: entry.placement for entry in entries}

    @contextmanager
    def aside(self, gang: Gang) -> Iterator[None]:
        """Room that others leave for members is not held meanwhile, nor afterwards where enough have places then."""
        kept = self._held_for(gang)
        for entry in kept:
            self._ledger.release(entry.uid)
        yield
        for entry in [] if gang.whole else kept:
            if entry.request is not None and self._ledger.entry(entry.uid) is None:
                self._ledger.hold(entry.request, entry.placement)

    def _held_for(self, gang: Gang) -> list[Entry]:
        """Room that others leave for members."""
        entries = (self._ledger.entry(one.request.uid) for one in gang.seekers() if one.request)
        return [entry for entry in entries if entry is not None]

    def could_fit(self, gang: Gang, finder: Finder) -> bool:
        """Whether as many members as the group needs would have room if no other pod were in the cluster."""
        empty, needed = EmptyCluster(self._ledger.table), gang.needed
        for uid in gang.working:
            entry = self._ledger.entry(uid)
            if entry is not None:
                empty.keep(entry.placement, self._ledger.hosts.of(uid))

        def take(member: Member, preference: Preference) -> Taken | None:
            if member.request is None:
                return None
            request = _preferring(member.request, preference)
            closed = finder.closed_for_good(member.pod)
            return empty.place(Candidate(request, member.nodes or (), closed))

        members = _offered(sorted(gang.seeking(), key=lambda one: one.weight), gang.offered_nodes)
        done = Arranger(members, take, empty.remove, lambda number: number >= needed).run(lambda _: True)
        smallest = [one.request for one in reversed(members) if one.request is not None][:needed]
        return len(done.places) >= needed and not finder.beyond_quotas(smallest)


def _offered(members: Iterable[Member], nodes: tuple[str, ...]) -> list[Member]:
    """The members, those offered these nodes that kube-scheduler has not asked for yet."""
    return [one if one.nodes is not None else replace(one, nodes=nodes) for one in members]


def _preferring(request: PodRequest, preference: Preference) -> PodRequest:
    """What a pod asks for, with another preference."""
    return (
        request if preference is SILENT else replace(request, preference=preference.over(request.preference))
    )
