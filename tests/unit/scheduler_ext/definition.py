"""What is measured, and how a pod is laid out by that, word for word: one card and one kind of pod after the other.

Nothing here is shared with the code that is tested but the state of single cards, the worth of rests and the order in
which containers take their turns. It is thousands of times slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import floor

import msgspec

from aliquot.request.host_resources import HostShare
from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.pod_request import ContainerKind, PodRequest, SliceRequest
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.card_sets import LACK
from aliquot.scheduler_ext.cards.card_state import CardState, Load
from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.cards.fit import turn
from aliquot.scheduler_ext.cards.topology import Shape
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation
from aliquot.scheduler_ext.placement.fragmentation import AHEAD, FILL
from aliquot.scheduler_ext.placement.pod_class import (
    BEFORE_ALL,
    BETWEEN_ALIKE,
    GRAIN,
    NOT_TOGETHER,
    OWN,
    QUANTUM,
)
from aliquot.scheduler_ext.placement.residual_value import STEPS, worths
from aliquot.scheduler_ext.placement.workload_model import Typical
from tests.unit.scheduler_ext.machines import lack, lacking, links_within, meets, rest, score

NEAR_A_STEP = 5e-4
"""Of a step: so near to the next one, the noise of sums may decide."""
ALIKE = 1e-5
"""Smaller differences between cards the noise of sums may turn round."""
FULL = 4096


def charged(card: CardState, wanted: SliceRequest) -> CardState:
    """A card that has taken a container's slice."""
    mib = card.share(wanted).memory_mib
    return msgspec.structs.replace(
        card,
        used_mib=card.used_mib + mib,
        burst_mib=card.burst_mib + (mib if wanted.burst else 0),
        used_cores=card.used_cores + wanted.cores,
        used_slots=card.used_slots + 1,
        holders=card.holders + wanted.exclusive,
    )


def has_room(card: CardState, wanted: SliceRequest) -> bool:
    """Whether a card can take a container's slice."""
    share = card.share(wanted)
    fits = Load().plus(share, wanted.burst).fits(card)
    return card.admits(wanted) and 0 < share.memory_mib <= card.usable_mib and fits


def fill(card: CardState) -> float:
    """How full a card's memory is."""
    return card.used_mib / max(card.usable_mib, 1)


@dataclass(frozen=True)
class Hosts:
    """CPU and memory of a node: in all, and what is left."""

    whole: HostShare
    left: HostShare

    @staticmethod
    def times(share: HostShare, kind: Typical) -> float:
        """How many pods of a kind they suffice for."""
        host = kind.wanted.host
        cpu, mib = max(share.cpu_milli, 0), max(share.memory_mib, 0)
        return min(cpu / max(host.cpu_milli, 1), mib / max(host.memory_mib, 1))

    def less(self, taken: HostShare) -> "Hosts":
        """When a pod has taken its part."""
        return Hosts(self.whole, self.left - taken)


@dataclass
class Measure:
    """What is free, and of use to whom, by some typical pods.

    Attributes:
        typical: The pods.
        memory_weight: How much of what they ask for is memory.
        flow: How much it counts that CPU and memory do not suffice.
        prices: Of a whole card, by model.
    """

    typical: Sequence[Typical]
    memory_weight: float
    flow: float
    prices: dict[str, float]
    _worths: dict[tuple[int, int], Sequence[float]] = field(default_factory=dict)

    @staticmethod
    def of(waste: ClusterFragmentation) -> "Measure":
        """The same measure."""
        prices = dict(zip(waste.table.models, waste.prices.tolist(), strict=False))
        return Measure(waste.typical, waste.fragmentation.memory_weight, waste.flow, prices)

    def fragment(self, cards: Sequence[CardState], empty: Sequence[CardState], hosts: Hosts) -> float:
        """Of a node with these cards; `empty` are the same with nobody on them."""
        free, total = sum(map(self.value, cards)), 0.0
        for kind in self.typical:
            wanted = kind.wanted.slice
            if sum(self._room(c, wanted) for c in empty) < wanted.cards or hosts.times(hosts.whole, kind) < 1:
                continue
            useful = [self.value(c) for c in cards if self.offered(c) and self._room(c, wanted)]
            limit = hosts.times(hosts.left, kind)
            if len(useful) < wanted.cards or limit < 1:
                total += kind.weight * free
                continue
            reach = min(sum(useful), limit * self._size(cards[0], wanted))
            total += kind.weight * (free - (1 - AHEAD) * sum(useful) - AHEAD * reach)
        total += self.flow * max(free - self._flows(cards, hosts.left), 0) if self.flow else 0
        return total + FILL * (free - sum(map(self.worth, cards)))

    def lost(self, card: CardState) -> float:
        """What is free on a card, by the weight of those who have no room there; and what stays unfilled."""
        useless = 1.0
        if self.offered(card):
            useless -= sum(k.weight for k in self.typical if self._room(card, k.wanted.slice))
        return self.value(card) * useless + FILL * (self.value(card) - self.worth(card))

    def lacking(self, shape: Shape, empty: set[int]) -> int:
        """What cards that nobody is on lack for pods of several cards, in whole parts of a card."""
        if not shape.cards or shape.uniform:
            return 0
        return round(LACK * sum(self.weight(size) * lacking(shape, empty, size) for size in (2, 4, 8)))

    def weight(self, size: int | None) -> float:
        """Of the pods that need sets of a size."""
        return sum(kind.weight for kind in self.typical if size and size_for(kind.wanted.slice.cards) == size)

    def value(self, card: CardState) -> float:
        """What is free on a card."""
        memory, time = self._free(card)
        return self.memory_weight * memory + (1 - self.memory_weight) * time if self.offered(card) else 0.0

    def worth(self, card: CardState) -> float:
        """How much of that will be filled."""
        if not self.offered(card):
            return 0.0
        key = (card.usable_mib, card.usable_cores)
        if key not in self._worths:
            shares = [self._share(card, kind.wanted.slice) for kind in self.typical]
            self._worths[key] = worths(
                shares, [kind.count * kind.wanted.slice.cards for kind in self.typical]
            ).tolist()
        memory, time = self._free(card)
        return self._worths[key][round((min(memory, time) if self.memory_weight < 1 else memory) * STEPS)]

    @staticmethod
    def offered(card: CardState) -> bool:
        """Whether a card takes another slice at all."""
        return card.healthy and not card.mig and not card.holders and card.used_slots < card.slots

    def _free(self, card: CardState) -> tuple[float, float]:
        memory = max(card.left_mib(), 0) / max(card.usable_mib, 1)
        return memory, max(card.usable_cores - card.used_cores, 0) / max(card.usable_cores, 1)

    def _room(self, card: CardState, wanted: SliceRequest) -> bool:
        mib, cores = self._amounts(card, wanted)
        left = card.left_mib() >= mib and card.usable_cores - card.used_cores >= cores
        return left and wanted.only.allows_model(card.model)

    @staticmethod
    def _amounts(card: CardState, wanted: SliceRequest) -> tuple[int, int]:
        mib = card.share(wanted).memory_mib
        return mib if wanted.memory_mib is not None else max(mib, 1), (
            card.usable_cores if wanted.exclusive else wanted.cores
        )

    def _parts(self, card: CardState, wanted: SliceRequest) -> tuple[float, float]:
        mib, cores = self._amounts(card, wanted)
        return mib / max(card.usable_mib, 1), cores / max(card.usable_cores, 1)

    def _share(self, card: CardState, wanted: SliceRequest) -> float:
        memory, time = self._parts(card, wanted)
        return max(memory, time) if self.memory_weight < 1 else memory

    def _size(self, card: CardState, wanted: SliceRequest) -> float:
        """How much of the cards one such pod takes, on nodes whose first card is of this kind."""
        memory, time = self._parts(card, wanted)
        part = self.memory_weight * min(memory, 1) + (1 - self.memory_weight) * min(time, 1)
        return part * wanted.cards

    def _flows(self, cards: Sequence[CardState], left: HostShare) -> float:
        """For how many cards' worth of slices CPU and memory suffice, on average."""
        asked = max(sum(k.count * self._size(cards[0], k.wanted.slice) for k in self.typical), 1e-9)
        cpu = sum(k.count * max(k.wanted.host.cpu_milli, 1) for k in self.typical) / asked
        mib = sum(k.count * max(k.wanted.host.memory_mib, 1) for k in self.typical) / asked
        return max(min(left.cpu_milli / cpu, left.memory_mib / mib), 0)


def size_for(cards: int) -> int | None:
    """The smallest of the sizes of sets with room for a pod of several cards."""
    return min((size for size in (2, 4, 8) if size >= cards > 1), default=None)


@dataclass
class Laid:
    """What a pod comes to on a node.

    Attributes:
        key: None where a container has no room even by itself.
        tie: Decides between equal keys.
        cards: The columns of each container, but of init containers and those that found none.
        firm: No step was so near that noise could decide.
    """

    key: float | None
    tie: float = 0.0
    cards: dict[int, tuple[int, ...]] = field(default_factory=dict)
    firm: bool = True


class Layer:
    """Lays one pod out on one node."""

    def __init__(self, measure: Measure | None, request: PodRequest, preference: Preference) -> None:
        """Lay out nothing yet.

        Args:
            measure: None where nobody knows what is typical.
            request: The pod.
            preference: Complete.
        """
        self._measure = measure
        self._request = request
        self._preference = preference
        self._firm = True

    def lay(self, cards: Sequence[CardState], hosts: Hosts) -> Laid:
        """The outcome on a node of these cards, in the order of their columns."""
        self._firm = True
        order = sorted(
            range(len(self._request.containers)), key=lambda n: turn(self._request.containers[n], n)
        )
        turns = [(n, w) for n in order if (w := self._request.containers[n].slice)]
        if any(sum(has_room(c, w) for c in cards) < w.cards for _, w in turns):
            return Laid(None)
        now, grade, price, lacked, found = list(cards), 0.0, 0.0, 0.0, {}
        for n, wanted in turns:
            chosen = self._choose(now, wanted)
            if chosen is None:
                continue
            grade += self._grade(cards, wanted, chosen) / len(turns)
            lacked += self._lack(cards, wanted, chosen)
            price += sum(self._price(cards[column], wanted) for column in chosen)
            for column in chosen:
                now[column] = charged(now[column], wanted)
            found[n] = tuple(chosen)
        together = len(found) == len(turns)
        if len(turns) == 1 and not together:
            return Laid(None)
        key, tie = self._mark(cards, now, hosts, price)
        key += self._linked() * grade + (0 if together else NOT_TOGETHER)
        counts = any(self._topology(wanted) is not Topology.NONE for _, wanted in turns)
        if counts and self._measure and self._preference.node is Policy.FRAG_AWARE:
            shape = cards[0].sets.shape
            lacked += self._measure.lacking(shape, self._empty(now))
            lacked -= self._measure.lacking(shape, self._empty(cards))
            key -= lacked / LACK / QUANTUM
        kinds = [c.kind for c in self._request.containers]
        shown = {n: columns for n, columns in found.items() if kinds[n] is not ContainerKind.INIT}
        return Laid(key, tie, shown, self._firm)

    def _choose(self, cards: Sequence[CardState], wanted: SliceRequest) -> Sequence[int] | None:
        """The cards of one container."""
        room = [column for column, card in enumerate(cards) if has_room(card, wanted)]
        if len(room) < wanted.cards:
            return None
        likes = {column: self._like(cards[column], wanted) for column in room}
        shape, topology = cards[0].sets.shape, self._topology(wanted)
        if wanted.cards > 1 and topology is not Topology.NONE:
            linked = shape.cards and not shape.uniform
            if linked or topology.demands or shape.groups(wanted.rdma):
                return self._set(cards, wanted, likes)
        key = {
            column: (cards[column].near(Rdma.NEAR) and wanted.rdma is Rdma.NEAR, likes[column])
            for column in room
        }
        self._doubt(likes)
        later = dict.fromkeys(room, 0.0)
        if wanted.cards == 1 and topology is not Topology.NONE and shape.cards and not shape.uniform:
            later = {column: rest(shape, self._empty(cards) - {column}) for column in room}
        ranked = sorted(room, key=lambda column: (key[column], later[column], -column), reverse=True)
        return sorted(ranked[: wanted.cards])

    def _set(
        self, cards: Sequence[CardState], wanted: SliceRequest, likes: dict[int, float]
    ) -> Sequence[int] | None:
        """The best linked set, of cards that are liked better than others all."""
        shape, topology = cards[0].sets.shape, self._topology(wanted)
        steps = dict.fromkeys(likes, (False, 0))
        if topology is Topology.BEST_EFFORT:
            near = wanted.rdma is Rdma.NEAR
            steps = {c: (near and cards[c].near(Rdma.NEAR), self._step(like)) for c, like in likes.items()}
        last = sorted(steps.values(), reverse=True)[wanted.cards - 1]
        must = {column for column, step in steps.items() if step > last}
        may = [column for column, step in sorted(steps.items()) if step >= last]
        sets = [
            chosen
            for chosen in combinations(may, wanted.cards)
            if must <= set(chosen)
            and all(self._meets(cards, two, topology) for two in combinations(chosen, 2))
        ]
        empty = self._empty(cards)
        return max(sets, key=lambda chosen: score(shape, chosen, empty, wanted.rdma), default=None)

    @staticmethod
    def _meets(cards: Sequence[CardState], two: Sequence[int], topology: Topology) -> bool:
        if not topology.demands:
            return True
        shape = cards[0].sets.shape
        return bool(shape.cards) and meets(links_within(shape, two)[0], topology)

    @staticmethod
    def _empty(cards: Sequence[CardState]) -> set[int]:
        return {
            n
            for n, card in enumerate(cards)
            if not (card.used_slots or card.used_mib or card.holders) and card.healthy and not card.mig
        }

    def _like(self, card: CardState, wanted: SliceRequest) -> float:
        """How good a card is: whole steps of what is gained, then how little is left."""
        if self._preference.card is Policy.SPREAD:
            return -fill(card)
        if self._preference.card is Policy.BINPACK or self._measure is None:
            return fill(card)
        gained = self._measure.lost(card) - self._measure.lost(charged(card, wanted))
        return 8 * self._step(gained) - self._measure.value(card)

    def _price(self, card: CardState, wanted: SliceRequest) -> float:
        """What a card costs those who did not ask for its model."""
        if self._measure is None or wanted.only.models or wanted.only.not_models:
            return 0.0
        share = card.share(wanted).memory_mib / max(card.usable_mib, 1)
        return share * self._measure.prices[card.model]

    def _mark(
        self, before: Sequence[CardState], after: Sequence[CardState], hosts: Hosts, price: float
    ) -> tuple[float, float]:
        """Key and tie, whatever the links."""
        if self._preference.node is Policy.SPREAD:
            return -self._node_fill(before), 0.0
        if self._preference.node is Policy.BINPACK or self._measure is None:
            first = min(
                (n for n, c in enumerate(self._request.containers) if c.slice),
                key=lambda n: turn(self._request.containers[n], n),
            )
            wanted = self._request.containers[first].slice
            fills = sorted((fill(card) for card in before if has_room(card, wanted)), reverse=True)
            return sum(fills[: wanted.cards]), sum(card.used_mib for card in before)
        measure = self._measure
        empty = [
            msgspec.structs.replace(
                c, used_mib=0, used_cores=0, burst_mib=0, extra_mib=0, healthy=True, mig=False, holders=0
            )
            for c in before
        ]
        gained = measure.fragment(before, empty, hosts)
        gained -= measure.fragment(after, empty, hosts.less(self._request.host))
        return float(self._step(gained - price)), -sum(map(measure.value, after))

    @staticmethod
    def _node_fill(cards: Sequence[CardState]) -> float:
        return sum(c.used_mib for c in cards) / max(sum(c.usable_mib for c in cards), 1)

    def _grade(self, cards: Sequence[CardState], wanted: SliceRequest, chosen: Sequence[int]) -> float:
        """How good the weakest link is."""
        shape = cards[0].sets.shape
        if wanted.cards == 1 or self._topology(wanted) is Topology.NONE or not shape.cards:
            return 0.0
        return min(link.worth for link in links_within(shape, chosen)) / FULL

    def _lack(self, cards: Sequence[CardState], wanted: SliceRequest, chosen: Sequence[int]) -> float:
        """What a container's own cards lack, as it counts, in whole parts of a card."""
        shape = cards[0].sets.shape
        if wanted.cards == 1 or self._topology(wanted) is Topology.NONE or not shape.cards:
            return 0
        weight = self._measure.weight(size_for(wanted.cards)) if self._measure else 0.0
        return (OWN + weight) * round(LACK * lack(shape, chosen))

    def _linked(self) -> float:
        slices = [c.slice for c in self._request.containers if c.slice]
        if any(self._topology(wanted) is Topology.BEST_LINKS for wanted in slices):
            return BEFORE_ALL
        return 1.0 if self._measure and self._preference.node is Policy.FRAG_AWARE else BETWEEN_ALIKE

    def _topology(self, wanted: SliceRequest) -> Topology:
        return wanted.topology or self._preference.topology or Topology.BEST_EFFORT

    def _step(self, amount: float) -> int:
        """Whole steps; takes note where noise could make a difference of one."""
        steps = amount / QUANTUM + GRAIN
        if abs(steps - round(steps)) < NEAR_A_STEP:
            self._firm = False
        return floor(steps)

    def _doubt(self, likes: dict[int, float]) -> None:
        """Take note where two cards are liked alike but for noise."""
        for one, other in combinations(likes.values(), 2):
            if 0 < abs(one - other) < ALIKE:
                self._firm = False


def node_of(table: CardTable, name: str) -> tuple[list[CardState], Hosts]:
    """A node's cards and host as the table has them."""
    row = int(table.rows_of([name])[0])
    return table.cards(name), Hosts(
        HostShare(int(table.whole_cpu[row]), int(table.whole_mib[row])),
        HostShare(int(table.host_cpu[row]), int(table.host_mib[row])),
    )
