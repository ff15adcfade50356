"""Whom a pod of higher priority may have evicted by the extender itself, where kube-scheduler evicts nobody for it.

kube-scheduler preempts only where something is short that it counts itself; `preempt` answers it then. A pod that
lacks nothing but cards waits, on versions that offer no nodes without victims. So the extender has those evicted that
`preempt` would name, once the pod has waited for a while and kube-scheduler has nominated no node for it. Unlike
kube-scheduler it breaks no disruption budget.

Where the room was lost all the same, others are chosen, after a time that doubles.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from aliquot.scheduler_ext.placement.reasons import QUOTA, Reason
from aliquot.scheduler_ext.preemption.candidates import Candidates, Departure
from aliquot.scheduler_ext.preemption.eviction_plans import PREEMPTION, Evictee
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.preemption.quota_preemption import QuotaPreemption
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.pending_pods import PendingPod, PendingPods
from aliquot.scheduler_ext.state.running_pods import RunningPod

PATIENCE_SECONDS: Final = 5.0
_CURABLE_OR_UNKNOWN: Final = frozenset(
    {"", QUOTA, *(reason.name.lower() for reason in Reason if reason.curable)}
)


@dataclass(frozen=True)
class ExtenderPreemption:
    """The ground that the waiting pod has a higher priority.

    Attributes:
        candidates: Who may be asked to leave.
        nominations: What is held for pods of lower priority, which is not theirs yet.
        waiting: Learns nothing of what is only tried.
        patience_seconds: How long a pod waits before others are evicted for it.
    """

    candidates: Candidates
    nominations: Nominations
    waiting: PendingPods
    patience_seconds: float = PATIENCE_SECONDS
    per_minute: int | None = None
    name: str = PREEMPTION

    @property
    def again_after(self) -> float:
        """How long a pod whose room was lost waits, in seconds, the first time."""
        return self.patience_seconds

    def holds_for(self, waiter: PendingPod, _borrowing: Borrowing, /) -> bool:
        """Whether a pod has waited for long enough for what others of lower priority have."""
        spec = waiter.pod.spec
        return (
            spec.preemption_policy != "Never"
            and waiter.reason in _CURABLE_OR_UNKNOWN
            and self.candidates.clock() - waiter.since >= self.patience_seconds
            and self.candidates.running_pods.any_below(spec.priority or 0)
        )

    def might_help(self, waiter: PendingPod, borrowing: Borrowing) -> bool:
        """Whether a pod lacks cards, or else what pods of lower priority can give; leaving pods may, too."""
        if waiter.reason != QUOTA or borrowing.leaving:
            return True
        return any(True for _ in self._lower(waiter, borrowing))

    def _lower(self, waiter: PendingPod, borrowing: Borrowing) -> Iterator[RunningPod]:
        """Pods of lower priority by whose departure a quota may let a pod in.

        They are of its own, have borrowed, or are on cards that have room for nobody.
        """
        running_pods, priority = self.candidates.running_pods, waiter.pod.spec.priority or 0
        helpful = borrowing.helpful(waiter.request.namespace, running_pods.namespaces())
        yield from running_pods.below(helpful, priority)
        for node, cards in self.candidates.quotas.accounts.useless().items():
            for pod, entry in running_pods.on(node):
                is_lower = pod.priority < priority and pod.namespace not in helpful
                if is_lower and not cards.isdisjoint(entry.charges):
                    yield pod

    def departure(
        self,
        waiter: PendingPod,
        node: str,
        borrowing: Borrowing,
        *,
        planned: Collection[str] | None = None,
        gone: Collection[str] = (),
    ) -> Departure | None:
        """Who would leave a node, all of lower priority and of those planned, if any are; None where nobody helps."""
        spec = waiter.pod.spec
        priority, never = spec.priority or 0, spec.preemption_policy == "Never"

        def may_go(pod: RunningPod) -> bool:
            return not never and pod.priority < priority and (planned is None or pod.uid in planned)

        request, running_pods = waiter.request, self.candidates.running_pods
        with self.waiting.trial(), self.nominations.aside(priority) as lower_holds:
            if lower_holds:  # what is not held is not used, either
                borrowing = self.candidates.borrowing(gone)
            objection = self.candidates.objection(request, node, borrowing)
            found = self.candidates.departure(
                request, node, borrowing, may_go, gone=gone, within_budgets=True, objection=objection
            )
            if found is not None or never or borrowing.sure(request, node):
                return found
            within = QuotaPreemption(self.candidates, request, node, borrowing, may_go, objection)
            if planned is not None:
                return within.departure(
                    [pod for pod in map(running_pods.get, planned) if pod is not None], gone
                )
            return within.rather_own(list(self._lower(waiter, borrowing)), gone)

    def told(
        self, evictee: Evictee, waiter: PendingPod, node: str
    ) -> tuple[tuple[str, str], tuple[str, str]]:
        """Reason and message of the events: on the pod that has gone, and on the one that it was for."""
        pod = waiter.pod
        who = f"pod {pod.key} of priority {pod.spec.priority or 0}"
        leaves = f"Evicted: {who}, which is higher, waits for its cards"
        gains = f"Pod {evictee.key}, of lower priority, was evicted from {node} to make room for this one"
        return ("Preempted", leaves), ("Preempting", gains)
