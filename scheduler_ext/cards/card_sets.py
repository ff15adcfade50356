"""All sets of cards of one shape, and what makes one better: exhaustive tables that are made once a shape.

One set is better than another of as many cards when, in this order,

1. more of its cards are near NICs, and they are spread more evenly over those, where NICs count;
2. the weakest link between two of its cards is worth more, for that is what a collective waits for;
3. its links are worth more in all;
4. what it leaves of the cards that nobody is on is worth more to those who come later: the most that disjoint sets
   of 2 cards come to, plus the same of 4 and of 8, where a set comes to its cards times its weakest link;
5. its columns come first.

A set *lacks* the part of its cards by which its weakest link is worth less than that of the best set of as many. Free
cards lack for sets of a size what the best disjoint sets within them do, and all cards of those that are missing to as
many sets as there are cards for.

The tables are made when they are first asked for; `scoring` looks for the best in them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.api.links import Level, Link
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.topology import UNKNOWN_SHAPE, Shape
from aliquot.scheduler_ext.scoring import lib, pointer

Masks = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Figures = npt.NDArray[np.float64]

LATER: Final = (2, 4, 8)
"""Sizes of the sets that a remainder is judged by."""
LACK: Final = 10_000
"""What one card counts that is lacked: whole numbers, so that what is alike is equal."""
_LEVELS: Final = {Topology.NUMA: Level.NODE, Topology.BRIDGE: Level.PHB, Topology.SWITCH: Level.PXB}
_AFTER_LOAD: Final = 100
_AFTER_WEAKEST: Final = 1 << 40
_AFTER_TOTAL: Final = 1 << 20
_AFTER_SPREAD: Final = 1 << 52
"""Weights that keep the parts of an order apart: 16 cards with 36 NVLinks between each two stay below."""


@dataclass(frozen=True)
class Wish:
    """What is chosen by.

    Attributes:
        cards: How many.
        least: What every two of them must share; words that demand nothing demand nothing here.
        rdma: The NICs that they are to be spread over.
    """

    cards: int
    least: Topology = Topology.NONE
    rdma: Rdma = Rdma.NONE


@dataclass(frozen=True)
class Compared:
    """The sets that have what is demanded, the best first, equals in the order of their columns.

    Attributes:
        masks: As masks of columns.
        orders: The greatest is the best; among equals what is left to later pods decides (`Sets.rest`).
        weakest: The worth of the weakest link within each.
        lacks: What each lacks, `LACK` for a card.
    """

    masks: npt.NDArray[np.int32]
    orders: Masks
    weakest: Masks
    lacks: Masks


class Sets:
    """The sets of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._sized: dict[int, _Sized] = {}
        self._partitioned: dict[int, Masks] = {}
        self._rest: Masks | None = None
        self._compared: dict[Wish, Compared] = {}

    def compared(self, wish: Wish) -> Compared:
        """All sets that a wish allows, and what they are compared by."""
        if wish not in self._compared:
            sized = self._of(wish.cards)
            order = sized.order + sized.spread(wish.rdma)
            good = np.flatnonzero(sized.linked(wish.least))
            good = good[np.argsort(-order[good], kind="stable")]
            self._compared[wish] = Compared(
                sized.masks[good].astype(np.int32), order[good], sized.weakest[good], sized.lacks[good]
            )
        return self._compared[wish]

    def within(self, wish: Wish, masks: Masks) -> Bools:
        """Within which of these masks of columns there is a set that a wish allows."""
        allowed = self.compared(wish).masks
        different, which = np.unique(masks, return_inverse=True)
        found = [bool(((allowed & ~mask) == 0).any()) for mask in different.tolist()]
        return np.array(found, np.bool_)[which.ravel()]

    def all(self, wish: Wish, order: Sequence[int]) -> list[list[int]]:
        """The columns of every set that has what is demanded, of columns in `order` alone.

        Sets whose last card in that order comes earlier are first, then those whose cards come earlier in all.
        """
        sized, most = self._of(wish.cards), self.shape.cards
        if wish.cards > most:
            return []
        turns = np.full(most, most)
        turns[list(order)] = np.arange(len(order))
        places = turns[sized.columns]
        last = places.max(axis=1, initial=-1)
        late = last * most * most + places.sum(axis=1)
        good = np.flatnonzero(sized.linked(wish.least) & (last < most))
        found: list[list[int]] = sized.columns[good[np.argsort(late[good], kind="stable")]].tolist()
        return found

    @property
    def rest(self) -> Masks:
        """What each set of cards is worth to those who come later, by mask."""
        if self._rest is None:
            self._rest = sum(
                (self._partitions(size) for size in LATER), np.zeros(1 << self.shape.cards, np.int64)
            )
        return self._rest

    def lacks(self, size: int) -> Figures:
        """How many cards each set of cards lacks for sets of this size, by mask."""
        best = self._of(size).best
        if not best:
            return np.zeros(1 << self.shape.cards)
        possible = np.bitwise_count(np.arange(1 << self.shape.cards)).astype(np.int64) // size * size
        return possible - self._partitions(size) / best

    def _of(self, cards: int) -> "_Sized":
        if cards not in self._sized:
            self._sized[cards] = _Sized(self.shape, cards)
        return self._sized[cards]

    def _partitions(self, size: int) -> Masks:
        """For each mask the most that disjoint sets of this size within it come to."""
        if size not in self._partitioned:
            self._partitioned[size] = self._partition(size)
        return self._partitioned[size]

    def _partition(self, size: int) -> Masks:
        """Work that out."""
        sized, most = self._of(size), np.zeros(1 << self.shape.cards, np.int64)
        worths = size * sized.weakest
        lib.aq_partition(self.shape.cards, pointer(sized.masks), pointer(worths), len(worths), pointer(most))
        return most


UNKNOWN_SETS: Final = Sets(UNKNOWN_SHAPE)
"""Those of cards of which nobody knows how they are linked."""


class _Sized:
    """All sets of so many cards of a shape, in the order of their columns; none where there are fewer cards.

    Attributes:
        columns: Their cards, shape (sets, size).
        masks: The same as masks of columns.
        weakest: The worth of the weakest link within each.
        best: The greatest of these.
        lacks: What each set lacks, `LACK` for a card.
        order: Greater for better linked ones; nothing is left to others below `_AFTER_TOTAL`.
    """

    def __init__(self, shape: Shape, size: int) -> None:
        self._shape = shape
        chosen = list(combinations(range(shape.cards), size))
        self.columns = np.array(chosen, np.int64).reshape(len(chosen), size)
        self.masks: Masks = (1 << self.columns).sum(axis=1)
        worths = self._per_link(_matrix(shape, lambda link: link.worth))
        self.weakest: Masks = worths.min(axis=0) if len(worths) else np.zeros(len(chosen), np.int64)
        self.best = int(self.weakest.max(initial=0))
        missing = (self.best - self.weakest) / max(self.best, 1)
        self.lacks: Masks = np.rint(LACK * size * missing).astype(np.int64)
        self.order: Masks = self.weakest * _AFTER_WEAKEST + worths.sum(axis=0) * _AFTER_TOTAL
        self._linked: dict[Topology, Bools] = {}
        self._spread: dict[Rdma, Masks] = {}

    def linked(self, least: Topology) -> Bools:
        """Which sets have what is demanded between every two cards."""
        if least not in self._linked:
            good = self._per_link(_matrix(self._shape, lambda link: _meets(link, least)))
            self._linked[least] = np.logical_and.reduce(good, axis=0)
        return self._linked[least]

    def spread(self, rdma: Rdma) -> Masks:
        """A part of the order that comes before all others: greater where more are near, and fewer share a NIC."""
        if rdma not in self._spread:
            loads = np.zeros(len(self.masks))
            for cards, nics in self._shape.groups(rdma):
                loads = np.maximum(loads, np.bitwise_count(self.masks & cards) / nics)
            near = np.bitwise_count(self.masks & self._shape.near(rdma)).astype(np.int64)
            _, ranks = np.unique(near * _AFTER_LOAD - loads, return_inverse=True)
            self._spread[rdma] = ranks.astype(np.int64) * _AFTER_SPREAD
        return self._spread[rdma]

    def _per_link(self, matrix: Masks) -> Masks:
        """A figure of each link within each set; shape (links, sets)."""
        pairs = list(combinations(self.columns.T, 2))
        found = [matrix[one, other] for one, other in pairs]
        return np.array(found, np.int64).reshape(len(pairs), len(self.columns))


def _meets(link: Link, least: Topology) -> int:
    if least is Topology.NVLINK:
        return link.nvlinks > 0
    return link.level >= _LEVELS.get(least, Level.UNKNOWN)


def _matrix(shape: Shape, figure: Callable[[Link], int]) -> Masks:
    """A figure of each link, by both of its cards."""
    matrix = np.zeros((shape.cards, shape.cards), np.int64)
    for (other, one), link in zip(_pairs(shape.cards), shape.links, strict=True):
        matrix[one, other] = matrix[other, one] = figure(link)
    return matrix


def _pairs(cards: int) -> Iterator[tuple[int, int]]:
    """Both cards of each link, in the order in which shapes list links."""
    return ((before, card) for card in range(cards) for before in range(card))
