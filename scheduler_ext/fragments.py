"""How much of what is free on a node is of no use to the pods that usually come.

What is free on a card counts as `value`: the free part of its memory and of its time, each weighed by how much of
it pods ask for (where nobody asks for cores, memory alone counts). For one kind of pod m, a node's fragment is

    everything free     when m finds no room there: CPU or memory of the node short, or too few cards with room
    what is free on cards without room for m                                                           otherwise,

which is the measure of *fragmentation gradient descent* (USENIX ATC'23), in two dimensions instead of one. Beyond
it we look ahead, with weight `AHEAD`: what the node's CPU and memory leave room for in all, not for the next pod of
m alone, limits how much is of use. Kinds that the node could not run even when empty say nothing about it and are
left out. To the sum over the kinds of pods, by weight, come two terms for all of them together:

    FLOW times what is free beyond what the node's CPU and memory suffice for, if pods go on asking for as much of
         them for each card as they do on average; the fuller the cluster is the less;
    FILL times what is free on cards beyond what it is worth (`rests`): what no set of slices will fill.

For each card the kinds that have room on it depend on few thresholds. They are tabled once per set of typical pods,
so that a card is one look-up; sums over the cards are kept per row, and a placement changes those of one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from aliquot.request import SliceRequest
from scheduler_ext.demand import Typical
from scheduler_ext.rests import STEPS, worths
from scheduler_ext.table import Bools, CardKind, CardTable, Ints

Floats = npt.NDArray[np.float32]
_T = TypeVar("_T", bound=np.generic)

AHEAD: Final = 0.1
"""Weight of the look ahead."""
FLOW: Final = 1.0
"""Weight of what CPU and memory do not suffice for, while all is free."""
NO_FLOW: Final = 0.1
"""Free part of all cards at which that weight has gone, with its square. A full cluster lives on what others leave, and
pods of many cards on nodes that become free: there, what suits CPU best spreads pods over too many nodes."""
FILL: Final = 2.0
"""Weight of what no slices will fill."""
CHUNK: Final = 256
"""Rows that are worked on at once, so that the arrays stay in the processor's cache."""
_APART: Final = 1 << 42
"""Keeps the thresholds of one kind of card apart from those of the next; more MiB than any card has."""


def flow_weight(table: CardTable) -> float:
    """How much it counts that CPU and memory do not suffice, by how much of all cards is free."""
    free = np.where(table.exists, np.maximum(table.usable - table.used, 0) / np.maximum(table.usable, 1), 0)
    part = float(free.sum() / max(np.count_nonzero(table.exists), 1))
    return FLOW * (max(part - NO_FLOW, 0.0) / (1 - NO_FLOW)) ** 2


class Yardstick:
    """The thresholds of a set of typical pods on the cards of a cluster."""

    def __init__(self, typical: Sequence[Typical], table: CardTable) -> None:
        """Work out the thresholds.

        Args:
            typical: The pods; at least one.
            table: The cluster, whose kinds of cards are looked up now: new ones need a new yardstick.
        """
        slices = [t.wanted.slice for t in typical]
        self.weights = np.array([t.weight for t in typical], np.float32)
        self.cards = np.array([wanted.cards for wanted in slices], np.float32)
        self.kinds = tuple(table.kinds)
        self._counts = np.array([t.count for t in typical], np.float64)
        self._cpu = np.array([max(t.wanted.host.cpu_milli, 1) for t in typical], np.float32)
        self._mib = np.array([max(t.wanted.host.memory_mib, 1) for t in typical], np.float32)
        needs = np.array([[_need(wanted, kind) for wanted in slices] for kind in self.kinds], np.int64)
        times = np.array([[_time(wanted, kind) for wanted in slices] for kind in self.kinds], np.int64)
        models = table.models
        allowed = np.array([[w.only.allows_model(models[kind.model]) for w in slices] for kind in self.kinds])
        self.memory_weight = self._balance(needs, times)
        self._table_rooms(needs, times, allowed)

    def _balance(self, needs: Ints, times: Ints) -> float:
        """How much of what is asked for is memory: 1 when nobody asks for cores."""
        usable = np.array([max(kind.usable_mib, 1) for kind in self.kinds])[:, None]
        cores = np.array([max(kind.usable_cores, 1) for kind in self.kinds])[:, None]
        memory, time = np.minimum(needs / usable, 1), np.minimum(times / cores, 1)
        asked = (memory * self.weights * self.cards).sum()
        weight = float(asked / max(asked + (time * self.weights * self.cards).sum(), 1e-9))
        part = weight * memory + (1 - weight) * time
        self.sizes = (part * self.cards).astype(np.float32)
        self._tell_flow(self.sizes.astype(np.float64))
        self._tell_worth(np.maximum(needs / usable, times / cores) if weight < 1 else needs / usable)
        return weight

    def _tell_flow(self, sizes: npt.NDArray[np.float64]) -> None:
        """CPU and memory to be had for as much as one card of each kind."""
        asked = np.maximum(sizes @ self._counts, 1e-9)
        self._cpu_each = np.maximum(self._cpu @ self._counts / asked, 1e-9)
        self._mib_each = np.maximum(self._mib @ self._counts / asked, 1e-9)

    def _tell_worth(self, shares: npt.NDArray[np.float64]) -> None:
        """What every rest is worth, in steps, of each kind of card: one program where kinds are asked for alike."""
        alike, which = np.unique(shares.round(4), axis=0, return_inverse=True)
        demand = (self._counts * self.cards).tolist()
        found = np.array([worths(row.tolist(), demand) for row in alike], np.float32)
        self.worth = found[which.ravel()]

    def _table_rooms(self, needs: Ints, times: Ints, allowed: Bools) -> None:
        """Table which pods have room on a card, for each step of free memory and cores; row 0: no room at all."""
        steps = [np.unique(np.append(row, 0)) for row in needs]
        self._edges = np.concatenate([n * _APART + row for n, row in enumerate(steps)])
        self._time_edges = np.unique(np.append(times, 0))
        floors = np.concatenate(steps)
        owner = np.repeat(np.arange(len(steps)), [len(row) for row in steps])
        enough = (floors[:, None] >= needs[owner]) & allowed[owner]
        timely = self._time_edges[None, :, None] >= times[owner][:, None, :]
        rooms = (enough[:, None, :] & timely).reshape(-1, len(self.weights))
        self.rooms = np.concatenate([np.zeros((1, len(self.weights)), np.float32), rooms.astype(np.float32)])
        self.useless = (1 - self.rooms @ self.weights).astype(np.float32)

    def codes(self, kinds: Ints, left: Ints, cores: Ints, offered: Bools) -> Ints:
        """Row of every card in `rooms`."""
        memory = np.searchsorted(self._edges, kinds * _APART + np.maximum(left, 0), side="right") - 1
        time = np.searchsorted(self._time_edges, np.maximum(cores, 0), side="right") - 1
        codes: Ints = np.where(offered, memory * len(self._time_edges) + time + 1, 0)
        return codes

    def host_limit(self, cpu: Ints, mib: Ints) -> Floats:
        """How many pods of each kind CPU and memory of the node leave room for; shape (rows, kinds)."""
        of_cpu = np.maximum(cpu, 0).astype(np.float32)[:, None] / self._cpu
        of_mib = np.maximum(mib, 0).astype(np.float32)[:, None] / self._mib
        limit: Floats = np.minimum(of_cpu, of_mib)
        return limit

    def flow(self, kinds: Ints, cpu: Ints, mib: Ints) -> Floats:
        """How many cards' worth of slices CPU and memory of the node suffice for, on average; shape (rows,)."""
        cards = np.minimum(cpu / self._cpu_each[kinds], mib / self._mib_each[kinds])
        flow: Floats = np.maximum(cards, 0).astype(np.float32)
        return flow


def _need(wanted: SliceRequest, kind: CardKind) -> int:
    if wanted.memory_mib is not None:
        return wanted.memory_mib
    return max(1, kind.usable_mib * (wanted.memory_percent or 0) // 100)


def _time(wanted: SliceRequest, kind: CardKind) -> int:
    return kind.usable_cores if wanted.exclusive else wanted.cores


@dataclass(frozen=True)
class Cards:
    """The cards of some rows as the yardstick sees them; arrays of shape (cards, rows).

    Attributes:
        left, cores: Memory (MiB) and compute (percent) that can be promised yet.
        offered: The card takes slices at all.
        codes: Row of each card in the yardstick's table.
        value: What is free on it, 1 for an empty card.
        worth: How much of that will be filled.
    """

    yard: Yardstick
    part: CardTable
    left: Ints
    cores: Ints
    offered: Bools
    codes: Ints
    value: Floats
    worth: Floats

    @staticmethod
    def of(yard: Yardstick, part: CardTable) -> "Cards":
        """The cards as they are."""
        left, cores = part.left(burst=False), part.usable_cores - part.cores
        return Cards.with_left(yard, part, left, cores, _offered(part))

    @staticmethod
    def known(yard: Yardstick, part: CardTable, codes: Ints, value: Floats, worth: Floats) -> "Cards":
        """The cards as they are, where codes, values and worths have been worked out before."""
        left, cores = part.left(burst=False), part.usable_cores - part.cores
        return Cards(yard, part, left, cores, _offered(part), codes, value, worth)

    @staticmethod
    def with_left(yard: Yardstick, part: CardTable, left: Ints, cores: Ints, offered: Bools) -> "Cards":
        """The cards with this much left."""
        value = rest = offered * np.maximum(left, 0) / np.maximum(part.usable, 1)
        if yard.memory_weight < 1:
            time = offered * np.maximum(cores, 0) / np.maximum(part.usable_cores, 1)
            value = yard.memory_weight * value + (1 - yard.memory_weight) * time
            rest = np.minimum(rest, time)
        worth = yard.worth[part.kind, np.rint(rest * STEPS).astype(np.int64)]
        codes = yard.codes(part.kind, left, cores, offered)
        return Cards(yard, part, left, cores, offered, codes, value.astype(np.float32), worth)

    def less(self, need: Ints, cores: int, *, exclusive: bool) -> "Cards":
        """The cards as they would be if each took this slice, more than it has or not."""
        offered = self.offered & (self.part.slots + 1 < self.part.slots_each) & (not exclusive)
        left, time = self.left - need, self.cores - cores
        return Cards.with_left(self.yard, self.part, left, time, offered)

    def emptied(self) -> "Cards":
        """The cards as they would be if nobody had anything of them."""
        part = self.part
        return Cards.with_left(self.yard, part, part.usable, part.usable_cores, part.exists)

    def taking(self, columns: Ints, after: "Cards") -> "Cards":
        """The cards when those in `columns`, of shape (cards taken, rows), become what they are in `after`."""
        rows = np.arange(columns.shape[1])

        def merged(ours: npt.NDArray[_T], theirs: npt.NDArray[_T]) -> npt.NDArray[_T]:
            both = ours.copy()
            both[columns, rows] = theirs[columns, rows]
            return both

        return Cards(
            self.yard,
            self.part,
            merged(self.left, after.left),
            merged(self.cores, after.cores),
            merged(self.offered, after.offered),
            merged(self.codes, after.codes),
            merged(self.value, after.value),
            merged(self.worth, after.worth),
        )

    def lost(self) -> Floats:
        """What is free on each card, times the weight of the pods that have no room there; and what stays unfilled."""
        lost: Floats = self.value * self.yard.useless[self.codes] + FILL * (self.value - self.worth)
        return lost


def _offered(part: CardTable) -> Bools:
    offered: Bools = part.healthy & ~part.mig & (part.holders == 0) & (part.slots < part.slots_each)
    return offered


@dataclass(frozen=True)
class Sums:
    """What the cards of each row amount to; arrays of shape (rows, kinds of pods) or (rows,).

    Attributes:
        useful: What is free on cards with room for one such pod.
        count: How many cards have room for it.
        free: Everything free.
        worth: How much of it will be filled.
    """

    useful: Floats
    count: Floats
    free: Floats
    worth: Floats

    @staticmethod
    def of(cards: Cards) -> "Sums":
        """Add up."""
        columns, rows = cards.codes.shape
        useful = np.zeros((rows, len(cards.yard.weights)), np.float32)
        count = np.zeros_like(useful)
        for column in range(columns):
            rooms = cards.yard.rooms[cards.codes[column]]
            count += rooms
            useful += rooms * cards.value[column][:, None]
        return Sums(useful, count, cards.value.sum(axis=0), cards.worth.sum(axis=0))

    def changed(self, before: Cards, after: Cards, columns: Ints) -> "Sums":
        """The sums when the cards in `columns`, of shape (cards taken, rows), become what they are in `after`."""
        useful, count = self.useful.copy(), self.count.copy()
        free, worth = self.free.copy(), self.worth.copy()
        rows = np.arange(columns.shape[1])
        for taken in columns:
            for cards, sign in ((before, -1), (after, 1)):
                rooms, value = cards.yard.rooms[cards.codes[taken, rows]], cards.value[taken, rows]
                count += sign * rooms
                useful += (sign * value)[:, None] * rooms
                free += sign * value
                worth += sign * cards.worth[taken, rows]
        return Sums(useful, count, free, worth)

    def fragment(self, yard: Yardstick, possible: Bools, limit: Floats, sizes: Floats) -> Floats:
        """The fragment of each row, without what CPU and memory do not suffice for on average.

        Args:
            yard: Whose kinds of pods are summed over.
            possible: The node could run such a pod if it were empty.
            limit: How many of them its CPU and memory leave room for.
            sizes: How much of the cards one of them takes.
        """
        runs = (self.count >= yard.cards) & (limit >= 1)
        reach = self.useful + AHEAD * (np.minimum(self.useful, limit * sizes) - self.useful)
        lost = np.where(possible, self.free[:, None] - np.where(runs, reach, 0), 0)
        fragment: Floats = np.einsum("rk,k->r", lost, yard.weights) + FILL * (self.free - self.worth)
        return fragment
