"""What a card model costs those who did not ask for it.

Pods that ask for a model can go nowhere else. The more of what is free on such cards they will want, the more it
costs a pod that would be as well off elsewhere. The price follows the load: it is the part of all that is still
free that will, by what was asked of late, be asked of this model, divided by what is free of it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.request.card_filter import CardFilter
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.placement.workload_model import Wanted

WORTH: Final = 2.0
"""Price of a whole card whose model is asked for exactly as much as there is, in cards lost to others."""
HIGHEST: Final = 2.0
"""More scarcity than this makes no difference."""
_NEVER_NOTHING: Final = 0.002
"""Part of a model's cards that counts as free when none is."""

Prices = npt.NDArray[np.float64]


def prices(asked: Iterable[tuple[Wanted, int]], table: CardTable) -> Prices:
    """The price of a whole card of each of the table's models.

    Args:
        asked: What pods have been asking for, and how many.
        table: The cluster.
    """
    usable = np.maximum(table.usable, 1)
    free = table.exists * np.maximum(table.usable - table.used, 0) / usable
    supply = _per_model(table, table.exists.astype(np.float64))
    left = _per_model(table, free)
    memory = _per_model(table, table.usable.astype(np.float64)) / np.maximum(supply, 1)
    wanted = _asked(asked, table.models, supply, memory)
    scarce = wanted * left.sum() / np.maximum(left + _NEVER_NOTHING * supply, 1e-9)
    found: Prices = WORTH * np.minimum(scarce, HIGHEST)
    return found


def _per_model(table: CardTable, amounts: Prices) -> Prices:
    total: Prices = np.bincount(table.model.ravel(), amounts.ravel(), len(table.models)).astype(np.float64)
    return total


def _asked(
    asked: Iterable[tuple[Wanted, int]], models: Sequence[str], supply: Prices, memory: Prices
) -> Prices:
    """The part of all demand that asks for each model; one that names several asks each for its part of their cards."""
    parts, total = np.zeros(len(models)), 1e-9
    by_filter: dict[CardFilter, tuple[Prices, float]] = {}
    for wanted, count in asked:
        only = wanted.slice.only
        if only not in by_filter:
            by_filter[only] = _allowed(only, models, supply, memory)
        allowed, mean = by_filter[only]
        amount = count * wanted.slice.cards * _part(wanted, mean) if mean else 0.0
        total += amount
        if only.models or only.not_models:
            parts += amount * allowed
    return parts / total


def _allowed(only: CardFilter, models: Sequence[str], supply: Prices, memory: Prices) -> tuple[Prices, float]:
    """Which part of the cards that a filter lets through is of each model, and how much memory they have on average."""
    allowed = np.array([only.allows_model(model) for model in models], np.float64) * supply
    allowed /= max(allowed.sum(), 1e-9)
    return allowed, float(allowed @ memory)


def _part(wanted: Wanted, memory: float) -> float:
    """Which part of a card of this much memory is asked for."""
    if wanted.slice.memory_mib is None:
        return (wanted.slice.memory_percent or 0) / 100
    return min(wanted.slice.memory_mib / max(memory, 1.0), 1.0)
