"""Asks every node whether it has room for a pod; filter wants the best one only.

A pod of one slice is settled by the table at once, for all nodes. Several containers are laid out one after the other
on all nodes at once; where that succeeds they have room. Where it does not, `fit` searches as filter does: with the
whole budget on the first `DEEP_TRIES` kinds of nodes. Init containers, which go where their pod is, and cards that
must be linked are for `fit` alone, which has a straight try on `MOST_TRIES` kinds in all. Nothing is ranked, reserved
or learned.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import ContainerKind, PodRequest
from aliquot.scheduler_ext.cards.card_table import UNKNOWN, Bools, CardTable, Ints
from aliquot.scheduler_ext.cards.feasibility import Feasibility, memory_needed
from aliquot.scheduler_ext.cards.fit import SEARCH_BUDGET, fit, turn
from aliquot.scheduler_ext.cards.linked_cards import unlinked
from aliquot.scheduler_ext.placement.placer import DEEP_TRIES, holds_all, refuse, slices_of
from aliquot.scheduler_ext.placement.reasons import Reason

MOST_TRIES: Final = 256
"""Kinds of nodes on which such a pod is tried in all; about 0.3 ms each."""


@dataclass(frozen=True)
class NodeSurvey:
    """What each node says to a pod.

    Attributes:
        fits: Those with room, in the order in which they were asked.
        refused: Why the others have none.
        cards: Cards per container asked for, which the wording of a reason depends on.
    """

    fits: tuple[str, ...] = ()
    refused: Mapping[str, Reason] = field(default_factory=dict)
    cards: int = 1


def survey(table: CardTable, request: PodRequest, names: Sequence[str]) -> NodeSurvey:
    """Ask all of these nodes, and let each say why not."""
    fits = roomy(table, request, names)
    having = set(fits)
    others = [name for name in names if name not in having]
    choice = refuse(table, request, others, table.rows_of(others))
    return NodeSurvey(tuple(fits), choice.refused, choice.cards)


def roomy(table: CardTable, request: PodRequest, names: Sequence[str]) -> list[str]:
    """Those of these nodes that have room, in the order given; the table is without any charge of this pod."""
    rows = table.rows_of(names)
    (possible,) = np.nonzero(_each_fits(table, request, rows))
    if len(request.containers) > 1 and len(possible):
        possible = possible[holds_all(table, request, rows[possible])]
        laid = _laid_out(table, request, rows[possible])
        rest = possible[~laid].tolist()
        found = {*possible[laid].tolist(), *_searched(table, request, names, rows, rest)}
        return [names[n] for n in sorted(found)]
    return [names[n] for n in possible.tolist()]


def _each_fits(table: CardTable, request: PodRequest, rows: Ints) -> Bools:
    """Which nodes have slices for the pod, and room for each container by itself."""
    fits: Bools = (rows != UNKNOWN) & (table.host_slices[rows] >= request.host.slices)
    for wanted in dict.fromkeys(slices_of(request)):
        room = Feasibility(table, wanted)
        _, apart = unlinked(table, wanted, room, rows)
        fits &= room.enough(room.fits)[rows] & ~apart
    return fits


def _needs_search(request: PodRequest) -> bool:
    """Whether room for one container after the other is not enough: where one goes, or how it is linked, matters."""
    return any(
        c.kind is ContainerKind.INIT or bool(c.slice and c.slice.topology and c.slice.topology.demands)
        for c in request.containers
    )


def _laid_out(table: CardTable, request: PodRequest, rows: Ints) -> Bools:
    """On which nodes the containers find room one after the other, on the fullest cards."""
    if _needs_search(request):
        return np.zeros(len(rows), np.bool_)
    part, here = table.at(rows).twin(), np.arange(len(rows))
    fits = np.ones(len(rows), np.bool_)
    order = sorted(range(len(request.containers)), key=lambda n: turn(request.containers[n], n))
    for wanted in (request.containers[n].slice for n in order):
        if wanted is None:
            continue
        room, need = Feasibility(part, wanted), memory_needed(part, wanted)
        fits &= room.enough(room.fits)
        likes = np.where(room.fits, part.used / np.maximum(part.usable, 1), -1.0)
        for column in np.argsort(-likes, axis=0, kind="stable")[: wanted.cards]:
            part.used[column, here] += need[column, here]
            part.burst[column, here] += need[column, here] if wanted.burst else 0
            part.cores[column, here] += wanted.cores
            part.slots[column, here] += 1
            part.holders[column, here] += wanted.exclusive
    return fits


def _searched(
    table: CardTable, request: PodRequest, names: Sequence[str], rows: Ints, positions: Sequence[int]
) -> Iterator[int]:
    """The positions of nodes on which a search finds room for all; nodes that look alike are searched once."""
    named = any(wanted.only.uuids or wanted.only.not_uuids for wanted in slices_of(request))
    straight = _needs_search(request)
    seen: dict[bytes, bool] = {}
    for n in positions:
        signature = names[n].encode() if named else table.signature(int(rows[n]))
        if signature not in seen and len(seen) < (MOST_TRIES if straight else DEEP_TRIES):
            budget = SEARCH_BUDGET if len(seen) < DEEP_TRIES else len(request.containers)
            placement = fit(request, names[n], table.cards(names[n]), Policy.BINPACK, budget)
            seen[signature] = placement is not None
        if seen.get(signature):
            yield n
