"""Which node gets the pod, out of thousands, and which cards of it.

The arrays say at once which nodes have room for each container by itself; the policy's best of them is tried
with `fit`, which is exact. A pod of one slice is settled by the first try. When several containers do not fit
together on the best node, the next one is tried; nodes that look alike are tried once. Nodes whose free memory,
compute or slices are in all less than the pod's containers take together are not tried, and after
`DEEP_TRIES` searches in vain the other nodes get a straight try each, so that the answer comes in time.

The cost grows with the number of nodes and of the pod's containers, not with the number of pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aliquot.placement import Placement
from aliquot.request import ContainerKind, PodRequest, SliceRequest
from scheduler_ext.fit import SEARCH_BUDGET, fit
from scheduler_ext.policy import Policy
from scheduler_ext.reasons import ORDER, Reason, classify
from scheduler_ext.table import UNKNOWN, Bools, CardTable, Ints, Room

Floats = npt.NDArray[np.float64]

DEEP_TRIES = 16
"""Nodes that are searched with the whole budget for one pod; about 10 ms each at most."""


@dataclass(frozen=True)
class Choice:
    """A pod's place, or the reason of every node that was asked about, by node name.

    Attributes:
        placement: The place; None when no node has room.
        refused: Why each node has no room; empty when there is a place.
        cards: Cards per container asked for, which the wording of a reason depends on.
    """

    placement: Placement | None
    refused: dict[str, Reason] = field(default_factory=dict)
    cards: int = 1


def choose(table: CardTable, request: PodRequest, names: Sequence[str], policy: Policy) -> Choice:
    """Pick the best of the named nodes, and cards on it.

    Args:
        table: The cluster, without any charge of this pod.
        request: What the pod asks for; at least one slice.
        names: The nodes it may go to.
        policy: Which nodes and cards to prefer.
    """
    slices = list(dict.fromkeys(c.slice for c in request.containers if c.slice is not None))
    rooms = [table.room(wanted) for wanted in slices]
    rows = table.rows_of(names)
    possible = _possible(rooms, rows) & _holds_all(table, request)[rows]
    scores = np.where(possible, _scores(table, rooms[0], slices[0], policy)[rows], -np.inf)
    placement = _Race(table, names, rows, scores, policy).run(request)
    if placement is not None:
        return Choice(placement)
    most = max(wanted.cards for wanted in slices)
    return Choice(None, _refusals(table, list(zip(slices, rooms, strict=True)), names, rows), most)


def _possible(rooms: Sequence[Room], rows: Ints) -> Bools:
    """Which of the rows have room for each container by itself."""
    everywhere = np.logical_and.reduce([room.enough(room.fits) for room in rooms])
    possible: Bools = everywhere[rows] & (rows != UNKNOWN)
    return possible


def _holds_all(table: CardTable, request: PodRequest) -> Bools:
    """Which nodes have enough in all for the containers that run together; percentages count as nothing."""
    running = [c.slice for c in request.containers if c.slice and c.kind is not ContainerKind.INIT]
    free = table.healthy & ~table.mig & (table.holders == 0)

    def enough(room: Ints, asked: int) -> Bools:
        held: Bools = np.where(free, np.maximum(room, 0), 0).sum(axis=0) >= asked
        return held

    return (
        enough(table.left(burst=True), sum(s.cards * (s.memory_mib or 0) for s in running))
        & enough(
            table.usable - (table.used - table.burst),
            sum(s.cards * (s.memory_mib or 0) for s in running if not s.burst),
        )
        & enough(table.usable_cores - table.cores, sum(s.cards * s.cores for s in running))
        & enough(table.slots_each - table.slots, sum(s.cards for s in running))
    )


def _scores(table: CardTable, room: Room, wanted: SliceRequest, policy: Policy) -> Floats:
    """How much each row is to be preferred for this slice, higher is better."""
    if policy is Policy.FIRST_FIT:
        return np.zeros(table.used.shape[1])
    filled = table.used / np.maximum(table.usable, 1)
    candidates = np.where(room.fits, filled, -1.0)
    if wanted.cards == 1:
        best: Floats = candidates.max(axis=0)
        return best
    fullest: Floats = np.sort(candidates, axis=0)[-wanted.cards :].sum(axis=0)
    return fullest


class _Race:
    """The nodes that are left to try, each with its score; -inf where there is nothing to try."""

    def __init__(
        self, table: CardTable, names: Sequence[str], rows: Ints, scores: Floats, policy: Policy
    ) -> None:
        self._table = table
        self._names = names
        self._rows = rows
        self._scores = scores
        self._policy = policy

    def run(self, request: PodRequest) -> Placement | None:
        """The best node's placement, or the next best's when the containers do not fit together there."""
        seen: set[bytes] = set()
        while (position := self._best()) is not None:
            self._scores[position] = -np.inf
            signature = self._table.signature(int(self._rows[position]))
            if signature in seen:
                continue
            seen.add(signature)
            node = self._names[position]
            budget = SEARCH_BUDGET if len(seen) <= DEEP_TRIES else len(request.containers)
            placement = fit(request, node, self._table.cards(node), self._policy, budget)
            if placement is not None:
                return placement
        return None

    def _best(self) -> int | None:
        """Position of the best node left: highest score, then most used in all, then the smallest name."""
        top = self._scores.max(initial=-np.inf)
        if top == -np.inf:
            return None
        (equal,) = np.nonzero(self._scores == top)
        if len(equal) > 1 and self._policy is Policy.BINPACK:
            used = self._table.used[:, self._rows[equal]].sum(axis=0)
            equal = equal[used == used.max()]
        return min(equal.tolist(), key=self._names.__getitem__)


def _refusals(
    table: CardTable, asked: list[tuple[SliceRequest, Room]], names: Sequence[str], rows: Ints
) -> dict[str, Reason]:
    """The first cause for every node: that of the first container that has no room there."""
    chosen = np.full(table.used.shape[1], ORDER.index(Reason.TOGETHER))
    for wanted, room in reversed(asked):
        causes = classify(table, room, wanted.exclusive, wanted.cards)
        chosen = np.where(room.enough(room.fits), chosen, causes)
    codes = np.where(rows == UNKNOWN, ORDER.index(Reason.NO_AGENT), chosen[rows])
    return {name: ORDER[code] for name, code in zip(names, codes.tolist(), strict=True)}
