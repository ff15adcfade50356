"""The fragment of every node as it is now, by one set of typical pods; with one more pod is for `node_scores` to say.

Kept per row and worked out anew for the rows that have changed, which after a placement is one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from aliquot.scheduler_ext.cards.card_table import CardTable, Ints
from aliquot.scheduler_ext.placement.fragmentation import Floats, FragmentationMeasure, flow_weight
from aliquot.scheduler_ext.placement.scarcity_price import Prices, prices
from aliquot.scheduler_ext.placement.workload_model import Typical, Wanted
from aliquot.scheduler_ext.scoring import Lent, lib, pointer

CHUNK: Final = 256
"""Rows that are worked on between two moments at which calls may come; a fraction of a millisecond."""
MUCH_LIKE: Final = 0.1
"""Part of the pods that are of other kinds than before, below which nothing is learned: twice what chance makes of the
last 4,000 pods of a hundred kinds."""
SAME_PRICE: Final = 0.05
"""Of a card; and of the weight of short CPU, as long as it weighs anything."""


@dataclass
class ClusterFragmentation:
    """Fragments of a cluster's nodes, by one set of typical pods; figures are those of when they are first asked for.

    Attributes:
        table: The cluster.
        typical: The pods; at least one.
        asked: All that pods have been asking for, rare kinds too, and how often.
        fragments: Of each row.
    """

    table: CardTable
    typical: Sequence[Typical]
    asked: Iterable[tuple[Wanted, int]]
    _tick: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._shape = self.table.exists.shape
        self._kinds = self.table.numbering[:2]
        self._lent: Lent | None = None
        self._known = 0
        self.fragments: Floats = np.zeros(self._shape[1], np.float32)

    @cached_property
    def fragmentation(self) -> FragmentationMeasure:
        """The pods' thresholds."""
        return FragmentationMeasure(self.typical, self.table)

    @cached_property
    def prices(self) -> Prices:
        """What a whole card of each model costs those who did not ask for it."""
        return prices(self.asked, self.table)

    @cached_property
    def flow(self) -> float:
        """How much it counts that CPU and memory do not suffice."""
        return flow_weight(self.table)

    def measure(self) -> Iterator[None]:
        """Work out what `much_like` compares, a little at each step."""
        for part in ("fragmentation", "prices", "flow"):
            getattr(self, part)
            yield

    def much_like(self, other: "ClusterFragmentation") -> bool:
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
        return self.table.exists.shape == self._shape and self.table.numbering[:2] == self._kinds

    @property
    def lent(self) -> Lent:
        """The typical pods, as `scoring` reads it; made anew where the cluster has got nodes of another shape."""
        known = len(self.table.sets)
        if self._lent is None or known != self._known:
            for _ in self.fragmentation.prepare():
                pass
            self._lent, self._known = self.fragmentation.lend(self.prices, self.flow, self.table.sets), known
        return self._lent

    @cached_property
    def kept(self) -> Lent:
        """What is kept of the rows, as `scoring` reads and writes it."""
        columns, rows = self._shape
        lent = Lent("aq_rows")
        lent.lend(sights=Lent("aq_sight", rows * columns), fragments=self.fragments)
        lent.lend(possible=np.zeros((rows, self.fragmentation.blocks), np.uint8))
        return lent

    def prepare(self) -> Iterator[None]:
        """Work out all rows, some at a time, as long as it fits; `sync` makes up for what changes meanwhile."""
        yield from self.fragmentation.prepare()
        start = self.table.tick
        for rows in chunks(self.table.changed_since(self._tick)):
            if not self.fitting:
                return
            self._look(rows, reshaped=True)
            yield
        self._tick = start

    def sync(self) -> None:
        """Work out what has changed; it has to fit."""
        if self._tick == self.table.tick:
            return
        reshaped = self.table.reshaped_since(self._tick)
        self._look(self.table.changed_since(self._tick), reshaped=reshaped)
        self._tick = self.table.tick

    def _look(self, rows: Ints, *, reshaped: bool) -> None:
        table, kept = self.table.lent.native, self.kept.native
        lib.aq_look(table, self.lent.native, kept, pointer(rows), len(rows), reshaped)


def chunks(rows: Ints) -> Iterator[Ints]:
    """A few rows at a time."""
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]
