"""Evictions: deletions that PodDisruptionBudgets allow.

There is no disruption controller: who writes a budget's status says how many disruptions it allows, and every eviction
counts one down, as the real server does until the controller counts again.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.apiserver.selectors import selector_of
from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of, timestamp

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

BUDGETS = "poddisruptionbudgets.policy"
UNHEEDED = ("Pending", "Succeeded", "Failed")


def allow(store: Store, pod: Obj) -> None:
    """Count an eviction against the pod's budget. StatusError 429 where that allows none, 500 for two budgets."""
    if dig(pod, "status.phase") in UNHEEDED or pod["metadata"].get("deletionTimestamp"):
        return
    mine = [one for one in store.list(BUDGETS, namespace_of(pod)) if _picks(one, pod)]
    if len(mine) > 1:
        raise errors.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    for budget in mine:
        if name_of(pod) not in (dig(budget, "status.disruptedPods") or {}):
            store.put(BUDGETS, _counted(budget, pod))


def _picks(budget: Obj, pod: Obj) -> bool:
    selector = dig(budget, "spec.selector")
    return selector is not None and selector_of(selector).matches(pod)


def _counted(budget: Obj, pod: Obj) -> Obj:
    allowed = dig(budget, "status.disruptionsAllowed") or 0
    if allowed <= 0:
        raise errors.too_many("Cannot evict pod as it would violate the pod's disruption budget.")
    counted = copy.deepcopy(budget)
    status = counted["status"]
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), name_of(pod): timestamp()}
    return counted
