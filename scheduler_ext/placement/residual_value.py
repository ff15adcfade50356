"""What the rest of a card is worth: how much of it the pods that usually come can still fill.

That is the price of bin packing. Let every kind of slice come as often as it does; the fewest cards that hold them
all follow from a linear program over the ways to fill one card (*cutting stock*). Its dual gives each slice a price,
in cards: 1/2 where two of them fill a card and nothing goes beside them, nearly nothing for small ones that fit into
gaps which others leave anyway. A rest is worth the dearest set of slices that it holds. What is free beyond that
will, on average, not be filled.

The program is solved by column generation (Gilmore and Gomory, 1961): start with cards that hold one kind each,
have a knapsack find a filling that is worth more than a card, and exchange, until there is none. Sizes are counted
in steps of 1/120 of a card, which halves, thirds, quarters, fifths, sixths and eighths are whole numbers of.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.scheduler_ext.scoring import lib, pointer

Amounts = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]

STEPS: Final = 120
"""Of a whole card."""
MOST_SIZES: Final = 32
"""Sizes that are told apart, those that take most; for each of them some exchanges are due."""
_ROUNDS: Final = 200
"""Exchanges after which the prices are good enough; some tens are the rule."""
_BETTER: Final = 1e-6
"""A filling must be worth this much more than a card to be taken up."""
_NOISE: Final = 1e-12
"""Of sums; less than this is no difference."""


class Program:
    """The fewest cards for all slices of some sizes, and the prices at which they are found.

    Attributes:
        sizes: In steps of a card, all different, the smallest first.
    """

    def __init__(self, sizes: Steps, demand: Amounts) -> None:
        """Start with cards that hold one size each.

        Args:
            sizes: Of slices, in steps.
            demand: How many are asked for of each.
        """
        self.sizes = sizes
        self._demand = demand
        self._fillings = np.diag((STEPS // sizes).astype(np.float64))
        self._price = np.zeros(len(sizes))
        self._dearest = 1.0
        self._rounds = 0

    @staticmethod
    def of(shares: Sequence[float], demand: Sequence[float]) -> "Program":
        """For slices that take these parts of a card; those above 1 are passed over."""
        asked = np.zeros(STEPS + 1)
        for share, count in zip(shares, demand, strict=True):
            if 0 < share <= 1:
                asked[max(round(share * STEPS), 1)] += count
        rare = np.argsort(-asked * np.arange(STEPS + 1), kind="stable")[MOST_SIZES:]
        asked[rare] = 0
        (sizes,) = np.nonzero(asked)
        return Program(sizes, asked[sizes])

    def improve(self) -> bool:
        """Exchange one filling for a better one; whether there may be another."""
        if self._rounds == _ROUNDS or not len(self.sizes):
            return False
        self._rounds += 1
        self._price = np.maximum(np.linalg.solve(self._fillings.T, np.ones(len(self.sizes))), 0)
        worth, last = _filled(self.sizes, self._price)
        self._dearest = float(worth[STEPS])
        if self._dearest <= 1 + _BETTER:
            return False
        filling = _counts(self.sizes, last)
        self._fillings[:, _leaving(self._fillings, filling, self._demand)] = filling
        return True

    def prices(self) -> Amounts:
        """The price of one slice of each size, in cards."""
        found: Amounts = self._price / max(self._dearest, 1.0)
        return found

    def worths(self) -> Amounts:
        """The worth of every rest of a card, from 0 to `STEPS` steps, in cards."""
        if not len(self.sizes):
            return np.linspace(0, 1, STEPS + 1)
        return _filled(self.sizes, self.prices())[0]


def worths(shares: Sequence[float], demand: Sequence[float]) -> Amounts:
    """The worth of every rest of a card, from 0 to `STEPS` steps, in cards.

    Args:
        shares: The part of a card that each kind of slice takes; those above 1 are passed over.
        demand: How many of each are asked for.
    """
    program = Program.of(shares, demand)
    while program.improve():
        pass
    return program.worths()


def _filled(sizes: Steps, price: Amounts) -> tuple[Amounts, list[int]]:
    """The dearest set of slices in every rest, and the last slice of it (-1 where the rest's last step stays free)."""
    worth, last = np.zeros(STEPS + 1), np.zeros(STEPS + 1, np.int32)
    lib.aq_fill(pointer(sizes), pointer(price), len(sizes), STEPS, _NOISE, pointer(worth), pointer(last))
    return worth, last.tolist()


def _counts(sizes: Steps, last: list[int]) -> Amounts:
    """How many of each size the dearest filling of a whole card has."""
    counts, rest = np.zeros(len(sizes)), STEPS
    while rest > 0:
        if last[rest] < 0:
            rest -= 1
        else:
            counts[last[rest]] += 1
            rest -= int(sizes[last[rest]])
    return counts


def _leaving(fillings: Amounts, new: Amounts, demand: Amounts) -> int:
    """The filling that the new one takes the place of: the first to run out."""
    used, less = np.linalg.solve(fillings, demand), np.linalg.solve(fillings, new)
    until = np.where(less > _NOISE, np.maximum(used, 0) / np.where(less > _NOISE, less, 1), np.inf)
    return int(until.argmin())
