"""What is done for one waiting pod, written into it before anybody leaves: who leaves which node for it.

Anybody who may edit pods could have written it, so a plan never gives leave to evict: it only narrows whom to choose.
"""

import logging
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.api.names import RECLAIM_ANNOTATION
from aliquot.kube.objects import UNREADABLE
from aliquot.scheduler_ext.preemption.candidates import Departure

RECLAIM, PREEMPTION = "reclaim", "preemption"
"""The grounds on which pods are evicted."""

_log = logging.getLogger(__name__)


class Evictee(msgspec.Struct, frozen=True):
    """A pod that is to go."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class EvictionPlan(msgspec.Struct, frozen=True):
    """What is done for one waiting pod, and on which ground."""

    node: str
    pods: tuple[Evictee, ...]
    ground: str = RECLAIM

    @property
    def uids(self) -> tuple[str, ...]:
        """Who is to go."""
        return tuple(pod.uid for pod in self.pods)


def plan_of(departure: Departure, ground: str) -> EvictionPlan:
    """The plan that makes a departure happen."""
    pods = (Evictee(pod.namespace, pod.name, pod.uid) for pod in departure.pods)
    return EvictionPlan(departure.node, tuple(pods), ground)


def read_plan(annotations: Mapping[str, str], grounds: Iterable[str]) -> EvictionPlan | None:
    """The plan that is in a pod, on one of these grounds; None, and a line in the log, for one that is none."""
    text = annotations.get(RECLAIM_ANNOTATION)
    if text is None:
        return None
    try:
        plan = msgspec.json.decode(text, type=EvictionPlan)
    except UNREADABLE as error:
        _log.warning("annotation %s is no plan and is left alone: %s", RECLAIM_ANNOTATION, error)
        return EvictionPlan("", ())
    return plan if plan.ground in grounds else None


def write_plan(plan: EvictionPlan) -> str:
    """A plan as it is in a pod's annotation."""
    return msgspec.json.encode(plan).decode()
