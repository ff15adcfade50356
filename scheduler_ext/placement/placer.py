"""Which node gets the pod, out of thousands, and which cards of it.

What is kept per class of pods (`NodeScores`) says at once which nodes have room for each container by itself and how
good they are; the best is tried with `fit`, which is exact. A pod of one slice is settled by the first try. When
several containers do not fit together on the best node, the next one is tried; nodes that look alike are tried
once. Nodes whose free memory, compute or slices are in all less than the pod's containers take together are not
tried, and after `DEEP_TRIES` searches in vain the other nodes get a straight try each, so that the answer comes in
time.

The cost grows with the number of nodes offered and of nodes that have changed, not with the number of pods.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from aliquot.request.placement import Placement
from aliquot.request.placement_policy import DEFAULT, Policy, Preference
from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_table import UNKNOWN, Bools, CardTable, Ints
from aliquot.scheduler_ext.cards.feasibility import Feasibility
from aliquot.scheduler_ext.cards.fit import SEARCH_BUDGET, fit, fit_one
from aliquot.scheduler_ext.cards.linked_cards import unlinked
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation
from aliquot.scheduler_ext.placement.node_scores import Keys, NodeScores, Ties
from aliquot.scheduler_ext.placement.reasons import ORDER, Reason, classify, classify_host
from aliquot.scheduler_ext.placement.workload_model import WorkloadModel, running_slices

DEEP_TRIES: Final = 16
"""Nodes that are searched with the whole budget for one pod; about 10 ms each at most."""
MOST_LOOKUPS: Final = 16
"""Nodes that are searched for among the names offered, before it is looked up which node each name is."""
MOST_CLASSES: Final = 256
"""Classes of pods whose rankings are kept; the one that was not asked for longest goes first."""
MOST_PREPARED: Final = 128
"""Of those, how many are worked out by new experience before anybody asks: the ones that were asked for last."""


@dataclass(frozen=True)
class Choice:
    """A pod's place, or the reason of every node that was asked about, by node name.

    Attributes:
        placement: The place; None when no node has room.
        refused: Why each node has no room; empty when there is a place.
        cards: Cards per container asked for, which the wording of a reason depends on.
        nearest: The reason of the nodes that come nearest to having room; None where none was asked about.
    """

    placement: Placement | None
    refused: dict[str, Reason] = field(default_factory=dict)
    cards: int = 1
    nearest: Reason | None = None


class Placer:
    """Chooses nodes and cards, and learns from what it is asked."""

    def __init__(self, table: CardTable, default: Preference = DEFAULT, *, patient: bool = False) -> None:
        """Start without experience.

        Args:
            table: The cluster.
            default: What is preferred where neither pod nor pool says; neither of the two is None.
            patient: No call waits until what is typical has been worked out anew; somebody goes through `lessons`.
        """
        self._patient = patient
        self.demand = WorkloadModel()
        self._table = table
        self._default = default
        self._waste: ClusterFragmentation | None = None
        self._version = 0
        self._rankings: OrderedDict[object, NodeScores] = OrderedDict()

    def choose(self, request: PodRequest, names: Sequence[str]) -> Choice:
        """Pick the best of the named nodes, and cards on it.

        Args:
            request: What the pod asks for; the table must be without any charge of this pod.
            names: The nodes it may go to.
        """
        self.demand.note(request)
        return self.look(request, names)

    def look(self, request: PodRequest, names: Sequence[str]) -> Choice:
        """What `choose` would say, learning nothing from being asked."""
        placement = self.place(request, names)
        if placement is not None:
            return Choice(placement)
        return refuse(self._table, request, names, self._table.rows_of(names))

    def place(self, request: PodRequest, names: Sequence[str]) -> Placement | None:
        """Where it would go; nobody asks why not, which takes longer to say of thousands of nodes."""
        return self._race(request, names).run(request)

    def prepare(self, request: PodRequest) -> None:
        """Look at the nodes that have changed, for a pod that is about to come: no answer differs for it."""
        waste = self._waste
        settled = self._patient or self.demand.version == self._version
        if waste is not None and waste.fitting and settled and len(self._table.preferences) == 1:
            self._rank(request, None)

    def _race(self, request: PodRequest, names: Sequence[str]) -> "_Race":
        """Among the nodes that are offered, or among all where those are nearly all.

        Which row each of thousands of names has takes longer to look up than all the rest of a choice.
        """
        if self._offered_nearly_all(names):
            ranked = self._rank(request, None)
            return _Race(self._table, self._table.names, None, ranked, offered=names)
        rows = self._table.rows_of(names)
        return _Race(self._table, names, rows, self._rank(request, rows))

    def _offered_nearly_all(self, names: Sequence[str], /) -> bool:
        """Whether the best node of all is likely to be among them, and nodes are all compared alike."""
        return 2 * len(names) > len(self._table) and len(self._table.preferences) == 1

    def _rank(self, request: PodRequest, rows: Ints | None) -> "_Ranked":
        """The rankings that speak for these rows; None are all, for which there is but one.

        Which cards of a node are preferred its own pool decides. Nodes are compared by one policy: that of their
        pools if it is the same, else the default.
        """
        waste = self._learned()
        said = [request.preference.over(pool).over(self._default) for pool in self._table.preferences]
        spoken = [0]
        if len(said) > 1 and rows is not None:
            spoken = np.unique(self._table.preference[rows[rows != UNKNOWN]]).tolist()
        nodes = {said[n].node for n in spoken}
        node = nodes.pop() if len(nodes) == 1 else request.preference.over(self._default).node
        found = {
            n: self._ranking(request, Preference(node, said[n].card, said[n].topology), waste) for n in spoken
        }
        return _Ranked(self._table, found)

    def _learned(self) -> ClusterFragmentation | None:
        """The cluster's fragments by what is typical now."""
        waits = self._patient and self._waste is not None
        if (self.demand.version != self._version and not waits) or (self._waste and not self._waste.fitting):
            typical = self.demand.typical()
            self._waste = (
                ClusterFragmentation(self._table, typical, tuple(self.demand.asked())) if typical else None
            )
            self._version = self.demand.version
        if self._waste is not None:
            self._waste.sync()
        return self._waste

    @property
    def has_lessons(self) -> bool:
        """Whether what is typical should be looked at again between the calls."""
        return self._patient and self._waste is not None and self.demand.version != self._version

    def lessons(self) -> Iterator[None]:
        """Work out anew what is typical and how good each node is by that, a little at each step.

        Calls may come between the steps. They are answered by what was known before, until the last step takes
        everything over at once.
        """
        version, before = self.demand.version, self._waste
        typical, asked = self.demand.typical(), tuple(self.demand.asked())
        yield
        fresh = ClusterFragmentation(self._table, typical, asked)
        yield from fresh.measure()
        if before is None or not before.much_like(fresh):
            yield from fresh.prepare()
            rankings = {}
            for key, ranking in tuple(self._rankings.items())[-MOST_PREPARED:]:
                for prepared in ranking.prepared(fresh):
                    rankings[key] = prepared
                    yield
            if self._waste is not before or not fresh.fitting:
                return  # the cluster has got another shape, and a call has learned all of this by itself
            self._waste = fresh
            self._rankings = OrderedDict((key, rankings[key]) for key in self._rankings if key in rankings)
        self._version = version

    def _ranking(
        self, request: PodRequest, preference: Preference, waste: ClusterFragmentation | None
    ) -> NodeScores:
        asked = tuple((c.kind, c.slice) for c in request.containers)
        key = (asked, request.host, preference)
        ranking = self._rankings.pop(key, None) or NodeScores(self._table, request, preference)
        self._rankings[key] = ranking
        if len(self._rankings) > MOST_CLASSES:
            self._rankings.popitem(last=False)
        ranking.sync(waste)
        return ranking


@dataclass(frozen=True)
class _Ranked:
    """Rankings by the position of the pool's preference in the table."""

    table: CardTable
    rankings: dict[int, NodeScores]

    def read(self, rows: Ints | None) -> tuple[Keys, Ties]:
        """Keys of some rows, to be written on, and their ties."""
        if rows is None:
            (ranking,) = self.rankings.values()
            known = len(self.table.names)
            return ranking.keys[:known].copy(), ranking.ties[:known]
        if len(self.rankings) == 1:
            (ranking,) = self.rankings.values()
            keys, ties = ranking.keys[rows], ranking.ties[rows]
            keys[rows == UNKNOWN] = -np.inf
            return keys, ties
        keys, ties = np.full(len(rows), -np.inf), np.zeros(len(rows), np.float32)
        for number, ranking in self.rankings.items():
            mine = (rows != UNKNOWN) & (self.table.preference[rows] == number)
            keys[mine], ties[mine] = ranking.keys[rows[mine]], ranking.ties[rows[mine]]
        return keys, ties

    def of(self, row: int) -> NodeScores:
        """The ranking that speaks for a row."""
        return self.rankings[int(self.table.preference[row])]


def holds_all(table: CardTable, request: PodRequest, rows: Ints) -> Bools:
    """Which nodes have enough in all for the containers that run together; percentages count as nothing."""
    running, part = list(running_slices(request)), table.at(rows)
    free = part.healthy & ~part.mig & (part.holders == 0)

    def enough(room: Ints, asked: int) -> Bools:
        held: Bools = np.where(free, np.maximum(room, 0), 0).sum(axis=0) >= asked
        return held

    return (
        enough(part.left(burst=True), sum(s.cards * (s.memory_mib or 0) for s in running))
        & enough(
            part.usable - (part.used - part.burst),
            sum(s.cards * (s.memory_mib or 0) for s in running if not s.burst),
        )
        & enough(part.usable_cores - part.cores, sum(s.cards * s.cores for s in running))
        & enough(part.slots_each - part.slots, sum(s.cards for s in running))
    )


class _Race:
    """The nodes that are left to try, each with its key; -inf where there is nothing to try.

    Without rows the nodes are all that there are, each at its row.
    """

    def __init__(
        self,
        table: CardTable,
        names: Sequence[str],
        rows: Ints | None,
        ranked: _Ranked,
        *,
        offered: Sequence[str] | None = None,
    ) -> None:
        self._table = table
        self._names = names
        self._offered = offered
        self._lookups = 0
        self._rows = rows
        self._ranked = ranked
        self._keys, self._ties = ranked.read(rows)

    def run(self, request: PodRequest) -> Placement | None:
        """The best node's placement, or the next best's when the containers do not fit together there."""
        if len(request.containers) > 1:
            self._leave_out_hopeless(request)
        named = any(wanted.only.uuids or wanted.only.not_uuids for wanted in slices_of(request))
        seen: set[bytes] = set()
        while (position := self._best()) is not None:
            self._keys[position] = -np.inf
            if self._offered is not None and not self._is_offered(position, self._offered):
                continue
            row = position if self._rows is None else int(self._rows[position])
            if seen and not named and self._table.signature(row) in seen:
                continue
            placement = self._try(request, row, self._names[position], deep=len(seen) < DEEP_TRIES)
            if placement is not None:
                return placement
            seen.add(self._table.signature(row))
        return None

    def _is_offered(self, position: int, names: Sequence[str]) -> bool:
        """Whether a node of all is offered; after some that were asked for one by one, all are looked up."""
        self._lookups += 1
        if self._lookups <= MOST_LOOKUPS:
            return self._names[position] in names
        rows, others = self._table.rows_of(names), np.ones(len(self._keys), np.bool_)
        others[rows[rows != UNKNOWN]] = False
        self._keys[others], self._offered = -np.inf, None
        return not others[position]

    def _leave_out_hopeless(self, request: PodRequest) -> None:
        (possible,) = np.nonzero(self._keys > -np.inf)
        rows = possible if self._rows is None else self._rows[possible]
        hopeless = possible[~holds_all(self._table, request, rows)]
        self._keys[hopeless] = -np.inf

    def _try(self, request: PodRequest, row: int, node: str, *, deep: bool) -> Placement | None:
        ranking = self._ranked.of(row)
        if not deep:
            return fit(request, node, self._table.cards(node), ranking.card_policy, len(request.containers))
        first = ranking.cards_on(row)
        if len(request.containers) == 1 and first:
            return self._put(request, row, node, first[0])
        return fit(request, node, self._table.cards(node), ranking.card_policy, SEARCH_BUDGET, first=first)

    def _put(self, request: PodRequest, row: int, node: str, columns: Sequence[int]) -> Placement | None:
        """A single container on the very cards that it was laid out on: there are no others to look at."""
        cards = self._table.cards_at(row, sorted(columns))
        if any(wanted.topology and wanted.topology.demands for wanted in slices_of(request)):
            return fit(request, node, cards, Policy.BINPACK, first={0: range(len(cards))})
        return fit_one(request, node, cards)

    def _best(self) -> int | None:
        """Position of the best node left: highest key, then highest tie, then the smallest name."""
        top = self._keys.max(initial=-np.inf)
        if top == -np.inf:
            return None
        (equal,) = np.nonzero(self._keys == top)
        if len(equal) > 1:
            ties = self._ties[equal]
            equal = equal[ties == ties.max()]
        return min(equal.tolist(), key=self._names.__getitem__)


def refuse(table: CardTable, request: PodRequest, names: Sequence[str], rows: Ints) -> Choice:
    """The first cause for every node: that of the first container that has no room there."""
    asked = [(wanted, Feasibility(table, wanted)) for wanted in dict.fromkeys(slices_of(request))]
    chosen = np.full(table.used.shape[1], ORDER.index(Reason.TOGETHER))
    for wanted, room in reversed(asked):
        causes = classify(table, room, wanted.exclusive, wanted.cards)
        chosen = np.where(room.enough(room.fits), chosen, causes)
    chosen = np.minimum(chosen, classify_host(table, request.host.slices))
    codes = np.where(rows == UNKNOWN, ORDER.index(Reason.NO_AGENT), chosen[rows])
    if table.rate_limited:
        codes[[name in table.rate_limited for name in names]] = ORDER.index(Reason.RATE_LIMITED)
    for wanted, room in asked:
        if wanted.topology and wanted.topology.demands:
            codes = _refuse_links(table, wanted, room, rows, codes)
    refused = {name: ORDER[code] for name, code in zip(names, codes.tolist(), strict=True)}
    nearest = ORDER[int(codes.max())] if len(codes) else None
    return Choice(None, refused, max((wanted.cards for wanted, _ in asked), default=1), nearest)


def _refuse_links(table: CardTable, wanted: SliceRequest, room: Feasibility, rows: Ints, codes: Ints) -> Ints:
    """The causes of some rows, where cards would be there, but not linked as is demanded."""
    never, now = unlinked(table, wanted, room, rows)
    known, full = rows != UNKNOWN, room.enough(room.fits)[rows]
    codes = np.where(
        known & room.enough(room.big_enough)[rows] & never, ORDER.index(Reason.NOT_LINKED), codes
    )
    taken: Ints = np.where(known & full & now & ~never, ORDER.index(Reason.LINKS_TAKEN), codes)
    return taken


def slices_of(request: PodRequest) -> list[SliceRequest]:
    """What the containers ask for that ask for slices."""
    return [c.slice for c in request.containers if c.slice is not None]
