"""Whose departure would let a pod onto a node: who may be asked to leave, and in which order.

Least of all a pod whose departure violates a disruption budget; then rather burst than guaranteed memory, rather a
namespace beyond its guarantee than one within, rather low than high priority, rather few than many, rather young than
old. A pod that has not run for as long as it may be left alone is not asked at all. Pods that are leaving anyhow
count as gone.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from aliquot.placement import Placement
from aliquot.policy import DEFAULT, Policy
from aliquot.request import PodRequest
from scheduler_ext.borrowing import Borrowing
from scheduler_ext.cards import CardState
from scheduler_ext.disruption import Budgets
from scheduler_ext.ledger import Entry, Ledger
from scheduler_ext.quotas import Quotas
from scheduler_ext.residents import Resident, Residents
from scheduler_ext.victims import Leaver, least, place_after, relieved

Class = tuple[bool, bool, bool]
"""Of a pod or a set: whether it violates a budget, has guaranteed memory, is within its guarantee. False goes first."""

WORST: Class = (True, True, True)
CARD_POLICY = DEFAULT.card or Policy.BINPACK


@dataclass(frozen=True)
class Departure:
    """Who leaves a node for a pod.

    Attributes:
        node: The node.
        pods: Who is made to leave, those first that go most gladly.
        violations: How many of them leave beyond what a disruption budget allows.
        worst: The class of the one that goes least gladly; all False for nobody.
    """

    node: str
    pods: tuple[Resident, ...]
    violations: int = 0
    worst: Class = (False, False, False)


@dataclass
class Evictable:
    """Finds whom to evict.

    Attributes:
        ledger: Who holds what.
        residents: Who they are.
        budgets: The disruption budgets.
        quotas: Who is beyond their guarantee.
        min_run_seconds: How long any pod is left alone after its start.
        clock: Seconds since 1970.
    """

    ledger: Ledger
    residents: Residents
    budgets: Budgets
    quotas: Quotas
    min_run_seconds: float = 0.0
    clock: Callable[[], float] = time.time
    card_policy: Policy = field(default=CARD_POLICY)

    def borrowing(self) -> Borrowing:
        """Who is beyond their guarantee, as of now: good for one decision."""
        return Borrowing(self.quotas)

    def kept(self, uid: str) -> bool:
        """Whether a disruption budget lets nobody evict this pod now."""
        pod = self.residents.get(uid)
        return pod is not None and self.budgets.spares(pod)

    def settled(self, pod: Resident, borrowing: Borrowing) -> bool:
        """Whether a pod has run for as long as it is left alone."""
        spared = max(self.min_run_seconds, borrowing.min_run_seconds(pod.namespace))
        return not spared or self.clock() - pod.started >= spared

    def departure(
        self,
        request: PodRequest,
        node: str,
        borrowing: Borrowing,
        may_go: Callable[[Resident], bool],
        *,
        gone: Collection[str] = (),
        within_budgets: bool = False,
        limit: Class = WORST,
        cards: Sequence[CardState] | None = None,
    ) -> Departure | None:
        """Who would have to leave a node for a pod; None where nobody's leaving helps.

        Args:
            request: What the pod asks for.
            node: The node.
            borrowing: Who is beyond their guarantee.
            may_go: Whether a pod may be evicted at all.
            gone: The UIDs of pods that leave in any case, because somebody else has said so.
            within_budgets: Rather nobody than one whose departure violates a budget.
            limit: Rather nobody than one of a worse class.
            cards: The node's cards as they are, where the caller has read them.
        """
        there = self.residents.on(node)
        spared = self.min_run_seconds or borrowing.spares_anybody
        away = [_leaver(pod, entry) for pod, entry in there if pod.leaving or pod.uid in gone]
        if cards is None or self.ledger.entry(request.uid) is not None:
            cards = self.ledger.cards_without(node, request.uid)
        evicted = [pod for pod, _ in there if pod.uid in gone]
        left = {
            pod.uid: (pod, entry)
            for pod, entry in there
            if not pod.leaving
            and pod.uid not in gone
            and may_go(pod)
            and (not spared or self.settled(pod, borrowing))
        }
        limit = min(limit, (False, True, True)) if within_budgets else limit
        search = _Search(self, request, node, relieved(cards, away), borrowing, evicted, left, limit)
        return search.run()

    def place(
        self,
        request: PodRequest,
        node: str,
        may_go: Callable[[Resident], bool],
        gone: Collection[str],
    ) -> Placement | None:
        """Where a pod goes once those have left that are leaving, and if that is not enough whoever else has to."""
        there = list(self.residents.on(node))
        away = [_leaver(pod, entry) for pod, entry in there if pod.leaving or pod.uid in gone]
        cards = self.ledger.cards_without(node, request.uid)
        placement = place_after(request, node, cards, away, self.card_policy)
        if placement is not None:
            return placement
        departure = self.departure(request, node, self.borrowing(), may_go, gone=gone)
        if departure is None:
            return None
        uids = {pod.uid for pod in departure.pods}
        away += [_leaver(pod, entry) for pod, entry in there if pod.uid in uids - set(gone)]
        return place_after(request, node, cards, away, self.card_policy)


@dataclass
class _Search:
    """One node's question."""

    evictable: Evictable
    request: PodRequest
    node: str
    cards: list[CardState]
    borrowing: Borrowing
    evicted: list[Resident]
    left: dict[str, tuple[Resident, Entry]]
    limit: Class

    def run(self) -> Departure | None:
        """The departure; looked for once more where the first found violates a budget by its number."""
        if self.evicted:
            beyond = {uid for uid, (pod, _) in self.left.items() if self._violates([], pod)}
        else:
            spares, strict = self.evictable.budgets.spares, self.evictable.budgets.strict
            beyond = {uid for uid, (pod, _) in self.left.items() if pod.namespace in strict and spares(pod)}
        while (found := self._least(beyond)) is not None:
            over = self.evictable.budgets.violated_by([*self.evicted, *found])
            fresh = self._beyond(found, over) - beyond
            if not fresh:
                return self._departure(found, over)
            beyond |= fresh
        return None

    def _violates(self, leaving: Iterable[Resident], pod: Resident) -> bool:
        return self.evictable.budgets.beside([*self.evicted, *leaving], pod)

    def _beyond(self, found: list[Resident], over: set[str]) -> set[str]:
        """Who violates a budget beside these: the least willing of them, and others that could stand in for it."""
        if not over:
            return set()
        kept = [pod for pod in found if pod.uid not in over]
        others = (pod for pod, _ in self.left.values() if pod not in kept)
        return {pod.uid for pod in others if self._violates(kept, pod)}

    def _least(self, beyond: set[str]) -> list[Resident] | None:
        """The least set, where these violate a budget."""
        over, limit = self.borrowing.over, self.limit
        leavers = [
            Leaver(uid, entry.placement.charges(), (*worth, pod.priority), pod.started)
            for uid, (pod, entry) in self.left.items()
            if (worth := (uid in beyond, not pod.burst, not over[pod.namespace])) <= limit
        ]
        policy = self.evictable.card_policy
        found = least(self.request, self.node, self.cards, leavers, policy)
        return None if found is None else [self.left[leaver.uid][0] for leaver in found]

    def _departure(self, found: list[Resident], over: set[str]) -> Departure:
        """What is answered, where these violate a budget; those that leave in any case are in it."""
        pods, borrowing = [*self.evicted, *found], self.borrowing
        classes = ((pod.uid in over, not pod.burst, not borrowing.over[pod.namespace]) for pod in pods)
        worst = max(classes, default=(False, False, False))
        return Departure(self.node, tuple(pods), len(over), worst)


def _leaver(pod: Resident, entry: Entry) -> Leaver:
    return Leaver(pod.uid, entry.charges, 0, pod.started)
