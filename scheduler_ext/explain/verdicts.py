"""What filter would say of each node, were it to answer for every one: room, a reason, or a quota.

Asking reserves nothing, learns nothing, counts nothing and wakes nobody. Nodes to which the pod went in vain count like
others: that they are passed over for a while is no reason against them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from aliquot.kube.objects import Node, Pod
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.placement.node_survey import survey
from aliquot.scheduler_ext.placement.reasons import Reason
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger


@dataclass(frozen=True)
class Judgement:
    """What is said of each node; every node is in one of the four.

    Attributes:
        fits: It has room.
        refused: It has none, and why.
        barred: A quota keeps the pod from it, and in which words.
        cards: Cards per container asked for, which the wording of a reason depends on.
        turns: It has room, which is left to a pod whose turn it is, and in which words.
    """

    fits: tuple[str, ...]
    refused: Mapping[str, Reason] = field(default_factory=dict)
    barred: Mapping[str, str] = field(default_factory=dict)
    cards: int = 1
    turns: Mapping[str, str] = field(default_factory=dict)

    def with_room(self, more: Sequence[str], order: Sequence[str]) -> "Judgement":
        """The same, but that these have room, too; those that have are in this order."""
        fits = {*self.fits, *more}
        return Judgement(
            tuple(name for name in order if name in fits),
            {name: why for name, why in self.refused.items() if name not in fits},
            {name: why for name, why in self.barred.items() if name not in fits},
            self.cards,
        )


@dataclass(frozen=True)
class Imagined:
    """Nodes that are not there yet: their cards, and the objects by which they were told of."""

    ledger: Ledger
    nodes: Sequence[Node]


class Judge:
    """Asks for filter."""

    def __init__(self, decide: Filter) -> None:
        """Know what filter knows.

        Args:
            decide: Who would answer.
        """
        self._filter = decide

    def judge(
        self, pod: Pod, request: PodRequest, names: Sequence[str], imagined: Imagined | None = None
    ) -> Judgement:
        """What each of these nodes is told; of imagined ones, as if all of them were there.

        A node has room, too, where only what is kept for pods of lower priority is in the way, as with filter. The
        ledger must be without any charge of this pod.
        """
        ours = self._filter
        told = self._look(pod, request, names, imagined)
        kept = ours.kept_for_lower(pod)
        if not kept or len(told.fits) == len(names):
            return told
        having = set(told.fits)
        others = [name for name in names if name not in having]
        with ours.waiting.trial(), ours.ledger.without(*kept):
            return told.with_room(self._look(pod, request, others, imagined).fits, names)

    def _look(
        self, pod: Pod, request: PodRequest, names: Sequence[str], imagined: Imagined | None
    ) -> Judgement:
        """The same, with all that is kept for others."""
        ours = self._filter
        barred = ours.barred(request, imagined.ledger.accounts if imagined else None)
        closed = ours.closed_to(pod, request, barred)
        closed = replace(closed, foreign=closed.foreign | self._foreign(pod, imagined))
        asked = closed.open_of(names)
        there = imagined.ledger.table if imagined else ()
        known = survey(ours.ledger.table, request, [name for name in asked if name not in there])
        fits, refused, cards = set(known.fits), dict(known.refused), known.cards
        if imagined:
            told = survey(imagined.ledger.table, request, [name for name in asked if name in there])
            fits.update(told.fits)
            refused.update(told.refused)
        refused.update(closed.reasons(names))
        turns = {name: why for name, why in ours.turns_against(pod, request).items() if name in fits}
        return Judgement(
            tuple(name for name in asked if name in fits and name not in turns),
            refused,
            {name: barred[name] for name in names if name in barred},
            cards,
            turns,
        )

    def _foreign(self, pod: Pod, imagined: Imagined | None) -> set[str]:
        agents = ForeignPlugins(self._filter.dialects)
        for node in imagined.nodes if imagined else ():
            agents.put_node(node)
        return agents.nodes_serving(pod)
