"""How good each node is for one class of pods, kept until something changes on it.

The first pod of a class has every node looked at, the next only those that have changed since.

A pod of several containers is laid out one after the other, each on the cards that are best for it then; one that
finds no room is left out. That decides how good the node is and which cards are tried first; whether and where the
containers fit is for `fit` to say.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.card_table import CardTable, Ints
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation, chunks
from aliquot.scheduler_ext.placement.pod_class import PodClass
from aliquot.scheduler_ext.scoring import ffi, lib, pointer

Keys = npt.NDArray[np.float64]
Ties = npt.NDArray[np.float32]


class NodeScores:
    """Keys and ties of all rows for one class.

    Attributes:
        keys: The greater the better; -inf where a container has no room even by itself.
        ties: The greater the better among equal keys.
        card_policy: Which cards `fit` tries after those that are named to it.
    """

    def __init__(self, table: CardTable, request: PodRequest, preference: Preference) -> None:
        """Rank nothing yet.

        Args:
            table: The cluster.
            request: Any pod of the class.
            preference: Of nodes and cards; neither is None.
        """
        self.keys: Keys = np.zeros(0)
        self.ties: Ties = np.zeros(0, np.float32)
        self.card_policy = preference.card or Policy.BINPACK
        self._table = table
        self._class = PodClass(table, request, preference)
        self._waste: ClusterFragmentation | None = None
        self._shape: tuple[int, ...] = ()
        self._tick = 0

    def sync(self, waste: ClusterFragmentation | None) -> None:
        """Look at what has changed; without typical pods everybody is packed."""
        if waste is not self._waste or self._shape != self._table.exists.shape:
            self._begin(waste)
        if self._tick != self._table.tick:
            self._lay(self._table.changed_since(self._tick))
            self._tick = self._table.tick

    def prepared(self, waste: ClusterFragmentation) -> Iterator["NodeScores"]:
        """A ranking of the same class by other experience, at every step with more of its rows; this one stays.

        `sync` makes up for what changes meanwhile. It ends early where the table grows out of that experience.
        """
        other = NodeScores(self._table, self._class.request, self._class.preference)
        other._begin(waste)
        start = self._table.tick
        for rows in chunks(self._table.changed_since(0)):
            if not waste.fitting:
                return
            waste.sync()
            other._lay(rows)
            yield other
        other._tick = start
        yield other

    def cards_on(self, row: int) -> dict[int, tuple[int, ...]]:
        """The cards to be tried first on a row that has not changed since `sync`, by position of the container."""
        columns = np.empty(max(self._class.cards, 1), np.int16)
        lib.aq_cards_on(*self._natives(), row, pointer(columns))
        return self._class.read(columns)

    def _begin(self, waste: ClusterFragmentation | None) -> None:
        self._waste, self._shape, self._tick = waste, self._table.exists.shape, 0
        self.keys = np.full(self._shape[1], -np.inf)
        self.ties = np.zeros(self._shape[1], np.float32)
        self._class.begin(stepped=waste is not None)

    def _lay(self, rows: Ints) -> None:
        """Lay the pod out on some rows, by itself on each."""
        self._class.look(rows)
        lib.aq_place(*self._natives(), pointer(rows), len(rows), pointer(self.keys), pointer(self.ties))

    def _natives(self) -> tuple[Any, Any, Any, Any]:
        """What `scoring` is told first: the table, the typical pods and what is kept of each node, the class."""
        table, described = self._table.lent.native, self._class.lent.native
        if self._waste is None:
            return table, ffi.NULL, ffi.NULL, described
        return table, self._waste.lent.native, self._waste.kept.native, described
