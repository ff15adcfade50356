"""The fragment of every node as it is now, and as it would be with one more pod.

Kept per row and worked out anew for the rows that have changed, which after a placement is one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from aliquot.host import HostShare
from scheduler_ext.demand import Typical, Wanted
from scheduler_ext.fragments import CHUNK, Cards, Floats, Sums, Yardstick, flow_weight
from scheduler_ext.scarcity import Prices, prices
from scheduler_ext.table import Bools, CardTable, Ints

MUCH_LIKE: Final = 0.1
"""Part of the pods that are of other kinds than before, below which nothing is learned: twice what chance makes of the
last 4,000 pods of a hundred kinds."""
SAME_PRICE: Final = 0.05
"""Of a card; and of the weight of short CPU, as long as it weighs anything."""


@dataclass
class _Rows:
    """What is kept per row; arrays of shape (rows, …), `codes`, `value` and `worths` of shape (cards, rows)."""

    useful: Floats
    count: Floats
    free: Floats
    worth: Floats
    fragment: Floats
    possible: Bools
    sizes: Floats
    codes: Ints
    value: Floats
    worths: Floats

    @staticmethod
    def empty(cards: int, rows: int, kinds: int) -> "_Rows":
        wide = (rows, kinds)
        return _Rows(
            np.zeros(wide, np.float32),
            np.zeros(wide, np.float32),
            np.zeros(rows, np.float32),
            np.zeros(rows, np.float32),
            np.zeros(rows, np.float32),
            np.zeros(wide, np.bool_),
            np.zeros(wide, np.float32),
            np.zeros((cards, rows), np.int64),
            np.zeros((cards, rows), np.float32),
            np.zeros((cards, rows), np.float32),
        )


@dataclass
class Waste:
    """Fragments of a cluster's nodes, by one set of typical pods.

    Attributes:
        table: The cluster.
        typical: The pods; at least one.
        yard: Their thresholds.
        asked: All that pods have been asking for, rare kinds too, and how often.
        prices: What a whole card of each model costs those who did not ask for it.
        flow: How much it counts that CPU and memory do not suffice.
    """

    table: CardTable
    typical: Sequence[Typical]
    asked: Iterable[tuple[Wanted, int]]
    yard: Yardstick = field(init=False)
    prices: Prices = field(init=False)
    flow: float = field(init=False)
    _rows: _Rows = field(init=False)
    _tick: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.yard = Yardstick(self.typical, self.table)
        self.prices = prices(self.asked, self.table)
        self.flow = flow_weight(self.table)
        self._rows = _Rows.empty(*self.table.exists.shape, len(self.typical))

    def much_like(self, other: "Waste") -> bool:
        """Whether hardly any pod would be placed otherwise by the other one's experience."""
        ours = {kind.wanted: kind.weight for kind in self.typical}
        theirs = {kind.wanted: kind.weight for kind in other.typical}
        apart = sum(abs(ours.get(kind, 0.0) - theirs.get(kind, 0.0)) for kind in ours.keys() | theirs.keys())
        return (
            apart <= 2 * MUCH_LIKE
            and self.fitting
            and other.fitting
            and abs(self.flow - other.flow) <= SAME_PRICE
            and (self.flow == 0) == (other.flow == 0)
            and bool(np.allclose(self.prices, other.prices, rtol=0, atol=SAME_PRICE))
        )

    @property
    def fitting(self) -> bool:
        """Whether the table still has the shape and the kinds of cards of when this was made."""
        same = self.table.exists.shape == self._rows.codes.shape
        return same and len(self.table.kinds) == len(self.yard.kinds)

    def prepare(self) -> Iterator[None]:
        """Work out all rows, some at a time; `sync` then makes up for what has changed meanwhile."""
        start = self.table.tick
        for rows in self._due():
            self._refresh(rows, shaped=True)
            yield
        self._tick = start

    def sync(self) -> None:
        """Work out what has changed."""
        shaped = self.table.reshaped_since(self._tick)
        for rows in self._due():
            self._refresh(rows, shaped=shaped)
        self._tick = self.table.tick

    def cards(self, rows: Ints, part: CardTable) -> Cards:
        """The cards of some rows as they are; `part` has those rows."""
        kept = self._rows
        value, worth = kept.value.take(rows, axis=1), kept.worths.take(rows, axis=1)
        return Cards.known(self.yard, part, kept.codes.take(rows, axis=1), value, worth)

    def before(self, rows: Ints) -> tuple[Sums, Floats]:
        """Sums and fragments of some rows as they are."""
        kept = self._rows
        return Sums(kept.useful[rows], kept.count[rows], kept.free[rows], kept.worth[rows]), kept.fragment[
            rows
        ]

    def after(self, rows: Ints, part: CardTable, sums: Sums, host: HostShare) -> Floats:
        """Fragments of some rows with these sums, and with that much less CPU and memory."""
        yard, kept = self.yard, self._rows
        cpu, mib = part.host_cpu - host.cpu_milli, part.host_mib - host.memory_mib
        found = sums.fragment(yard, kept.possible[rows], yard.host_limit(cpu, mib), kept.sizes[rows])
        if self.flow:
            found += self.flow * np.maximum(sums.free - yard.flow(part.kind[0], cpu, mib), 0)
        return found

    def _due(self) -> list[Ints]:
        rows = self.table.changed_since(self._tick)
        return [rows[n : n + CHUNK] for n in range(0, len(rows), CHUNK)]

    def _refresh(self, rows: Ints, *, shaped: bool) -> None:
        part, yard, kept = self.table.at(rows), self.yard, self._rows
        cards = Cards.of(yard, part)
        sums = Sums.of(cards)
        if shaped:
            limit = yard.host_limit(part.whole_cpu, part.whole_mib)
            kept.possible[rows] = (Sums.of(cards.emptied()).count >= yard.cards) & (limit >= 1)
            kept.sizes[rows] = yard.sizes[part.kind[0]]
        kept.codes[:, rows], kept.value[:, rows], kept.worths[:, rows] = cards.codes, cards.value, cards.worth
        kept.useful[rows], kept.count[rows] = sums.useful, sums.count
        kept.free[rows], kept.worth[rows] = sums.free, sums.worth
        kept.fragment[rows] = self.after(rows, part, sums, HostShare())
