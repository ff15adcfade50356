"""How good each node is for one class of pods, kept until something changes on it.

A class is what pods of one template have in common: their slices, their CPU and memory, and what they prefer. The
first pod of a class has every node looked at, the next only those that have changed since.

A pod of several containers is laid out one after the other, each on the cards that are best for it then. That
decides how good the node is and which cards are tried first; whether and where the containers fit is for `fit` to
say.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.policy import Policy, Preference
from aliquot.request import ContainerKind, PodRequest, SliceRequest
from aliquot.topology import Topology
from scheduler_ext.fit import turn
from scheduler_ext.fragments import CHUNK, Cards, Sums
from scheduler_ext.linked import Linker
from scheduler_ext.scarcity import Prices
from scheduler_ext.table import Bools, CardTable, Ints, Room, memory_needed
from scheduler_ext.waste import Waste

Keys = npt.NDArray[np.float64]

QUANTUM: Final = 0.03
"""Differences below this part of a card are none; what is left on the node then decides."""
_GRAIN: Final = 1e-3
"""Of a quantum: keeps the noise of sums from making a difference."""
_BETWEEN_ALIKE: Final = 1e-10
"""Weight of links where nodes' keys have no steps."""
_BEFORE_ALL: Final = 1e6
"""Weight of links for those to whom they are worth more than what nodes waste."""
NOT_TOGETHER: Final = -1e9
"""Added to the key of a node on which the containers, laid out one by one, do not fit together."""


class _Laid:
    """A pod that is being laid out on some rows, one container after the other.

    Attributes:
        whole: The rows as they are.
        part: As they are with the containers that have their cards; the same object where there is but one.
        cards: The cards of `part`, where fragments count.
        before: Those of `whole`.
        after: What cards become that take the last container.
        taken: The containers that have their cards, and the columns of those.
        together: All have room, one after the other.
        grade: How well their cards are linked, from 0 to less than 1.
    """

    def __init__(self, whole: CardTable, part: CardTable) -> None:
        rows = whole.used.shape[1]
        self.whole = whole
        self.part = part
        self.cards: Cards | None = None
        self.before: Cards | None = None
        self.after: Cards | None = None
        self.taken: list[tuple[SliceRequest, Ints]] = []
        self.together = np.ones(rows, np.bool_)
        self.grade = np.zeros(rows)

    def sums(self, before: Sums) -> Sums:
        """What the cards amount to with the pod."""
        if len(self.taken) == 1 and self.before and self.after:
            return before.changed(self.before, self.after, self.taken[0][1])
        return Sums.of(self.cards) if self.taken and self.cards else before

    def price(self, prices: Prices) -> Keys:
        """What the cards cost those who did not ask for their model."""
        here = np.arange(len(self.together))
        cost = np.zeros(len(here))
        for wanted, columns in self.taken:
            if not (wanted.only.models or wanted.only.not_models):
                share = memory_needed(self.whole, wanted) / np.maximum(self.whole.usable, 1)
                for column in columns:
                    cost += share[column, here] * prices[self.whole.model[column, here]]
        return cost


class Ranking:
    """Keys and ties of all rows for one class."""

    def __init__(self, table: CardTable, request: PodRequest, preference: Preference) -> None:
        """Rank nothing yet.

        Args:
            table: The cluster.
            request: Any pod of the class.
            preference: Of nodes and cards; neither is None.
        """
        self.keys = np.zeros(0)
        self.ties = np.zeros(0)
        self._table = table
        self._request = request
        self._preference = preference
        self.card_policy = preference.card or Policy.BINPACK
        self._waste: Waste | None = None
        self._columns: dict[int, npt.NDArray[np.int8]] = {}
        self._tick = 0
        order = sorted(range(len(request.containers)), key=lambda n: turn(request.containers[n], n))
        self._linkers = {
            n: Linker(c.slice, c.slice.topology or preference.topology or Topology.BEST_EFFORT)
            for n, c in enumerate(request.containers)
            if c.slice is not None
        }
        self._turns = [(n, c.slice) for n in order if (c := request.containers[n]).slice is not None]

    def sync(self, waste: Waste | None) -> None:
        """Look at what has changed; without typical pods everybody is packed."""
        if waste is not self._waste or len(self.keys) != len(self._table.slots_each):
            self._begin(waste)
        for rows in _chunks(self._table.changed_since(self._tick)):
            self._lay(rows)
        self._tick = self._table.tick

    def prepared(self, waste: Waste) -> "Iterator[Ranking]":
        """A ranking of the same class by other experience, at every step with more of its rows; this one stays.

        `sync` makes up for what changes meanwhile.
        """
        other = Ranking(self._table, self._request, self._preference)
        other._begin(waste)
        start = self._table.tick
        for rows in _chunks(self._table.changed_since(0)):
            waste.sync()
            other._lay(rows)
            yield other
        other._tick = start
        yield other

    def _begin(self, waste: Waste | None) -> None:
        size = len(self._table.slots_each)
        self._waste, self._tick = waste, 0
        self.keys, self.ties = np.full(size, -np.inf), np.zeros(size)
        self._columns = {n: np.zeros((wanted.cards, size), np.int8) for n, wanted in self._turns}

    def cards_on(self, row: int) -> dict[int, tuple[int, ...]]:
        """The cards to be tried first, by position of the container."""
        return {n: tuple(columns[:, row].tolist()) for n, columns in self._columns.items()}

    def _lay(self, rows: Ints) -> None:
        """Lay the pod out on some rows, by itself on each."""
        whole, room = self._table.at(rows), None
        fits = np.ones(len(rows), np.bool_)
        for _, wanted in self._turns:
            room = Room(whole, wanted)
            fits &= room.enough(room.fits)
        self.keys[rows] = -np.inf
        first = room.fits if room else np.zeros((0, len(rows)), np.bool_)
        if not fits.all():
            rows, first = rows[fits], first[:, fits]
            whole = self._table.at(rows)
        if len(rows):
            self._lay_fitting(rows, whole, first)

    def _lay_fitting(self, rows: Ints, whole: CardTable, first: Bools) -> None:
        """Lay it out where each container has room by itself: a single one on the cards in `first`."""
        laid = _Laid(whole, whole if len(self._turns) < 2 else whole.twin())  # noqa: PLR2004 - one container
        if self._waste is not None and Policy.FRAG_AWARE in (self._preference.node, self._preference.card):
            laid.cards = laid.before = self._waste.cards(rows, whole)
        for position, wanted in self._turns:
            if self._request.containers[position].kind is not ContainerKind.INIT:
                self._columns[position][:, rows] = self._put(laid, position, wanted, first)
        keys, self.ties[rows] = self._judge(rows, laid)
        # A single container that finds no cards now finds none; several may, in another order.
        apart = -np.inf if len(self._turns) < 2 else keys + NOT_TOGETHER  # noqa: PLR2004 - one container
        self.keys[rows] = np.where(laid.together, keys, apart)

    def _put(self, laid: "_Laid", position: int, wanted: SliceRequest, first: Bools) -> Ints:
        """Give one container its cards; the columns of shape (cards, rows)."""
        need, fits = memory_needed(laid.whole, wanted), first
        if laid.part is not laid.whole:
            room = Room(laid.part, wanted)
            fits = room.fits
            laid.together &= room.enough(fits)
        after = laid.cards and laid.cards.less(need, wanted.cores, exclusive=wanted.exclusive)
        linked = self._linkers[position].choose(laid.part, self._likes(laid, after), fits)
        columns = linked.columns
        laid.together &= linked.found
        laid.grade += linked.grade / len(self._turns)
        laid.taken.append((wanted, columns))
        laid.after = after
        if laid.part is not laid.whole:
            _take(laid.part, wanted, need, columns)
            laid.cards = laid.cards and after and laid.cards.taking(columns, after)
        return columns

    def _likes(self, laid: "_Laid", after: Cards | None) -> Keys:
        """How good each card is for one container; shape (cards, rows)."""
        if self._preference.card is Policy.SPREAD:
            return -_fill(laid.part)
        if self._preference.card is Policy.BINPACK or laid.cards is None or after is None:
            return _fill(laid.part)
        gain = np.floor((laid.cards.lost() - after.lost()) / QUANTUM + _GRAIN)
        likes: Keys = gain * 8 - laid.cards.value
        return likes

    def _judge(self, rows: Ints, laid: "_Laid") -> tuple[Keys, Keys]:
        """Keys and ties. Of nodes that are alike the one with the better linked cards has the greater key."""
        keys, ties = self._weigh(rows, laid)
        if any(linker.topology is Topology.BEST_LINKS for linker in self._linkers.values()):
            return keys + _BEFORE_ALL * laid.grade, ties
        stepped = self._preference.node is Policy.FRAG_AWARE and self._waste is not None
        return keys + laid.grade * (1 if stepped else _BETWEEN_ALIKE), ties

    def _weigh(self, rows: Ints, laid: "_Laid") -> tuple[Keys, Keys]:
        """Keys and ties, whatever the links."""
        if self._preference.node is Policy.SPREAD:
            return -_node_fill(laid.whole), np.zeros(len(rows))
        if self._preference.node is Policy.BINPACK or self._waste is None:
            return self._packed(laid.whole), laid.whole.used.sum(axis=0).astype(np.float64)
        before, fragment = self._waste.before(rows)
        sums = laid.sums(before)
        gained = fragment - self._waste.after(rows, laid.whole, sums, self._request.host)
        keys = np.floor((gained - laid.price(self._waste.prices)) / QUANTUM + _GRAIN)
        return keys, np.round(-sums.free.astype(np.float64), 4)

    def _packed(self, whole: CardTable) -> Keys:
        """How full the fullest cards with room for the first container are."""
        if not self._turns:
            return _node_fill(whole)
        wanted = self._turns[0][1]
        candidates = np.where(Room(whole, wanted).fits, _fill(whole), -1.0)
        fullest: Keys = np.sort(candidates, axis=0)[-wanted.cards :].sum(axis=0)
        return fullest


def _chunks(rows: Ints) -> Iterator[Ints]:
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]


def _fill(part: CardTable) -> Keys:
    """How full each card's memory is."""
    fill: Keys = part.used / np.maximum(part.usable, 1)
    return fill


def _node_fill(part: CardTable) -> Keys:
    """How full each node is in all."""
    fill: Keys = part.used.sum(axis=0) / np.maximum(part.usable.sum(axis=0), 1)
    return np.round(fill, 9)


def _take(part: CardTable, wanted: SliceRequest, need: Ints, columns: Ints) -> None:
    """Charge a container to some columns of each row of a copy; more than there is where it does not fit."""
    rows = np.arange(columns.shape[1])
    for taken in columns:
        part.used[taken, rows] += need[taken, rows]
        part.burst[taken, rows] += need[taken, rows] if wanted.burst else 0
        part.cores[taken, rows] += wanted.cores
        part.slots[taken, rows] += 1
        part.holders[taken, rows] += wanted.exclusive
