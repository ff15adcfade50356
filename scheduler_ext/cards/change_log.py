"""Which rows of the table have changed since when. Moments are numbers of changes.

Hundreds of classes of pods ask after every few changes, so the last ones are kept in their order; who asks for more has
all rows looked through.
"""

import copy
from typing import Final

import numpy as np
import numpy.typing as npt

RECENT: Final = 512
"""Changes that are kept in their order, at least."""


class ChangeLog:
    """The changes so far.

    Attributes:
        tick: How many there were.
    """

    def __init__(self, rows: int) -> None:
        self.tick = 0
        self._last = np.zeros(rows, np.int64)
        self._recent: list[int] = []

    def touch(self, row: int) -> None:
        """A row changes."""
        self.tick += 1
        self._last[row] = self.tick
        self._recent.append(row)
        if len(self._recent) > 2 * RECENT:
            del self._recent[:-RECENT]

    def since(self, tick: int) -> npt.NDArray[np.int64]:
        """The rows that have changed after a moment, in their order."""
        count = self.tick - tick
        if count > len(self._recent):
            return np.flatnonzero(self._last > tick)
        return np.array(sorted(set(self._recent[len(self._recent) - count :])), np.int64)

    def grow(self, rows: int) -> None:
        """There are more rows."""
        self._last = np.pad(self._last, (0, rows - len(self._last)))

    def copy(self) -> "ChangeLog":
        """One that goes its own way from here."""
        twin = copy.copy(self)
        twin._last, twin._recent = self._last.copy(), self._recent.copy()  # noqa: SLF001 - of the same class
        return twin
