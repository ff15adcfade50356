"""The cluster's cards as arrays, a row per node and a column per card: thousands of nodes are one sum.

In memory the arrays lie the other way round, cards first: a reduction over the few cards of each node then is a
few sums of long vectors, which is several times faster than many sums of short ones.

The table holds numbers only; whose they are is the ledger's business. Rows are given to nodes as they come
and are used again after a node has gone. Memory is in MiB, compute in percent of a card. The arrays grow by
doubling; a card costs about 70 bytes, so 5,000 nodes of 8 cards take less than 5 MiB.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from aliquot.placement import Charge
from aliquot.request import SliceRequest
from scheduler_ext.cards import CardState

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRST_ROWS = 64
FIRST_CARDS = 8
UNKNOWN = -1
"""The row of a node that is not in the table."""


class CardTable:
    """What every card has and carries, in arrays of shape (cards, nodes); 0 where there is no card.

    Attributes:
        usable, usable_cores: What may be promised, in MiB (guaranteed) and percent.
        extra: Memory that may be promised beyond that, in MiB.
        used, cores, slots: What is promised, in MiB, percent and slices.
        burst: What of the memory promised need not be there at all times, in MiB.
        holders: Tenants that hold the card alone.
        slots_each: Slices per card, shape (nodes,).
        exists: A card is there.
        healthy: It works.
        mig: It is divided by MIG.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._columns: dict[str, dict[str, int]] = {}
        self._spare: list[int] = []
        self._next_row = 0
        shape = (FIRST_CARDS, FIRST_ROWS)
        self.usable, self.usable_cores = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.used, self.cores = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.slots, self.holders = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.extra, self.burst = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.slots_each = np.zeros(FIRST_ROWS, np.int64)
        self.exists, self.healthy = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.mig = np.zeros(shape, np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: str) -> bool:
        return node in self._rows

    def nodes(self) -> Iterable[str]:
        """The names of all nodes, in no particular order."""
        return self._rows.keys()

    def rows_of(self, names: Sequence[str]) -> Ints:
        """The row of each name, `UNKNOWN` where the table has no such node."""
        try:
            return np.fromiter(map(self._rows.__getitem__, names), np.int64, len(names))
        except KeyError:
            row = self._rows.get
            return np.fromiter((row(name, UNKNOWN) for name in names), np.int64, len(names))

    def put(self, node: str, cards: Sequence[CardState]) -> None:
        """Write one node's row anew."""
        row = self._rows.get(node)
        if row is None:
            row = self._rows[node] = self._new_row()
        self._widen(len(cards))
        self._clear(row)
        self._columns[node] = {card.uuid: column for column, card in enumerate(cards)}
        self.slots_each[row] = cards[0].slots if cards else 0
        for column, card in enumerate(cards):
            self._write(row, column, card)

    def drop(self, node: str) -> None:
        """Forget a node; its row is free for another."""
        row = self._rows.pop(node, None)
        if row is not None:
            self._clear(row)
            del self._columns[node]
            self._spare.append(row)

    def charge(self, node: str, uuid: str, charge: Charge, sign: int) -> None:
        """Add (sign 1) or take back (-1) a pod's charge; a card that is not there is passed over."""
        column = self._columns.get(node, {}).get(uuid)
        if column is None:
            return
        row = self._rows[node]
        self.used[column, row] += sign * charge.memory_mib
        self.burst[column, row] += sign * charge.burst_mib
        self.cores[column, row] += sign * charge.cores
        self.slots[column, row] += sign * charge.slots
        self.holders[column, row] += sign * charge.exclusive

    def cards(self, node: str) -> list[CardState]:
        """One node's cards as values, in the order of their index; none for a node that is not known."""
        return [self._read(self._rows[node], c, uuid) for uuid, c in self._columns.get(node, {}).items()]

    def signature(self, row: int) -> bytes:
        """Equal for two nodes on which every pod fits or fails alike."""
        cells: list[bytes] = [grid[:, row].tobytes() for grid in self._grids()]
        return b"".join(cells) + bytes(self.slots_each[row].tobytes())

    def left(self, burst: bool) -> Ints:
        """Memory that can be promised yet, in MiB: in all, or no more than can be guaranteed too."""
        left: Ints = self.usable + self.extra - self.used
        return left if burst else np.minimum(left, self.usable - (self.used - self.burst))

    def room(self, wanted: SliceRequest) -> "Room":
        """Which cards have room for one container's slice."""
        return Room(self, wanted)

    def _read(self, row: int, column: int, uuid: str) -> CardState:
        return CardState(
            uuid=uuid,
            usable_mib=int(self.usable[column, row]),
            usable_cores=int(self.usable_cores[column, row]),
            slots=int(self.slots_each[row]),
            used_mib=int(self.used[column, row]),
            used_cores=int(self.cores[column, row]),
            used_slots=int(self.slots[column, row]),
            holders=int(self.holders[column, row]),
            healthy=bool(self.healthy[column, row]),
            mig=bool(self.mig[column, row]),
            extra_mib=int(self.extra[column, row]),
            burst_mib=int(self.burst[column, row]),
        )

    def _write(self, row: int, column: int, card: CardState) -> None:
        self.exists[column, row] = True
        self.healthy[column, row] = card.healthy
        self.mig[column, row] = card.mig
        self.usable[column, row] = card.usable_mib
        self.usable_cores[column, row] = card.usable_cores
        self.used[column, row] = card.used_mib
        self.cores[column, row] = card.used_cores
        self.slots[column, row] = card.used_slots
        self.holders[column, row] = card.holders
        self.extra[column, row] = card.extra_mib
        self.burst[column, row] = card.burst_mib

    def _numbers(self) -> tuple[Ints, ...]:
        held = (self.used, self.burst, self.cores, self.slots, self.holders)
        return (self.usable, self.extra, self.usable_cores, *held)

    def _grids(self) -> tuple[Ints | Bools, ...]:
        return (*self._numbers(), self.exists, self.healthy, self.mig)

    def _clear(self, row: int) -> None:
        for grid in self._grids():
            grid[:, row] = 0
        self.slots_each[row] = 0

    def _new_row(self) -> int:
        if self._spare:
            return self._spare.pop()
        row = self._next_row
        self._next_row += 1
        columns, rows = self.exists.shape
        if row == rows:
            self._resize(2 * rows, columns)
        return row

    def _widen(self, cards: int) -> None:
        columns, rows = self.exists.shape
        while columns < cards:
            columns *= 2
        if columns != self.exists.shape[0]:
            self._resize(rows, columns)

    def _resize(self, rows: int, columns: int) -> None:
        old_columns, old_rows = self.exists.shape
        margin = ((0, columns - old_columns), (0, rows - old_rows))
        numbers = (np.pad(grid, margin) for grid in self._numbers())
        (
            self.usable,
            self.extra,
            self.usable_cores,
            self.used,
            self.burst,
            self.cores,
            self.slots,
            self.holders,
        ) = numbers
        self.exists, self.healthy, self.mig = (
            np.pad(grid, margin) for grid in (self.exists, self.healthy, self.mig)
        )
        self.slots_each = np.pad(self.slots_each, margin[1])


class Room:
    """Where one container's slice has room, and what is short elsewhere: masks of shape (cards, nodes).

    Attributes:
        offered: The card takes slices.
        big_enough: It could hold this one if it were empty.
        memory, compute, slot: It has enough of this resource free.
        alone: It may be held alone: nobody is on it.
        fits: All that the slice needs.
    """

    def __init__(self, table: CardTable, wanted: SliceRequest) -> None:
        self._count = wanted.cards
        need = _memory_needed(table, wanted)
        self.offered: Bools = table.healthy & ~table.mig
        self.big_enough: Bools = (
            self.offered & (need > 0) & (table.usable >= need) & (table.usable_cores >= wanted.cores)
        )
        self.memory: Bools = self.big_enough & (table.left(wanted.burst) >= need)
        self.compute: Bools = self.offered & (table.usable_cores - table.cores >= wanted.cores)
        self.slot: Bools = self.offered & (table.slots < table.slots_each)
        self.alone: Bools = self.offered & (table.slots == 0) & (table.used == 0) & (table.cores == 0)
        self.fits: Bools = self.memory & self.compute & self.slot & (table.holders == 0)
        if wanted.exclusive:
            self.fits &= self.alone

    def enough(self, mask: Bools) -> Bools:
        """The nodes on which at least as many cards as asked for are set; shape (nodes,)."""
        found: Bools = np.count_nonzero(mask, axis=0) >= self._count
        return found


def _memory_needed(table: CardTable, wanted: SliceRequest) -> Ints:
    """MiB on each card; 0 where a percentage comes to nothing."""
    if wanted.memory_mib is not None:
        return np.full(table.usable.shape, wanted.memory_mib, np.int64)
    needed: Ints = table.usable * (wanted.memory_percent or 0) // 100
    return needed
