"""Answers preempt: whom to evict from which node, so that a pod of higher priority finds its cards there.

kube-scheduler names the nodes and, for what it counts itself, the victims; it knows nothing of cards, so its lists may
be empty. Whoever it wants gone goes; to them are added the fewest others that free the cards. A node where nothing
helps is left out. So is one where somebody would have to go who is spared elsewhere: kube-scheduler chooses among the
nodes that are left by budgets, priorities and numbers, and cannot tell burst from guaranteed memory nor who borrows.

Nobody is to be evicted while a node has room as soon as those have gone that are leaving already: the answer then is
empty, and that room is held for the pod. So the next pod cannot count on it.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aliquot.kube.objects import Pod
from aliquot.request.pod_request import PodRequest, RequestError
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.handlers.forgotten_reservations import release_forgotten
from aliquot.scheduler_ext.kube_scheduler.wire import MetaPod, MetaVictims, PreemptArgs, PreemptResult
from aliquot.scheduler_ext.preemption.candidates import WORST, Candidates, Class, Departure
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.preemption.quota_preemption import QuotaPreemption
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.running_pods import RunningPod

MOST_SECONDS: Final = 1.0
"""For the search of one call; kube-scheduler and all other callers wait meanwhile."""


@dataclass(frozen=True)
class Preemption:
    """Finds victims for one pod at a time.

    Attributes:
        decide: What filter would say of quotas and of nodes that another device plugin serves.
        candidates: Who may be asked to leave.
        nominations: Is told who is about to leave for whom.
        enabled: Whether anybody is evicted for pods with slices.
        timer: Seconds, by which a search is broken off; what it has found until then is answered.
    """

    decide: Filter
    candidates: Candidates
    nominations: Nominations
    enabled: bool = True
    timer: Callable[[], float] = time.monotonic

    def answer(self, args: PreemptArgs) -> PreemptResult:
        """Answer one call; nobody has left by that yet, and the room is held once kube-scheduler has chosen a node."""
        given = args.victims()
        try:
            request = self.decide.request_of(args.Pod)
        except RequestError:
            return PreemptResult()
        if not request.wants_slices:
            return PreemptResult({node: _written(uids, 0) for node, uids in given.items() if uids})
        if not self.enabled:
            return PreemptResult()
        if self.decide.gangs is not None and self.decide.gangs.goes_together(args.Pod):
            return PreemptResult()  # room for one would be of no use without room for the others
        granted = self.nominations.granted(request.uid)
        if granted:  # others leave that node for it already
            given = {node: uids for node, uids in given.items() if node == granted}
        release_forgotten(self.decide, self.nominations, request, given)
        with self.decide.waiting.trial(), self.nominations.aside(args.Pod.spec.priority or 0):
            departures = self.departures(args.Pod, request, given)
        free = next((d.node for d in departures if not d.pods and not given[d.node]), None)
        if free is not None:
            self.nominations.claim(args.Pod, request)
            self.nominations.expect(request.uid, free)
            return PreemptResult()
        mildest = min((departure.worst for departure in departures), default=None)
        answer = {d.node: _meta(d, given[d.node]) for d in departures if d.worst == mildest}
        self.nominations.claim(args.Pod, request, {node: victims.uids for node, victims in answer.items()})
        return PreemptResult(answer)

    def departures(
        self, pod: Pod, request: PodRequest, given: Mapping[str, tuple[str, ...]]
    ) -> list[Departure]:
        """Who would have to leave each node, where that helps; a node that is worse than one before may be missing.

        Args:
            pod: Whom room is made for.
            request: What it asks for.
            given: The nodes, each with the UIDs of those that leave in any case.
        """
        shut = self.decide.shut_to(pod)
        borrowing = self.candidates.borrowing(own=self.nominations.kept_on(request.uid))
        table = self.candidates.ledger.table
        found, limit, cards = list[Departure](), WORST, table.cards_of(given)
        end = self.timer() + MOST_SECONDS
        for node, uids in given.items():
            if self.timer() > end:
                self.candidates.cut()
                break
            if node in shut or node not in table:
                continue
            departure = self._on(
                node, uids, pod.spec.priority or 0, request, borrowing, limit=limit, cards=cards.get(node)
            )
            if departure is not None:
                found.append(departure)
                limit = min(limit, departure.worst)
        return found

    def _on(
        self,
        node: str,
        uids: tuple[str, ...],
        priority: int,
        request: PodRequest,
        borrowing: Borrowing,
        *,
        limit: Class,
        cards: Sequence[CardState] | None,
    ) -> Departure | None:
        running_pods, candidates = self.candidates.running_pods, self.candidates
        leaving = [pod for pod in map(running_pods.get, uids) if pod is not None]
        if any(pod.priority >= priority or not candidates.settled(pod, borrowing) for pod in leaving):
            return None
        gone, spared = frozenset(uids), candidates.objection(request, node, borrowing)

        def objection(pods: Sequence[RunningPod]) -> Collection[str]:
            return spared([*leaving, *pods])

        def lower(pod: RunningPod) -> bool:
            return pod.priority < priority

        if objection(()):
            return None
        found = candidates.departure(
            request,
            node,
            borrowing,
            lower,
            gone=gone,
            limit=limit,
            cards=cards,
            objection=objection,
        )
        if found is not None or not uids or borrowing.sure(request, node):
            return found
        borrowing = candidates.borrowing(gone, borrowing.own)
        return self._for_quota(QuotaPreemption(candidates, request, node, borrowing, lower, objection), gone)

    def _for_quota(self, within: QuotaPreemption, gone: frozenset[str]) -> Departure | None:
        """The same where quotas bar the pod, however many cards are free: more of the node's pods leave for that."""
        there = [pod for pod, _ in self.candidates.running_pods.on(within.node) if within.may_go(pod)]
        namespaces = {pod.namespace for pod in there}
        helpful = within.borrowing.helpful(within.request.namespace, namespaces)
        return within.rather_own([pod for pod in there if pod.namespace in helpful], gone)


def _meta(departure: Departure, given: tuple[str, ...]) -> MetaVictims:
    """Those that were given, and those that are added, each once, the highest priority first.

    kube-scheduler compares nodes by the priority of the first. Pods without cards, whose priority is not known here,
    stay before those that kube-scheduler named after them.
    """
    ranks: dict[str, float] = {pod.uid: pod.priority for pod in departure.pods}
    floor = -math.inf
    for uid in reversed(given):
        floor = max(floor, ranks.setdefault(uid, floor))
    uids = dict.fromkeys([*given, *(pod.uid for pod in departure.pods)])
    return _written(tuple(sorted(uids, key=ranks.__getitem__, reverse=True)), departure.violations)


def _written(uids: tuple[str, ...], violations: int) -> MetaVictims:
    return MetaVictims(tuple(map(MetaPod, uids)), violations)
