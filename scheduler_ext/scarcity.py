"""What a card model costs those who did not ask for it.

Pods that ask for a model can go nowhere else. The more of what is free on such cards they will want, the more it
costs a pod that would be as well off elsewhere. The price follows the load: it is the part of all that is still
free that will, by what was asked of late, be asked of this model, divided by what is free of it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_ext.demand import CARDS_POWER, Typical
from scheduler_ext.fragments import Yardstick
from scheduler_ext.table import CardTable

WORTH: Final = 2.0
"""Price of a whole card whose model is asked for exactly as much as there is, in cards lost to others."""
HIGHEST: Final = 2.0
"""More scarcity than this makes no difference."""
_NEVER_NOTHING: Final = 0.002
"""Part of a model's cards that counts as free when none is."""

Prices = npt.NDArray[np.float64]


def prices(typical: Sequence[Typical], yard: Yardstick, table: CardTable) -> Prices:
    """The price of a whole card of each of the table's models."""
    free = table.exists * np.maximum(table.usable - table.used, 0) / np.maximum(table.usable, 1)
    supply = _per_model(table, table.exists.astype(np.float64))
    left = _per_model(table, free)
    sizes = yard.sizes.mean(axis=0) / yard.cards**CARDS_POWER
    asked = _asked(typical, sizes.astype(np.float32), table.models, supply)
    scarce = asked * left.sum() / np.maximum(left + _NEVER_NOTHING * supply, 1e-9)
    found: Prices = WORTH * np.minimum(scarce, HIGHEST)
    return found


def _per_model(table: CardTable, amounts: Prices) -> Prices:
    total: Prices = np.bincount(table.model.ravel(), amounts.ravel(), len(table.models)).astype(np.float64)
    return total


def _asked(
    typical: Sequence[Typical], sizes: npt.NDArray[np.float32], models: Sequence[str], supply: Prices
) -> Prices:
    """The part of all demand that asks for each model; one that names several asks each for its part of their cards."""
    asked, total = np.zeros(len(models)), 1e-9
    for kind, size in zip(typical, sizes.tolist(), strict=True):
        amount = kind.weight * size
        total += amount
        only = kind.wanted.slice.only
        allowed = np.array([only.allows_model(model) for model in models], np.float64) * supply
        if 0 < allowed.sum() < supply.sum():
            asked += amount * allowed / allowed.sum()
    return asked / total
