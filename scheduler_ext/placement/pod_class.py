"""A class of pods as `scoring` reads it: what pods of one template have in common.

That is their slices, their CPU and memory, and what they prefer.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from aliquot.request.placement_policy import Policy, Preference
from aliquot.request.pod_request import ContainerKind, PodRequest, SliceRequest
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.card_sets import LACK
from aliquot.scheduler_ext.cards.card_table import PLENTY, CardTable, Ints
from aliquot.scheduler_ext.cards.fit import turn
from aliquot.scheduler_ext.cards.linked_cards import HINT, NEAR, Linker
from aliquot.scheduler_ext.scoring import Array, Lent, lib

QUANTUM: Final = 0.03
"""Differences below this part of a card are none; what is left on the node, or on the card, then decides."""
GRAIN: Final = 1e-3
"""Of a quantum: keeps the noise of sums from making a difference."""
OWN: Final = 0.25
"""Weight of what a pod's own cards lack, beside what it spares others by taking them. At 0.75 pods of four cards would
break into nodes of eight rather than take two halves of groups, at 0 they would leave good links to each other."""
BETWEEN_ALIKE: Final = 1e-10
"""Weight of links where nodes' keys have no steps."""
BEFORE_ALL: Final = 1e6
"""Weight of links for those to whom they are worth more than what nodes waste."""
NOT_TOGETHER: Final = -1e9
"""Added to the key of a node on which the containers, laid out one by one, do not fit together."""
_POLICIES: Final = {
    Policy.FRAG_AWARE: lib.AQ_FRAG_AWARE,
    Policy.BINPACK: lib.AQ_BINPACK,
    Policy.SPREAD: lib.AQ_SPREAD,
}


class PodClass:
    """What pods of one template have in common.

    Attributes:
        request: One of the pods.
        preference: Of nodes and cards.
        cards: How many all containers ask for together.
    """

    def __init__(self, table: CardTable, request: PodRequest, preference: Preference) -> None:
        self.request = request
        self.preference = preference
        order = sorted(range(len(request.containers)), key=lambda n: turn(request.containers[n], n))
        self._turns = [(n, c.slice) for n in order if (c := request.containers[n]).slice is not None]
        self._linkers = [
            Linker(wanted, wanted.topology or preference.topology or Topology.BEST_EFFORT)
            for _, wanted in self._turns
        ]
        self.cards = sum(wanted.cards for _, wanted in self._turns)
        self._table = table
        self._named: dict[int, Array] = {}
        self._stepped = False
        self._lent: Lent | None = None
        self._known = (0, 0, 0)

    def begin(self, *, stepped: bool) -> None:
        """Know nothing of the names of cards; to be called again when the table has got another shape.

        Args:
            stepped: Whether keys are whole steps where the policy says so: there are typical pods.
        """
        self._stepped, self._lent = stepped, None
        self._named = {
            number: np.zeros(self._table.exists.shape, np.bool_)
            for number, (_, wanted) in enumerate(self._turns)
            if wanted.only.uuids or wanted.only.not_uuids
        }

    def look(self, rows: Ints) -> None:
        """Look at the names of some rows' cards, where those make a difference."""
        for number, named in self._named.items():
            named[:, rows] = self._table.named(self._turns[number][1].only, rows)

    def read(self, columns: Array) -> dict[int, tuple[int, ...]]:
        """The cards of each container, by its position, but of init containers and of those that found none."""
        found, start = {}, 0
        for position, wanted in self._turns:
            part = columns[start : start + wanted.cards].tolist()
            start += wanted.cards
            if self.request.containers[position].kind is not ContainerKind.INIT and min(part) >= 0:
                found[position] = tuple(part)
        return found

    @property
    def lent(self) -> Lent:
        """The class; made anew where the cluster has got cards or links that it had not."""
        known = self._table.numbering
        if self._lent is None or known != self._known:
            self._lent, self._known = self._describe(), known
        return self._lent

    def _describe(self) -> Lent:
        turns = Lent("aq_turn", len(self._turns))
        for number, (_, wanted) in enumerate(self._turns):
            turns.lend(number, **_asked(wanted), **self._told(number, wanted))
        lent, host = Lent("aq_class"), self.request.host
        lent.lend(turns=len(self._turns), turn=turns)
        lent.lend(host_cpu=min(host.cpu_milli, PLENTY), host_mib=min(host.memory_mib, PLENTY))
        lent.lend(host_slices=min(host.slices, PLENTY))
        lent.lend(node=_policy(self.preference.node), card=_policy(self.preference.card))
        lent.lend(
            quantum=QUANTUM, grain=GRAIN, hint=HINT, near=NEAR, linked=self._linked(), apart=NOT_TOGETHER
        )
        lent.lend(lacking=self._lacking(), own=OWN)
        return lent

    def _told(self, number: int, wanted: SliceRequest) -> Mapping[str, object]:
        """What depends on the cluster: which cards are allowed, and how they are linked."""
        table, linker = self._table, self._linkers[number]
        allowed = [wanted.only.allows_model(table.models[kind.model]) for kind in table.kinds]
        named = {"named": self._named[number]} if number in self._named else {}
        liked = linker.topology is Topology.BEST_EFFORT
        return {"kinds": np.array(allowed), "links": linker.lend(table.sets), "liked": liked, **named}

    def _linked(self) -> float:
        """Weight of links."""
        if any(linker.topology is Topology.BEST_LINKS for linker in self._linkers):
            return BEFORE_ALL
        return 1.0 if self._stepped and self.preference.node is Policy.FRAG_AWARE else BETWEEN_ALIKE

    def _lacking(self) -> float:
        """Weight of what free cards lack; nothing to those to whom links make no difference."""
        indifferent = all(linker.topology is Topology.NONE for linker in self._linkers)
        return 0.0 if indifferent else 1 / (LACK * QUANTUM)


def _asked(wanted: SliceRequest) -> Mapping[str, object]:
    """What a container asks for of each card."""
    return {
        "cards": wanted.cards,
        "mib": -1 if wanted.memory_mib is None else min(wanted.memory_mib, PLENTY),
        "percent": wanted.memory_percent or 0,
        "cores": wanted.cores,
        "exclusive": wanted.exclusive,
        "burst": wanted.burst,
        "free": bool(wanted.only.models or wanted.only.not_models),
        "near_only": wanted.rdma.demands,
        "near_first": wanted.rdma is Rdma.NEAR,
    }


def _policy(policy: Policy | None) -> int:
    return int(_POLICIES[policy or Policy.BINPACK])
