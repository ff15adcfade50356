"""The cluster's nodes and cards as arrays, a row per node and a column per card: thousands of nodes are one sum.

In memory the arrays lie the other way round, cards first: a reduction over the few cards of each node then is a
few sums of long vectors, which is several times faster than many sums of short ones.

The table holds numbers only; whose they are is the ledger's business. Rows are given to nodes as they come
and are used again after a node has gone. Memory is in MiB, compute in percent of a card. The arrays grow by a
quarter; a card costs about 120 bytes, so 5,000 nodes of 8 cards take about 5 MiB.

Whoever keeps something per row asks with `changed_since` which rows to look at again. What is kept of thousands of
rows is worked out in C (`scoring`), which reads these arrays.
"""

import copy
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from aliquot.request.card_filter import CardFilter
from aliquot.request.host_resources import HostShare
from aliquot.request.placement import Charge
from aliquot.request.placement_policy import SILENT, Preference
from aliquot.request.topology import Rdma
from aliquot.scheduler_ext.cards.card_sets import UNKNOWN_SETS, Sets
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.change_log import ChangeLog
from aliquot.scheduler_ext.cards.topology import UNKNOWN_SHAPE, Shape
from aliquot.scheduler_ext.scoring import Lent, lib, pointer

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRST_ROWS = 64
FIRST_CARDS = 8
SPARE_KINDS: Final = 64
"""So many kinds of cards or shapes of nodes that nobody has any more are not worth numbering the others anew."""
GROWTH = 4
"""By which part of their length the arrays grow. A power of two for a length would have all cards of a node compete for
the same places in the processor's caches."""
UNKNOWN = -1
"""The row of a node that is not in the table."""
PLENTY = 1 << 40
"""CPU (thousandths), memory (MiB) and slices of a node that has not said what it has."""


_T = TypeVar("_T")


class CardKind(NamedTuple):
    """Cards on which every request means the same amounts; `model` is a position in the table's models."""

    model: int
    usable_mib: int
    usable_cores: int


_PROMISED: Final = ("used", "burst", "cores", "slots", "holders")
_GRIDS: Final = (
    *("usable", "extra", "usable_cores", "exists", "healthy", "mig", "model", "kind"),
    *_PROMISED,
)
"""Arrays of shape (cards, nodes)."""
_OF_A_CARD: Final = (
    *("usable", "extra", "usable_cores"),
    *_PROMISED,
    *("healthy", "mig", "model"),
)
"""Those that a card's state is made of, in the order in which `_Numbers` has them."""
_WRITTEN: Final = (*_OF_A_CARD, "kind")
"""Those that are written for a card, in the order of `CardTable._numbers_of`."""
_LINES: Final = (
    "slots_each",
    "host_cpu",
    "host_mib",
    "whole_cpu",
    "whole_mib",
    "host_slices",
    "whole_slices",
    "preference",
    "shape",
)
"""Arrays of shape (nodes,)."""
_LENT: Final = tuple(
    name for name in (*_GRIDS, *_LINES) if name not in ("model", "preference", "whole_slices")
)
"""Those that `scoring` reads."""


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
        model, kind: Positions of its model in `models`, and of its kind in `kinds`. These lists grow, and are made anew
            without what no card has any more.
        names: Of the nodes by row; of a row that is free, the last one's.
        rate_limited: Nodes that have no row because they publish other cards too often.
        uuid: Its UUID.
        host_cpu, host_mib: What nobody has taken of the node's CPU (thousandths) and memory, shape (nodes,).
        whole_cpu, whole_mib: What pods may take of them in all, shape (nodes,).
        host_slices, whole_slices: Device ids that the node's kubelet has left and has in all, shape (nodes,).
        preference: Position in `preferences` of what the node's pool prefers, shape (nodes,).
        shape: Position in `sets` of how its cards are linked, shape (nodes,); 0 where nobody knows.
    """

    def __init__(self) -> None:
        self.models: list[str] = [""]
        self.kinds: list[CardKind] = [CardKind(0, 0, 0)]
        self.preferences: list[Preference] = [SILENT]
        self.sets: list[Sets] = [UNKNOWN_SETS]
        self._shapes: dict[Shape, int] = {UNKNOWN_SHAPE: 0}
        self._most_kinds, self._forgotten = SPARE_KINDS, 0
        self._hosts: dict[str, tuple[HostShare, HostShare]] = {}
        self._lent: Lent | None = None
        self._copied = 0
        self._at: Ints | slice = slice(None)
        self._rows: dict[str, int] = {}
        self.names: list[str] = []
        self.rate_limited: set[str] = set()
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
        self.model, self.kind = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.uuid = np.full(shape, "", object)
        self.host_cpu, self.host_mib = np.zeros(FIRST_ROWS, np.int64), np.zeros(FIRST_ROWS, np.int64)
        self.whole_cpu, self.whole_mib = np.zeros(FIRST_ROWS, np.int64), np.zeros(FIRST_ROWS, np.int64)
        self.host_slices, self.whole_slices = np.zeros(FIRST_ROWS, np.int64), np.zeros(FIRST_ROWS, np.int64)
        self.preference, self.shape = np.zeros(FIRST_ROWS, np.int64), np.zeros(FIRST_ROWS, np.int64)
        self._change_log, self._reshaped = ChangeLog(FIRST_ROWS), 0

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

    @property
    def tick(self) -> int:
        """Grows with every change."""
        return self._change_log.tick

    def changed_since(self, tick: int) -> Ints:
        """The rows that have changed after this tick."""
        return self._change_log.since(tick)

    @property
    def numbering(self) -> tuple[int, int, int]:
        """Differs where a number in `kind` or `shape` may mean what it did not mean before."""
        return self._forgotten, len(self.kinds), len(self.sets)

    def reshaped_since(self, tick: int) -> bool:
        """Whether any row has got other cards, or another amount of CPU and memory, after this tick."""
        return self._reshaped > tick

    def put(
        self,
        node: str,
        cards: Sequence[CardState],
        preference: Preference = SILENT,
        shape: Shape = UNKNOWN_SHAPE,
    ) -> None:
        """Write one node's row anew."""
        self.rate_limited.discard(node)
        row = self._rows.get(node)
        if row is None:
            row = self._rows[node] = self._new_row()
            self.names[row] = node
        else:
            self._clear(row)
        self._widen(len(cards))
        self._reshaped = self.tick + 1
        self._change_log.touch(row)
        self._columns[node] = {card.uuid: column for column, card in enumerate(cards)}
        self.slots_each[row] = cards[0].slots if cards else 0
        self.preference[row] = _position(self.preferences, preference)
        self.shape[row] = self._shape(shape)
        self._write_host(node, row)
        self._write(row, cards)
        if max(len(self.kinds), len(self.sets)) > self._most_kinds:
            self._forget()

    def drop(self, node: str) -> None:
        """Forget a node; its row is free for another."""
        self.rate_limited.discard(node)
        row = self._rows.pop(node, None)
        if row is not None:
            self._clear(row)
            del self._columns[node]
            self._spare.append(row)

    def put_host(self, node: str, whole: HostShare, free: HostShare) -> None:
        """Write what pods may take of a node's CPU, memory and slices, and what is left of that."""
        known = self._hosts.get(node)
        self._hosts[node] = (whole, free)
        row = self._rows.get(node)
        if row is None:
            return
        if known is None or known[0] != whole:
            self._write_host(node, row)
            return
        # As for every pod that comes or goes.
        self._write_free(row, free)

    def drop_host(self, node: str) -> None:
        """Forget what is known of a node's CPU, memory and slices."""
        if self._hosts.pop(node, None) and node in self._rows:
            self._write_host(node, self._rows[node])

    def charge(self, node: str, uuid: str, charge: Charge, sign: int) -> None:
        """Add (sign 1) or take back (-1) a pod's charge; a card that is not there is passed over."""
        column = self._columns.get(node, {}).get(uuid)
        if column is None:
            return
        row = self._rows[node]
        self._change_log.touch(row)
        self.used[column, row] += sign * charge.memory_mib
        self.slots[column, row] += sign * charge.slots
        # Most pods have nothing of the others, and adding nothing takes as long.
        if charge.cores:
            self.cores[column, row] += sign * charge.cores
        if charge.burst_mib:
            self.burst[column, row] += sign * charge.burst_mib
        if charge.exclusive:
            self.holders[column, row] += sign

    def cards(self, node: str, only: Container[str] | None = None) -> list[CardState]:
        """One node's cards as values, in the order of their index; none for a node that is not known.

        Args:
            node: The node.
            only: These of them, by UUID; all where nothing is said.
        """
        columns = self._columns.get(node, {}).items()
        row = self._rows[node] if columns else UNKNOWN
        return [self._read(row, c, uuid) for uuid, c in columns if only is None or uuid in only]

    def cards_at(self, row: int, columns: Iterable[int]) -> list[CardState]:
        """Some of the cards of one row."""
        return [self._read(row, column, self.uuid[column, row]) for column in columns]

    def cards_of(self, nodes: Iterable[str]) -> dict[str, list[CardState]]:
        """The same of several nodes, those without cards left out.

        Read one by one nearly every number of a card is one that the processor's caches do not have.
        """
        known = [node for node in nodes if self._columns.get(node)]
        rows = self.rows_of(known)
        read = _Numbers(self, rows)
        return {
            node: [read.card(n, c, uuid) for uuid, c in self._columns[node].items()]
            for n, node in enumerate(known)
        }

    def signature(self, row: int) -> bytes:
        """Equal for two nodes on which every pod fits or fails alike."""
        cells: list[bytes] = [grid[:, row].tobytes() for grid in self._grids()]
        return b"".join(cells) + bytes(self.slots_each[row].tobytes()) + bytes(self.shape[row].tobytes())

    def left(self, burst: bool) -> Ints:
        """Memory that can be promised yet, in MiB: in all, or no more than can be guaranteed too."""
        left: Ints = self.usable + self.extra - self.used
        return left if burst else np.minimum(left, self.usable - (self.used - self.burst))

    def at(self, rows: Ints) -> "CardTable":
        """A copy of some rows' arrays: for reading rooms, and for working out what would be."""
        part = copy.copy(self)
        part._at, part._lent = rows, None  # noqa: SLF001 - of the same class
        for name in _GRIDS:
            setattr(part, name, getattr(self, name).take(rows, axis=1))
        for name in _LINES:
            setattr(part, name, getattr(self, name).take(rows))
        return part

    def twin(self) -> "CardTable":
        """The same arrays, but those of what is promised, and of when, copied once more: for charging at will."""
        part = copy.copy(self)
        part._lent, part._change_log = None, self._change_log.copy()  # noqa: SLF001 - of the same class
        for name in _PROMISED:
            setattr(part, name, getattr(self, name).copy())
        return part

    def emptied(self) -> "CardTable":
        """The same nodes as if no pod were on any: for charging at will."""
        part = self.twin()
        for name in _PROMISED:
            getattr(part, name)[:] = 0
        part.host_cpu, part.host_mib = self.whole_cpu.copy(), self.whole_mib.copy()
        part.host_slices = self.whole_slices.copy()
        return part

    def charge_host(self, node: str, share: HostShare) -> None:
        """Take CPU, memory and slices of a node in an emptied table."""
        row = self._rows.get(node)
        if row is not None:
            self.host_cpu[row] -= share.cpu_milli
            self.host_mib[row] -= share.memory_mib
            self.host_slices[row] -= share.slices
            self._change_log.touch(row)

    @property
    def lent(self) -> Lent:
        """The table as `scoring` reads it, with all changes; until the next change."""
        if self._lent is None:
            columns, rows = self.exists.shape
            self._lent, self._copied = Lent("aq_table"), 0
            self._lent.lend(columns=columns, rows=rows, **{name: getattr(self, name) for name in _LENT})
            self._lent.lend(stock=Lent("aq_stock", rows * columns))
            self._lent.lend(cards=Lent("aq_card", columns), open=Lent("aq_open", columns))
        if self._copied != self.tick:
            changed = self.changed_since(self._copied)
            lib.aq_copy(self._lent.native, pointer(changed), len(changed))
            self._copied = self.tick
        return self._lent

    def allowed(self, only: CardFilter) -> Bools:
        """Which cards a filter lets through."""
        models = np.array([only.allows_model(model) for model in self.models])
        allowed: Bools = models[self.model]
        if only.uuids or only.not_uuids:
            allowed &= self.named(only, self._at)
        return allowed

    def named(self, only: CardFilter, rows: Ints | slice) -> Bools:
        """Which cards of some rows a filter lets through by their names."""
        named: Bools = np.vectorize(only.allows_uuid, otypes=[bool])(self.uuid[:, rows])
        return named

    def near(self, rdma: Rdma) -> Bools:
        """Which cards are near NICs."""
        masks = np.array([sets.shape.near(rdma) for sets in self.sets])[self.shape]
        near: Bools = (masks >> np.arange(len(self.exists))[:, None] & 1) > 0
        return near

    def _shape(self, shape: Shape) -> int:
        if shape not in self._shapes:
            self._shapes[shape] = len(self.sets)
            self.sets.append(Sets(shape))
        return self._shapes[shape]

    def _forget(self) -> None:
        """Number models, kinds and shapes anew, without those that no node has: an agent may write new ones for ever.

        Copies of this table keep the lists and arrays that they have.
        """
        kinds, self.kind = _renumbered(self.kind)
        models, self.model = _renumbered(self.model)
        shapes, self.shape = _renumbered(self.shape)
        place = {model: number for number, model in enumerate(models)}
        self.kinds = [self.kinds[n]._replace(model=place[self.kinds[n].model]) for n in kinds]
        self.models = [self.models[n] for n in models]
        self.sets = [self.sets[n] for n in shapes]
        self._shapes = {one.shape: number for number, one in enumerate(self.sets)}
        self._lent = None
        self._forgotten += 1
        self._most_kinds = 2 * max(len(self.kinds), len(self.sets)) + SPARE_KINDS

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
            model=self.models[self.model[column, row]],
            sets=self.sets[self.shape[row]],
            column=column,
        )

    def _write(self, row: int, cards: Sequence[CardState]) -> None:
        """Write a row's cards, where none were."""
        if not cards:
            return
        there = slice(len(cards))
        self.exists[there, row] = True
        self.uuid[there, row] = [card.uuid for card in cards]
        columns = _columns(tuple([self._numbers_of(card) for card in cards]))
        for name, column in zip(_WRITTEN, columns, strict=True):
            getattr(self, name)[there, row] = column

    def _numbers_of(self, card: CardState) -> tuple[int, ...]:
        """What is written of a card, in the order of `_WRITTEN`."""
        model = _position(self.models, card.model)
        kind = _position(self.kinds, CardKind(model, card.usable_mib, card.usable_cores))
        return (
            *(card.usable_mib, card.extra_mib, card.usable_cores),
            *(card.used_mib, card.burst_mib, card.used_cores, card.used_slots, card.holders),
            *(card.healthy, card.mig, model, kind),
        )

    def _grids(self) -> tuple[Ints | Bools, ...]:
        return tuple(getattr(self, name) for name in _GRIDS)

    def _write_host(self, node: str, row: int) -> None:
        unknown = HostShare(PLENTY, PLENTY, PLENTY)
        whole, free = self._hosts.get(node, (unknown, unknown))
        if (self.whole_cpu[row], self.whole_mib[row]) != (whole.cpu_milli, whole.memory_mib):
            self._reshaped = self.tick + 1
        self.whole_cpu[row], self.whole_mib[row] = whole.cpu_milli, whole.memory_mib
        self.whole_slices[row] = whole.slices
        self._write_free(row, free)

    def _write_free(self, row: int, free: HostShare) -> None:
        self.host_cpu[row], self.host_mib[row] = free.cpu_milli, free.memory_mib
        self.host_slices[row] = free.slices
        self._change_log.touch(row)

    def _clear(self, row: int) -> None:
        for grid in self._grids():
            grid[:, row] = 0
        self._reshaped = self.tick + 1
        self.slots_each[row] = self.shape[row] = 0
        self._change_log.touch(row)

    def _new_row(self) -> int:
        if self._spare:
            return self._spare.pop()
        row = self._next_row
        self._next_row += 1
        self.names.append("")
        columns, rows = self.exists.shape
        if row == rows:
            self._resize(rows + rows // GROWTH + 1, columns)
        return row

    def _widen(self, cards: int) -> None:
        columns, rows = self.exists.shape
        while columns < cards:
            columns *= 2
        if columns != self.exists.shape[0]:
            self._resize(rows, columns)

    def _resize(self, rows: int, columns: int) -> None:
        self._lent = None
        self._change_log.grow(rows)
        old_columns, old_rows = self.exists.shape
        margin = ((0, columns - old_columns), (0, rows - old_rows))
        for name in (*_GRIDS, "uuid"):
            setattr(self, name, np.pad(getattr(self, name), margin))
        for name in _LINES:
            setattr(self, name, np.pad(getattr(self, name), margin[1]))


class _Numbers:
    """The numbers of some rows as Python has them, taken out of the arrays all at once."""

    def __init__(self, table: CardTable, rows: Ints) -> None:
        self._sets = [table.sets[n] for n in table.shape[rows].tolist()]
        self._slots: list[int] = table.slots_each[rows].tolist()
        self._models = table.models
        grids = (getattr(table, name)[:, rows] for name in _OF_A_CARD)
        self._grids: list[list[list[Any]]] = [grid.tolist() for grid in grids]

    def card(self, row: int, column: int, uuid: str) -> CardState:
        """A card of one of the rows."""
        usable, extra, whole, used, burst, cores, slots, holders, healthy, mig, model = [
            grid[column][row] for grid in self._grids
        ]
        return CardState(
            uuid, usable, whole, self._slots[row], used, cores, slots, holders, healthy, mig,
            extra, burst, self._models[model], self._sets[row], column,
        )  # fmt: skip


@lru_cache(maxsize=256)
def _columns(cards: tuple[tuple[int, ...], ...]) -> Ints:
    """The numbers of a node's cards, turned round; worked out once for all nodes that are alike."""
    return np.array(cards, np.int64).T


def _renumbered(numbers: Ints) -> tuple[list[int], Ints]:
    """Which numbers are in use, 0 always, and the same array with their positions."""
    used = np.union1d(numbers, 0)
    found: Ints = np.searchsorted(used, numbers)
    return used.tolist(), found


def _position(known: list[_T], item: _T) -> int:
    """Where an item is in a list, which gets it if it is new."""
    try:
        return known.index(item)
    except ValueError:
        known.append(item)
        return len(known) - 1
