"""Which cards of each row go together best.

Cards that are as good as each other for the pod itself are told apart by how they are linked, and by what is left
of the links to others (`card_sets`). How far that goes is the pod's word, or its pool's:

- `best-effort`: cards that are liked better come first, and differences below `QUANTUM` are none;
- `best-links`, and words that demand a link: every card with room is as good as every other.

A container of one card takes, of those that it likes best, the one that others miss least. Where all links of a node
are worth the same, or nothing is known of them, all this makes no difference and costs next to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aliquot.request.pod_request import SliceRequest
from aliquot.request.topology import Topology
from aliquot.scheduler_ext.cards.card_sets import Sets, Wish
from aliquot.scheduler_ext.cards.card_table import Bools, CardTable, Ints
from aliquot.scheduler_ext.cards.feasibility import Feasibility
from aliquot.scheduler_ext.cards.topology import MOST_CARDS, Shape
from aliquot.scheduler_ext.scoring import Lent

NEAR: Final = 1e4
"""More than any card is liked."""
HINT: Final = 1e-12
"""So little that it decides between cards that are liked alike only."""
_FULL: Final = 4096.0
"""More than any link is worth."""
_BYTE: Final = 8


@dataclass(frozen=True)
class Linker:
    """Says what links mean for one container.

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

    def lend(self, sets: Sequence[Sets]) -> Lent:
        """The same by shape, as `scoring` reads it."""
        lent = Lent("aq_links", len(sets))
        for number, one in enumerate(sets):
            shape = one.shape
            near = shape.near(self.wanted.rdma)
            lent.lend(number, all=(1 << shape.cards) - 1, near=near, **self._means(one))
        return lent

    def _means(self, sets: Sets) -> Mapping[str, object]:
        """Nothing, or that one card is missed more than others, or that sets of them are compared."""
        shape = sets.shape
        if self.topology is Topology.NONE:
            return {}
        if self.wanted.cards == 1:
            return {} if shape.uniform else {"rest": sets.rest}
        if not self._compares(shape):
            return {"grade": shape.weakest / _FULL}
        found = sets.compared(self.wish)
        return {
            "compared": 1,
            "rest": sets.rest,
            "sets": len(found.masks),
            "masks": found.masks,
            "orders": found.orders,
            "grades": found.weakest / _FULL,
            "lacks": found.lacks,
        }

    def _compares(self, shape: Shape) -> bool:
        return self.topology.demands or not shape.uniform or bool(shape.groups(self.wanted.rdma))


def unlinked(table: CardTable, wanted: SliceRequest, room: Feasibility, rows: Ints) -> tuple[Bools, Bools]:
    """On which of some rows no set of cards is linked as demanded: never, and among those with room now."""
    topology = wanted.topology or Topology.NONE
    never, now = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    if wanted.cards > 1 and topology.demands:
        wish, shapes = Wish(wanted.cards, topology), table.shape[rows]
        large, free = _masks(room.big_enough[:, rows]), _masks(room.fits[:, rows])
        for number in _numbers(shapes):
            here, sets = shapes == number, table.sets[number]
            never[here], now[here] = ~sets.within(wish, large[here]), ~sets.within(wish, free[here])
    return never, now


def _numbers(shapes: Ints) -> list[int]:
    """Which there are."""
    numbers: list[int] = np.flatnonzero(np.bincount(shapes)).tolist()
    return numbers


def _masks(cards: Bools) -> Ints:
    """The cards that are set in each row, as a mask of columns; cards beyond those of any shape are left out."""
    if cards.shape[0] == _BYTE:
        bytewise: Ints = np.packbits(cards, axis=0, bitorder="little")[0].astype(np.int64)
        return bytewise
    bits = np.int64(1) << np.arange(min(len(cards), MOST_CARDS))
    masks: Ints = bits @ cards[: len(bits)].astype(np.int64)
    return masks
