"""Where a slice has room: which cards of the table have what it needs, and what the others lack."""

import numpy as np

from aliquot.request.pod_request import SliceRequest
from aliquot.scheduler_ext.cards.card_table import Bools, CardTable, Ints


class Feasibility:
    """Where one container's slice has room, and what is short elsewhere: masks of shape (cards, nodes).

    Attributes:
        offered: The card takes slices.
        allowed: The container may have this card.
        near: And it is as near to NICs as is demanded.
        big_enough: It could hold this one if it were empty.
        memory, compute, slot: It has enough of this resource free.
        fits: All that the slice needs.
    """

    def __init__(self, table: CardTable, wanted: SliceRequest) -> None:
        self._table = table
        self._count = wanted.cards
        need = memory_needed(table, wanted)
        self.offered: Bools = table.healthy & ~table.mig
        self.allowed: Bools = self.offered & table.allowed(wanted.only) if wanted.only else self.offered
        self.near: Bools = self.allowed & table.near(wanted.rdma) if wanted.rdma.demands else self.allowed
        self.big_enough: Bools = (
            self.near & (need > 0) & (table.usable >= need) & (table.usable_cores >= wanted.cores)
        )
        self.memory: Bools = self.big_enough & (table.left(wanted.burst) >= need)
        self.compute: Bools = self.near & (table.usable_cores - table.cores >= wanted.cores)
        self.slot: Bools = self.near & (table.slots < table.slots_each)
        self.fits: Bools = self.memory & self.compute & self.slot & (table.holders == 0)
        if wanted.exclusive:
            self.fits &= self.alone

    @property
    def alone(self) -> Bools:
        """Where it may be held alone: nobody is on it."""
        table = self._table
        alone: Bools = self.near & (table.slots == 0) & (table.used == 0) & (table.cores == 0)
        return alone

    def enough(self, mask: Bools) -> Bools:
        """The nodes on which at least as many cards as asked for are set; shape (nodes,)."""
        found: Bools = np.count_nonzero(mask, axis=0) >= self._count
        return found


def memory_needed(table: CardTable, wanted: SliceRequest) -> Ints:
    """MiB on each card; 0 where a percentage comes to nothing."""
    if wanted.memory_mib is not None:
        return np.full(table.usable.shape, wanted.memory_mib, np.int64)
    needed: Ints = table.usable * (wanted.memory_percent or 0) // 100
    return needed
