"""How much of what is free on a node is of no use to the pods that usually come.

What is free on a card counts as `value`: the free part of its memory and of its time, each weighed by how much of
it pods ask for (where nobody asks for cores, memory alone counts). For one kind of pod m, a node's fragment is

    everything free     when m finds no room there: CPU or memory of the node short, or too few cards with room
    what is free on cards without room for m                                                           otherwise,

which is the measure of *fragmentation gradient descent* (USENIX ATC'23), in two dimensions instead of one. Beyond
it we look ahead, with weight `AHEAD`: what the node's CPU and memory leave room for in all, not for the next pod of
m alone, limits how much is of use. Kinds that the node could not run even when empty say nothing about it and are
left out. To the sum over the kinds of pods, by weight, come two terms for all of them together:

    FLOW times what is free beyond what the node's CPU and memory suffice for, if pods go on asking for as much of
         them for each card as they do on average; the fuller the cluster is the less;
    FILL times what is free on cards beyond what it is worth (`residual_value`): what no set of slices will fill.

Beside that it is tabled what cards that nobody is on lack for pods of several cards (`card_sets`), by the weight of the
kinds that ask for as many, and `scoring` adds what the pod's own cards lack: so a pod of one card breaks no group where
another card would do as well, and one of several takes the group that it fits.

For each card the kinds that have room on it depend on few thresholds. They are tabled here, once per set of typical
pods, so that a card is one look-up; `scoring` adds up.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.request.pod_request import MAX_CARDS, SliceRequest
from aliquot.scheduler_ext.cards.card_sets import LACK, LATER, Sets
from aliquot.scheduler_ext.cards.card_table import Bools, CardKind, CardTable, Ints
from aliquot.scheduler_ext.placement.residual_value import STEPS, Amounts, Program
from aliquot.scheduler_ext.placement.scarcity_price import Prices
from aliquot.scheduler_ext.placement.workload_model import Typical
from aliquot.scheduler_ext.scoring import Array, Lent

Floats = npt.NDArray[np.float32]

AHEAD: Final = 0.1
"""Weight of the look ahead."""
FLOW: Final = 1.0
"""Weight of what CPU and memory do not suffice for, while all is free."""
NO_FLOW: Final = 0.1
"""Free part of all cards at which that weight has gone, with its square. A full cluster lives on what others leave, and
pods of many cards on nodes that become free: there, what suits CPU best spreads pods over too many nodes."""
FILL: Final = 2.0
"""Weight of what no slices will fill."""
_BLOCK: Final = 4
"""Kinds of pods that are looked at together."""
_NEVER: Final = (1 << 31) - 1
"""More cards than any node has."""


def flow_weight(table: CardTable) -> float:
    """How much it counts that CPU and memory do not suffice, by how much of all cards is free."""
    free = np.where(table.exists, np.maximum(table.usable - table.used, 0) / np.maximum(table.usable, 1), 0)
    part = float(free.sum() / max(np.count_nonzero(table.exists), 1))
    return FLOW * (max(part - NO_FLOW, 0.0) / (1 - NO_FLOW)) ** 2


class FragmentationMeasure:
    """The thresholds of a set of typical pods on the cards of a cluster."""

    def __init__(self, typical: Sequence[Typical], table: CardTable) -> None:
        """Work out the thresholds.

        Args:
            typical: The pods; at least one.
            table: The cluster, whose kinds of cards are looked up now: new kinds need a new measure.
        """
        slices = [t.wanted.slice for t in typical]
        self.weights = np.array([t.weight for t in typical], np.float32)
        self.cards = np.array([wanted.cards for wanted in slices], np.int32)
        self.kinds = tuple(table.kinds)
        self.blocks = -(-len(typical) // _BLOCK)
        self._several = _several(typical)
        self._counts = np.array([t.count for t in typical], np.float64)
        self._cpu = np.array([max(t.wanted.host.cpu_milli, 1) for t in typical], np.float32)
        self._mib = np.array([max(t.wanted.host.memory_mib, 1) for t in typical], np.float32)
        needs = np.array([[_need(wanted, kind) for wanted in slices] for kind in self.kinds], np.int64)
        times = np.array([[_time(wanted, kind) for wanted in slices] for kind in self.kinds], np.int64)
        models = table.models
        allowed = np.array([[w.only.allows_model(models[kind.model]) for w in slices] for kind in self.kinds])
        self._worths: Floats | None = None
        self.memory_weight = self._balance(needs, times)
        self._table_rooms(needs, times, allowed)

    def prepare(self) -> Iterator[None]:
        """Work out what every rest of each kind of card is worth, a little at each step.

        Kinds of cards that are asked for alike have one program.
        """
        if self._worths is not None:
            return
        demand, found = (self._counts * self.cards).tolist(), dict[bytes, Amounts]()
        rows = self._shares.round(4)
        for row in rows:
            if row.tobytes() not in found:
                program = Program.of(row.tolist(), demand)
                yield
                while program.improve():
                    yield
                found[row.tobytes()] = program.worths()
        self._worths = np.array([found[row.tobytes()] for row in rows], np.float32)

    def lend(self, prices: Prices, flow: float, sets: Sequence[Sets]) -> Lent:
        """The tables as `scoring` reads them, when they have been prepared.

        Args:
            prices: What a whole card of each model costs those who did not ask for it.
            flow: How much it counts that CPU and memory do not suffice.
            sets: Those of each shape of nodes.
        """
        lent, sizes = Lent("aq_workload"), self._sizes
        lent.lend(kinds=len(self.kinds), blocks=self.blocks, steps=STEPS, times=len(self._time_edges))
        lent.lend(weights=self._filled(self.weights), cards=self._filled(self.cards, _NEVER))
        lent.lend(cpu=self._filled(self._cpu), mib=self._filled(self._mib))
        lent.lend(per_cpu=self._filled(sizes / self._cpu), per_mib=self._filled(sizes / self._mib))
        lent.lend(starts=self._starts, edges=self._edges, time_edges=self._time_edges)
        lent.lend(rooms=self._rooms, useless=self._useless, worths=self._worths)
        lent.lend(prices=prices[[kind.model for kind in self.kinds]])
        lent.lend(cpu_each=self._cpu_each, mib_each=self._mib_each)
        lent.lend(wirings=self._wirings(sets), several=self._by_cards())
        lent.lend(memory_weight=self.memory_weight, flow=flow, ahead=AHEAD, fill=FILL)
        return lent

    def _wirings(self, sets: Sequence[Sets]) -> Lent:
        """What the cards of each shape lack."""
        lent = Lent("aq_wiring", len(sets))
        for number, one in enumerate(sets):
            if any(self._several) and not one.shape.uniform:
                lacks = sum(
                    weight * one.lacks(size) for weight, size in zip(self._several, LATER, strict=True)
                )
                whole = np.rint(LACK * np.array(lacks)).astype(np.int64)
                lent.lend(number, all=(1 << one.shape.cards) - 1, lacks=whole)
        return lent

    def _by_cards(self) -> Array:
        """The weight of the pods that need sets of the size that a pod of so many cards needs."""
        sizes = np.searchsorted(LATER, np.arange(MAX_CARDS + 1))
        return np.array([0.0, 0.0, *np.append(self._several, 0.0)[sizes[2:]]])

    def _filled(self, figures: Array, most: int = 0) -> Array:
        """With figures of kinds of pods that nobody asks for, up to a whole number of blocks."""
        more = self.blocks * _BLOCK - figures.shape[-1]
        return np.pad(figures, [(0, 0)] * (figures.ndim - 1) + [(0, more)], constant_values=most)

    def _balance(self, needs: Ints, times: Ints) -> float:
        """How much of what is asked for is memory: 1 when nobody asks for cores."""
        usable = np.array([max(kind.usable_mib, 1) for kind in self.kinds])[:, None]
        cores = np.array([max(kind.usable_cores, 1) for kind in self.kinds])[:, None]
        memory, time = np.minimum(needs / usable, 1), np.minimum(times / cores, 1)
        asked = (memory * self.weights * self.cards).sum()
        weight = float(asked / max(asked + (time * self.weights * self.cards).sum(), 1e-9))
        part = weight * memory + (1 - weight) * time
        self._sizes = (part * self.cards).astype(np.float32)
        self._tell_flow(self._sizes.astype(np.float64))
        self._shares = np.maximum(needs / usable, times / cores) if weight < 1 else needs / usable
        return weight

    def _tell_flow(self, sizes: npt.NDArray[np.float64]) -> None:
        """CPU and memory to be had for as much as one card of each kind."""
        asked = np.maximum(sizes @ self._counts, 1e-9)
        self._cpu_each = np.maximum(self._cpu @ self._counts / asked, 1e-9)
        self._mib_each = np.maximum(self._mib @ self._counts / asked, 1e-9)

    def _table_rooms(self, needs: Ints, times: Ints, allowed: Bools) -> None:
        """Table which pods have room on a card, for each step of free memory and cores; row 0: no room at all."""
        steps = [np.unique(np.append(row, 0)) for row in needs]
        self._starts, self._edges = np.cumsum([0, *map(len, steps)]), np.concatenate(steps)
        self._time_edges = np.unique(np.append(times, 0))
        rooms, useless = [np.zeros((1, self.blocks), np.uint8)], [np.ones(1, np.float32)]
        for kind, edges in enumerate(steps):
            enough = (edges[:, None] >= needs[kind]) & allowed[kind]
            timely = self._time_edges[:, None] >= times[kind]
            both = self._bits(enough)[:, None] & self._bits(timely)
            rooms.append(both.reshape(-1, self.blocks))
            # Not as a product of matrices: that would wake threads, which costs more than it saves.
            useless.append((1 - np.einsum("mk,tk->mt", enough * self.weights, timely)).ravel())
        self._rooms, self._useless = np.concatenate(rooms), np.concatenate(useless).astype(np.float32)

    def _bits(self, kinds: Bools) -> npt.NDArray[np.uint8]:
        """A byte for each block of kinds of pods; shape (rows, blocks)."""
        octets = np.packbits(kinds, axis=1, bitorder="little")
        halves = np.stack([octets & (1 << _BLOCK) - 1, octets >> _BLOCK], axis=2)
        return halves.reshape(len(kinds), -1)[:, : self.blocks]


def _several(typical: Sequence[Typical]) -> list[float]:
    """The weight of the pods that ask for sets of each size, or of more cards than the size before it has."""
    cards = [kind.wanted.slice.cards for kind in typical]
    return [
        sum(kind.weight for kind, asked in zip(typical, cards, strict=True) if fewer < asked <= size)
        for fewer, size in pairwise((1, *LATER))
    ]


def _need(wanted: SliceRequest, kind: CardKind) -> int:
    if wanted.memory_mib is not None:
        return wanted.memory_mib
    return max(1, kind.usable_mib * (wanted.memory_percent or 0) // 100)


def _time(wanted: SliceRequest, kind: CardKind) -> int:
    return kind.usable_cores if wanted.exclusive else wanted.cores
