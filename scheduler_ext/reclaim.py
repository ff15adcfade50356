"""Whom a pod within its guarantee may have evicted when it waits for room: those who run on what was borrowed of it.

Only where the pod's quota says `reclaim: true`. None is evicted whose disruption budget allows no more. One pod has one
plan in its life: where that did not help, nobody else is evicted for it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from aliquot.amounts import asked
from aliquot.request import PodRequest
from scheduler_ext.borrowing import Borrowing
from scheduler_ext.evictable import Departure, Evictable
from scheduler_ext.plans import RECLAIM, Evictee
from scheduler_ext.waiting import Waiter

EVICTIONS_PER_MINUTE: Final = 10


@dataclass(frozen=True)
class Reclaim:
    """The ground that an amount is guaranteed to the waiting pod's namespace.

    Attributes:
        evictable: Who may be asked to leave.
        per_minute: How many pods are evicted at most in any minute.
    """

    evictable: Evictable
    per_minute: int | None = EVICTIONS_PER_MINUTE
    name: str = RECLAIM
    again_after: float | None = None

    def holds_for(self, waiter: Waiter, borrowing: Borrowing) -> bool:
        """Whether a pod is owed anything."""
        request = waiter.request
        return borrowing.reclaims and any(
            borrowing.owed(request.namespace, amounts, request.uid) for amounts in self._wanted(request)
        )

    def _wanted(self, request: PodRequest) -> list[Any]:
        """What a pod would take on each kind of node."""
        kinds = self.evictable.quotas.accounts.kinds()
        return [asked(request, max(mib for _, mib in kind)) for kind in kinds]

    def departure(
        self,
        waiter: Waiter,
        node: str,
        borrowing: Borrowing,
        *,
        planned: Collection[str] | None = None,
        gone: Collection[str] = (),
    ) -> Departure | None:
        """Who would leave a node, all of them borrowed and of those planned, if any are; None where nobody helps."""
        request = waiter.request
        cards = self.evictable.ledger.table.cards(node)
        if not cards:
            return None
        wanted = asked(request, max(card.usable_mib for card in cards))
        owed = borrowing.owed(request.namespace, wanted, request.uid)
        spared = set[str]()
        while owed:
            departure = self.evictable.departure(
                request,
                node,
                borrowing,
                lambda pod: (
                    pod.uid not in spared
                    and (planned is None or pod.uid in planned)
                    and borrowing.may_go([pod], request.namespace, owed)
                ),
                gone=gone,
                within_budgets=True,
            )
            if departure is None or borrowing.may_go(departure.pods, request.namespace, owed):
                return departure
            spared.add(departure.pods[-1].uid)
        return None

    def told(self, evictee: Evictee, waiter: Waiter, node: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Reason and message of the events: on the pod that has gone, and on the one that it was for."""
        meta = waiter.pod.metadata
        why = f"its cards are guaranteed to namespace {meta.namespace}, whose pod {meta.name} waits for them"
        what = f"Pod {evictee.key}, which had borrowed, was evicted from {node} to make room for this one"
        return ("Reclaimed", f"Evicted: {why}"), ("Reclaiming", what)
