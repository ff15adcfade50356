"""Which cards of each row go together best.

Cards that are as good as each other for the pod itself are told apart by how they are linked, and by what is left
of the links to others (`sets`). How far that goes is the pod's word, or its pool's:

- `best-effort`: cards that are liked better come first, and differences below `QUANTUM` are none;
- `best-links`, and words that demand a link: every card with room is as good as every other.

A container of one card takes, of those that it likes best, the one that others miss least. Where all links of a node
are worth the same, or nothing is known of them, all this makes no difference and costs next to nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.request import SliceRequest
from aliquot.topology import Rdma, Topology
from scheduler_ext.sets import Sets, Wish
from scheduler_ext.table import Bools, CardTable, Ints, Room
from scheduler_ext.topology import MOST_CARDS

Keys = npt.NDArray[np.float64]

QUANTUM: Final = 0.03
"""Of a card: smaller differences do not tell cards apart."""
_GRAIN: Final = 1e-3
_NEAR: Final = 1e4
"""More than any card is liked."""
_FULL: Final = 4096.0
"""More than any link is worth."""
_BYTE: Final = 8
_HINT: Final = 1e-12
"""So little that it decides between cards that are liked alike only."""


@dataclass(frozen=True)
class Linked:
    """The cards of one container on some rows.

    Attributes:
        columns: Of shape (cards, rows).
        grade: How good the weakest link between them is, from 0 to less than 1.
        found: There is a set that has what is demanded.
    """

    columns: Ints
    grade: Keys
    found: Bools


@dataclass(frozen=True)
class Linker:
    """Chooses for one container.

    Attributes:
        wanted: What it asks for.
        topology: How links count.
    """

    wanted: SliceRequest
    topology: Topology

    @property
    def wish(self) -> Wish:
        """What sets are compared by."""
        least = self.topology if self.topology.demands else Topology.NONE
        return Wish(self.wanted.cards, least, self.wanted.rdma)

    def choose(self, part: CardTable, likes: Keys, fits: Bools) -> Linked:
        """The best cards of each row.

        Args:
            part: The rows.
            likes: How good each card is by itself; shape (cards, rows).
            fits: Whether it has room.
        """
        counts = self.topology is not Topology.NONE and bool(part.shape.any())
        if counts and self.wanted.cards == 1:
            likes = likes + _hints(part)
        nearer = likes
        if self.wanted.rdma is Rdma.NEAR:
            nearer = likes + _NEAR * part.near(self.wanted.rdma)
        columns = _liked(nearer, fits, self.wanted.cards)
        linked = Linked(columns, np.zeros(columns.shape[1]), np.ones(columns.shape[1], np.bool_))
        if self.wanted.cards > 1 and (counts or self.topology.demands):
            self._improve(linked, part, likes, fits)
        return linked

    def _improve(self, linked: Linked, part: CardTable, likes: Keys, fits: Bools) -> None:
        """Put the best linked cards in the place of the best liked ones."""
        for number in _numbers(part.shape):
            sets, rows = part.sets[number], np.flatnonzero(part.shape == number)
            free = not (self.topology.demands or sets.shape.groups(self.wanted.rdma))
            if sets.shape.uniform and free:
                linked.grade[rows] = sets.shape.weakest / _FULL
            else:
                self._pick(linked, part, rows, sets, self._classes(part, likes, fits))

    def _classes(self, part: CardTable, likes: Keys, fits: Bools) -> Keys:
        """Cards of a greater figure are chosen before others, those of an equal one by their links."""
        if self.topology is not Topology.BEST_EFFORT:
            return np.where(fits, 0.0, -np.inf)
        classes = np.floor(likes / QUANTUM + _GRAIN)
        if self.wanted.rdma is Rdma.NEAR:
            classes = classes + _NEAR / QUANTUM * part.near(self.wanted.rdma)
        return np.where(fits, classes, -np.inf)

    def _pick(self, linked: Linked, part: CardTable, rows: Ints, sets: Sets, classes: Keys) -> None:
        here = classes[:, rows]
        last = np.sort(here, axis=0)[-self.wanted.cards]
        musts, mays = _masks(here > last), _masks((here >= last) & (here > -np.inf))
        picks = sets.best_of_each(self.wish, musts, mays, _masks(_empty(part)[:, rows]))
        nothing = (0,) * self.wanted.cards
        linked.columns[:, rows] = np.array([pick.columns or nothing for pick in picks]).T
        linked.grade[rows] = np.array([pick.weakest for pick in picks]) / _FULL
        linked.found[rows] = [pick.columns != () for pick in picks]


def unlinked(table: CardTable, wanted: SliceRequest, room: Room, rows: Ints) -> tuple[Bools, Bools]:
    """On which of some rows no set of cards is linked as demanded: never, and among those with room now."""
    topology = wanted.topology or Topology.NONE
    never, now = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    if wanted.cards > 1 and topology.demands:
        wish = Wish(wanted.cards, topology)
        shapes, none = table.shape[rows], np.zeros(len(rows), np.int64)
        large, free = _masks(room.big_enough[:, rows]), _masks(room.fits[:, rows])
        for number in _numbers(shapes):
            here, sets = shapes == number, table.sets[number]
            for masks, absent in ((large[here], never), (free[here], now)):
                picks = sets.best_of_each(wish, none[here], masks, none[here])
                absent[here] = [pick.columns == () for pick in picks]
    return never, now


def _liked(likes: Keys, fits: Bools, cards: int) -> Ints:
    """As many columns per row as cards are asked for, the best liked first; ties go to the lower index."""
    likes = np.where(fits, likes, -np.inf)
    if cards == 1:
        best: Ints = likes.argmax(axis=0)[None, :]
        return best
    order: Ints = np.argsort(-likes, axis=0, kind="stable")[:cards]
    return order


def _hints(part: CardTable) -> Keys:
    """Least for the cards that others would miss most; 0 where that is all the same."""
    hints, empty = np.zeros(part.exists.shape), None
    for number in _numbers(part.shape):
        sets = part.sets[number]
        if sets.shape.uniform:
            continue
        empty = _masks(_empty(part)) if empty is None else empty
        rows = np.flatnonzero(part.shape == number)
        bits = np.int64(1) << np.arange(sets.shape.cards)[:, None]
        hints[: sets.shape.cards, rows] = _HINT * sets.rest[empty[rows] & ~bits]
    return hints


def _numbers(shapes: Ints) -> list[int]:
    """Which there are."""
    numbers: list[int] = np.flatnonzero(np.bincount(shapes)).tolist()
    return numbers


def _empty(part: CardTable) -> Bools:
    """The cards that nobody is on and somebody can be."""
    nobody: Bools = (part.slots == 0) & (part.used == 0) & (part.holders == 0)
    return np.logical_and(nobody, part.healthy & ~part.mig)


def _masks(cards: Bools) -> Ints:
    """The cards that are set in each row, as a mask of columns; cards beyond those of any shape are left out."""
    if cards.shape[0] == _BYTE:
        bytewise: Ints = np.packbits(cards, axis=0, bitorder="little")[0].astype(np.int64)
        return bytewise
    bits = np.int64(1) << np.arange(min(len(cards), MOST_CARDS))
    masks: Ints = bits @ cards[: len(bits)].astype(np.int64)
    return masks
