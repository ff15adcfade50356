"""Preemption within a quota: which pods of the quota leave so that it lets in another one, of higher priority.

A pod that its own quota bars is helped by no card. What helps is that pods of the quota leave, on whatever node they
are: the lowest priority first, and none that could stay. Those on the node where the pod is to go free its cards, too.
Where a quota bars the pod only once those have left whose cards it needs, because that opens their guarantees, others
leave besides.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.preemption.candidates import Candidates, Departure, Objection, Rank
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.running_pods import RunningPod

MOST_ASKED: Final = 64
"""Pods of a quota that are looked at for one node; where so many are not enough, nobody leaves."""
MOST_INSTEAD: Final = 8
"""Of these, pods that may leave only in place of more willing ones, and are asked to."""


@dataclass(frozen=True)
class QuotaPreemption:
    """The question for one pod and one node.

    Attributes:
        candidates: Who may be asked to leave.
        request: What the pod asks for.
        node: The node.
        borrowing: What quotas say now.
        may_go: Whether a pod may be evicted at all.
        objection: Which of some pods may not be evicted together.
    """

    candidates: Candidates
    request: PodRequest
    node: str
    borrowing: Borrowing
    may_go: Callable[[RunningPod], bool]
    objection: Objection

    def departure(self, pods: Iterable[RunningPod], gone: Collection[str]) -> Departure | None:
        """Who leaves: of these pods so that the quota lets this one in, of all for its cards.

        None where nobody's leaving helps. `gone`: the UIDs of those that leave in any case.
        """
        barred = bool(self.borrowing.barred(self.request, self.node))
        first = [] if barred else self._for_cards(gone)
        victims = self._enough(pods, first) if barred or first else []
        if not victims:
            return None
        uids = {*gone, *(pod.uid for pod in victims)}
        found = self.candidates.departure(
            self.request,
            self.node,
            self.candidates.borrowing(uids, self.borrowing.own),
            self.may_go,
            gone=uids,
            within_budgets=True,
            objection=lambda more: self.objection([*victims, *more]),
        )
        return None if found is None else self._with(found, victims, gone)

    def rather_own(self, pods: Sequence[RunningPod], gone: Collection[str]) -> Departure | None:
        """The same, where it can be of those of these pods that are of the pod's own quota."""
        together = self.borrowing.together(self.request.namespace)
        own = [pod for pod in pods if pod.namespace in together]
        return self.departure(own, gone) or self.departure(pods, gone)

    def _for_cards(self, gone: Collection[str]) -> list[RunningPod]:
        """Who would have to leave the node for its cards, whatever others are guaranteed then."""
        found = self.candidates.departure(
            self.request,
            self.node,
            self.candidates.borrowing(gone, own=self.node),
            self.may_go,
            gone=gone,
            within_budgets=True,
            objection=self.objection,
        )
        return [] if found is None else [pod for pod in found.pods if pod.uid not in gone]

    def _enough(self, pods: Iterable[RunningPod], first: Sequence[RunningPod]) -> list[RunningPod]:
        """The first, and those of the others that have to leave so that the quota lets the pod in.

        Nobody where all are not enough. The pods yet to be asked, then those to be asked in place of others, and then
        those to be kept, decrease by one with each question.
        """
        others = [pod for pod in pods if pod not in first and self._may_be_asked(pod)]
        others = sorted(others, key=self._reluctance)[:MOST_ASKED]
        chosen, spared = list(first), list[RunningPod]()
        for pod in others:
            if self.objection([*chosen, pod]):
                spared.append(pod)
                continue
            chosen.append(pod)
            if self._lets_in(chosen):
                return self._needed(chosen, chosen[len(first) : -1])
        each = (self._instead(pod, others, first) for pod in spared[:MOST_INSTEAD])
        return next(filter(None, each), [])

    def _instead(
        self, pod: RunningPod, others: Iterable[RunningPod], first: Sequence[RunningPod]
    ) -> list[RunningPod]:
        """The first, a pod that would have to stay beside others, and those of the others that may leave beside it.

        Of a quota that has borrowed one pod may go with more than was borrowed, and it need not be the most willing.
        """
        chosen = [*first, pod]
        for one in others:
            if one is not pod and not self.objection([*chosen, one]):
                chosen.append(one)
        allowed = not self.objection(chosen) and self._lets_in(chosen)
        return self._needed(chosen, chosen[len(first) :]) if allowed else []

    def _needed(self, chosen: Collection[RunningPod], doubtful: Iterable[RunningPod]) -> list[RunningPod]:
        """The same without those of the doubtful that need not leave, the least willing first."""
        needed = list(chosen)
        for pod in reversed(list(doubtful)):
            others = [one for one in needed if one is not pod]
            if self._lets_in(others):
                needed = others
        return needed

    def _lets_in(self, gone: Iterable[RunningPod]) -> bool:
        return not self.borrowing.barred(self.request, self.node, gone)

    def _may_be_asked(self, pod: RunningPod) -> bool:
        candidates = self.candidates
        return (
            self.may_go(pod)
            and not pod.deleted
            and candidates.settled(pod, self.borrowing)
            and not candidates.budgets.spares(pod)
        )

    def _reluctance(self, pod: RunningPod) -> tuple[Rank, bool, float]:
        """How gladly a pod goes: of equals those on the node first, then the youngest."""
        entry = self.candidates.ledger.entry(pod.uid)
        elsewhere = entry is None or entry.node != self.node
        return self.candidates.rank(pod, (), self.borrowing), elsewhere, -pod.started

    def _with(
        self, found: Departure, victims: Sequence[RunningPod], gone: Collection[str]
    ) -> Departure | None:
        """A departure from the node, and who leaves other nodes for the quota's sake, as far as that is needed yet.

        They leave in the order in which they were judged: of a quota that has borrowed the last one may go with more
        than was borrowed, and nobody after it. None where all of them together violate a disruption budget.
        """
        chosen, there = {pod.uid for pod in victims}, {pod.uid for pod in found.pods}
        elsewhere = [pod for pod in victims if pod.uid not in there]
        pods = self._needed([*victims, *(pod for pod in found.pods if pod.uid not in chosen)], elsewhere)
        if self._violate(pods, gone):
            return None
        reluctance = tuple((self.candidates.rank(pod, (), self.borrowing), -pod.started) for pod in pods)
        return replace(found, pods=tuple(pods), reluctance=reluctance)

    def _violate(self, pods: Iterable[RunningPod], gone: Collection[str]) -> bool:
        """Whether any of these violates a disruption budget beside those that leave in any case, and the others."""
        told = sorted(pods, key=lambda pod: pod.uid not in gone)
        beside = self.candidates.budgets.beside
        return any(beside(told[:number], pod) for number, pod in enumerate(told) if pod.uid not in gone)
