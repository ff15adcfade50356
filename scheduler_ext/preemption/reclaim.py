"""Whom a pod within its guarantee may have evicted when it waits for room: those who run on what was borrowed of it.

A pod that has borrowed in part, as one of 8 cards where 6 are guaranteed, goes where no pods help that have borrowed
in whole. Only where the pod's quota says `reclaim: true`. Where what is free is kept for quotas that do not reclaim,
borrowers leave other nodes, too. None is evicted whose disruption budget allows no more.
Where the room was lost all the same, because a card failed or a pod does not end, others are evicted after a while.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aliquot.request.amounts import asked
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.preemption.candidates import Candidates, Departure
from aliquot.scheduler_ext.preemption.eviction_plans import RECLAIM, Evictee
from aliquot.scheduler_ext.preemption.quota_preemption import QuotaPreemption
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.pending_pods import PendingPod
from aliquot.scheduler_ext.state.running_pods import RunningPod

EVICTIONS_PER_MINUTE: Final = 10
AGAIN_SECONDS: Final = 30.0
"""Before others are evicted for a pod whose room was lost, the first time."""


@dataclass(frozen=True)
class Reclaim:
    """The ground that an amount is guaranteed to the waiting pod's namespace.

    Attributes:
        candidates: Who may be asked to leave.
        per_minute: How many pods are evicted at most in any minute.
    """

    candidates: Candidates
    per_minute: int | None = EVICTIONS_PER_MINUTE
    name: str = RECLAIM
    again_after: float = AGAIN_SECONDS

    def holds_for(self, waiter: PendingPod, borrowing: Borrowing) -> bool:
        """Whether a pod is owed anything."""
        request = waiter.request
        return borrowing.reclaims and any(
            borrowing.owed(request.namespace, amounts, request.uid) for amounts in self._wanted(request)
        )

    def might_help(self, _waiter: PendingPod, _borrowing: Borrowing, /) -> bool:
        """Always: who has borrowed what is the search's to find."""
        return True

    def _wanted(self, request: PodRequest) -> list[Any]:
        """What a pod would take on each kind of node."""
        kinds = self.candidates.quotas.accounts.kinds()
        return [asked(request, max(mib for _, mib in kind)) for kind in kinds]

    def departure(
        self,
        waiter: PendingPod,
        node: str,
        borrowing: Borrowing,
        *,
        planned: Collection[str] | None = None,
        gone: Collection[str] = (),
    ) -> Departure | None:
        """Who would leave a node, all of them borrowed and of those planned, if any are; None where nobody helps."""
        request = waiter.request
        cards = self.candidates.ledger.table.cards(node)
        if not cards:
            return None
        wanted = asked(request, max(card.usable_mib for card in cards))
        owed = borrowing.owed(request.namespace, wanted, request.uid)
        if not owed:
            return None

        def departure(*, in_part: bool) -> Departure | None:
            def may_go(pod: RunningPod) -> bool:
                chosen = planned is None or pod.uid in planned
                return chosen and borrowing.may_go([pod], request.namespace, owed, in_part=in_part)

            def too_many(pods: Sequence[RunningPod]) -> Collection[str]:
                """The one that goes least willingly, where all of them together are not borrowed."""
                fine = borrowing.may_go(pods, request.namespace, owed, in_part=in_part)
                return () if fine else (pods[-1].uid,)

            found = self.candidates.departure(
                request, node, borrowing, may_go, gone=gone, within_budgets=True, objection=too_many
            )
            if found is not None or borrowing.sure(request, node):
                return found
            within = QuotaPreemption(self.candidates, request, node, borrowing, may_go, too_many)
            return within.departure(self._borrowers(borrowing, planned), gone)

        whole = departure(in_part=False)
        part = None if whole is not None else departure(in_part=True)
        return whole if part is None else replace(part, last_resort=True)

    def _borrowers(self, borrowing: Borrowing, planned: Collection[str] | None) -> list[RunningPod]:
        """Pods that have borrowed, on whatever node they are: each that leaves makes more free than is kept."""
        running_pods = self.candidates.running_pods
        if planned is not None:
            return [pod for pod in map(running_pods.get, planned) if pod is not None]
        return running_pods.of(one for one in running_pods.namespaces() if borrowing.is_over(one))

    def told(
        self, evictee: Evictee, waiter: PendingPod, node: str
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Reason and message of the events: on the pod that has gone, and on the one that it was for."""
        meta = waiter.pod.metadata
        why = f"its cards are guaranteed to namespace {meta.namespace}, whose pod {meta.name} waits for them"
        what = f"Pod {evictee.key}, which had borrowed, was evicted from {node} to make room for this one"
        return ("Reclaimed", f"Evicted: {why}"), ("Reclaiming", what)
