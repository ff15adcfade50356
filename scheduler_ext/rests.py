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


def worths(shares: Sequence[float], demand: Sequence[float]) -> Amounts:
    """The worth of every rest of a card, from 0 to `STEPS` steps, in cards.

    Args:
        shares: The part of a card that each kind of slice takes; those above 1 are passed over.
        demand: How many of each are asked for.
    """
    asked = np.zeros(STEPS + 1)
    for share, count in zip(shares, demand, strict=True):
        if 0 < share <= 1:
            asked[max(round(share * STEPS), 1)] += count
    rare = np.argsort(-asked * np.arange(STEPS + 1), kind="stable")[MOST_SIZES:]
    asked[rare] = 0
    (sizes,) = np.nonzero(asked)
    if not len(sizes):
        return np.linspace(0, 1, STEPS + 1)
    return _filled(sizes, prices(sizes, asked[sizes]))[0]


def prices(sizes: Steps, demand: Amounts) -> Amounts:
    """The price of one slice of each size, in cards; sizes are all different."""
    fillings = np.diag((STEPS // sizes).astype(np.float64))
    for _ in range(_ROUNDS):
        price = np.linalg.solve(fillings.T, np.ones(len(sizes)))
        worth, last = _filled(sizes, np.maximum(price, 0))
        if worth[STEPS] <= 1 + _BETTER:
            break
        filling = _counts(sizes, last)
        fillings[:, _leaving(fillings, filling, demand)] = filling
    found: Amounts = np.maximum(price, 0) / max(worth[STEPS], 1.0)
    return found


def _filled(sizes: Steps, price: Amounts) -> tuple[Amounts, list[int]]:
    """The dearest set of slices in every rest, and the last slice of it (-1 where the rest's last step stays free)."""
    offers = list(zip(sizes.tolist(), price.tolist(), range(len(sizes)), strict=True))
    worth, last = [0.0] * (STEPS + 1), [-1] * (STEPS + 1)
    for rest in range(1, STEPS + 1):
        best, which = worth[rest - 1] + _NOISE, -1
        for size, value, number in offers:
            if size > rest:
                break
            if worth[rest - size] + value > best:
                best, which = worth[rest - size] + value, number
        worth[rest], last[rest] = (best, which) if which >= 0 else (worth[rest - 1], -1)
    return np.array(worth), last


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
