"""PodDisruptionBudgets: which pods may leave at the moment, by the count that the disruption controller keeps.

A set of pods violates a budget once for each of its pods beyond what the budget allows, which is how kube-scheduler
counts `NumPDBViolations`. A pod that the budget has down as leaving already is not counted again. An empty selector
picks every pod of the namespace, as policy/v1 has it.
"""

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from aliquot.kube.api import Api
from aliquot.kube.objects import KubeObject, KubeStruct
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import Resource
from aliquot.kube.selectors import LabelSelector
from aliquot.scheduler_ext.state.running_pods import RunningPod


class _Spec(KubeStruct, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class _Status(KubeStruct, frozen=True, kw_only=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class Budget(KubeObject, frozen=True, kw_only=True):
    """A PodDisruptionBudget as far as it is heeded here."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def counts(self, pod: RunningPod) -> bool:
        """Whether a pod that leaves is one less of those that this budget allows."""
        selector = self.spec.selector
        if selector is None or pod.namespace != self.metadata.namespace:
            return False
        return selector.picks(pod.labels) and pod.name not in (self.status.disrupted_pods or {})


BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", Budget)


class Budgets:
    """The budgets of a cluster, by namespace."""

    def __init__(self) -> None:
        self._of: defaultdict[str, dict[str, Budget]] = defaultdict(dict)
        self._spent: dict[str, list[Budget]] = {}

    def put(self, budget: Budget) -> None:
        """Take over a budget."""
        self._of[budget.metadata.namespace][budget.metadata.name] = budget
        self._note(budget.metadata.namespace)

    def drop(self, budget: Budget) -> None:
        """Forget a budget."""
        self._of[budget.metadata.namespace].pop(budget.metadata.name, None)
        self._note(budget.metadata.namespace)

    def _note(self, namespace: str) -> None:
        """Know the budgets that allow nothing: they are asked for most."""
        spent = [one for one in self._of[namespace].values() if one.status.disruptions_allowed <= 0]
        self._spent.pop(namespace, None)
        if spent:
            self._spent[namespace] = spent

    @property
    def strict(self) -> AbstractSet[str]:
        """The namespaces in which some budget allows nothing."""
        return self._spent.keys()

    def spares(self, pod: RunningPod) -> bool:
        """Whether a pod may not leave even by itself."""
        return any(budget.counts(pod) for budget in self._spent.get(pod.namespace, ()))

    def violated_by(self, pods: Iterable[RunningPod]) -> set[str]:
        """The UIDs of those that leave beyond what a budget allows, when they leave in this order."""
        left: dict[tuple[str, str], int] = {}
        beyond = set()
        for pod in pods:
            for name, budget in self._of.get(pod.namespace, {}).items():
                if not budget.counts(pod):
                    continue
                key = (pod.namespace, name)
                left[key] = left.get(key, budget.status.disruptions_allowed) - 1
                if left[key] < 0:
                    beyond.add(pod.uid)
        return beyond

    def beside(self, pods: Iterable[RunningPod], other: RunningPod) -> bool:
        """Whether one more pod would violate a budget that these, who leave, have used up."""
        if not self._of.get(other.namespace):
            return False
        return other.uid in self.violated_by([*(pod for pod in pods if pod.uid != other.uid), other])


class BudgetInformer:
    """Keeps the budgets in step with the cluster while `run()` runs."""

    def __init__(self, api: Api, budgets: Budgets) -> None:
        self._reflector = Reflector(
            api,
            BUDGETS,
            on_add=budgets.put,
            on_update=lambda _, new: budgets.put(new),
            on_delete=budgets.drop,
        )

    def missing(self) -> str:
        """What has not been read once yet, in words: before that every pod would seem free to leave."""
        return "" if self._reflector.answered.is_set() else "disruption budgets not read yet"

    async def read(self) -> None:
        """Return once nothing is missing."""
        await self._reflector.answered.wait()

    async def run(self) -> None:
        """Follow the budgets until cancelled."""
        await self._reflector.run()
