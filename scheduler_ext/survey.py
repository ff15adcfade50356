"""Asks every node whether it has room for a pod; filter wants the best one only.

A pod of one slice is settled by the table at once, for all nodes. Several containers must fit together, which `fit`
says node by node, with the bounds that filter has: the whole budget on the first `DEEP_TRIES` kinds of nodes, a
straight try on the others. Nothing is ranked, reserved or learned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aliquot.policy import Policy
from aliquot.request import PodRequest
from scheduler_ext.choose import DEEP_TRIES, holds_all, refuse, slices_of
from scheduler_ext.fit import SEARCH_BUDGET, fit
from scheduler_ext.linked import unlinked
from scheduler_ext.reasons import Reason
from scheduler_ext.table import UNKNOWN, Bools, CardTable, Ints


@dataclass(frozen=True)
class Survey:
    """What each node says to a pod.

    Attributes:
        fits: Those with room, in the order in which they were asked.
        refused: Why the others have none.
        cards: Cards per container asked for, which the wording of a reason depends on.
    """

    fits: tuple[str, ...] = ()
    refused: Mapping[str, Reason] = field(default_factory=dict)
    cards: int = 1


def survey(table: CardTable, request: PodRequest, names: Sequence[str]) -> Survey:
    """Ask all of these nodes, and let each say why not."""
    fits = roomy(table, request, names)
    having = set(fits)
    others = [name for name in names if name not in having]
    choice = refuse(table, request, others, table.rows_of(others))
    return Survey(tuple(fits), choice.refused, choice.cards)


def roomy(table: CardTable, request: PodRequest, names: Sequence[str]) -> list[str]:
    """Those of these nodes that have room, in the order given; the table is without any charge of this pod."""
    rows = table.rows_of(names)
    (possible,) = np.nonzero(_each_fits(table, request, rows))
    if len(request.containers) > 1 and len(possible):
        possible = possible[holds_all(table, request, rows[possible])]
        return _together(table, request, [names[n] for n in possible.tolist()], rows[possible])
    return [names[n] for n in possible.tolist()]


def _each_fits(table: CardTable, request: PodRequest, rows: Ints) -> Bools:
    """Which nodes have room for each container by itself."""
    fits: Bools = rows != UNKNOWN
    for wanted in dict.fromkeys(slices_of(request)):
        room = table.room(wanted)
        _, apart = unlinked(table, wanted, room, rows)
        fits &= room.enough(room.fits)[rows] & ~apart
    return fits


def _together(table: CardTable, request: PodRequest, names: Sequence[str], rows: Ints) -> list[str]:
    """Which nodes have room for all containers at once; nodes that look alike are tried once."""
    named = any(wanted.only.uuids or wanted.only.not_uuids for wanted in slices_of(request))
    seen: dict[bytes, bool] = {}
    found = []
    for name, row in zip(names, rows.tolist(), strict=True):
        signature = name.encode() if named else table.signature(row)
        if signature not in seen:
            budget = SEARCH_BUDGET if len(seen) < DEEP_TRIES else len(request.containers)
            placement = fit(request, name, table.cards(name), Policy.BINPACK, budget)
            seen[signature] = placement is not None
        if seen[signature]:
            found.append(name)
    return found
