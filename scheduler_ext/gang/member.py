"""One pod of a group, as the watch shows it and as kube-scheduler has asked for it."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from aliquot.kube.objects import Pod
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.gang.pod_groups import UNSAID, Terms
from aliquot.scheduler_ext.state.pending_pods import PendingPod


@dataclass(frozen=True)
class Member:
    """A pod of a group.

    Attributes:
        pod: What it asks for, as it was read last; empty once it is placed.
        request: The same, understood; None where it asks for no slice.
        terms: What it says of its group.
        placed: It is on a node, or has done its work there.
        gated: It may not be scheduled yet.
        nodes: Those it was offered last; None before its first filter call.
        name: The pod's name.
        priority: Its priority.
        scheduler: Whose pod it is, by `schedulerName`.
        controller: The UID of the object that controls it; empty where there is none.
        created: When it was made, in seconds since 1970; 0 where that is not known.
        finished: When its work was done, on the same clock; infinity where that is not known, None before.
    """

    pod: Pod
    request: PodRequest | None
    terms: Terms = UNSAID
    placed: bool = False
    gated: bool = False
    nodes: tuple[str, ...] | None = None
    name: str = ""
    priority: int = 0
    scheduler: str = ""
    controller: str = ""
    created: float = 0.0
    finished: float | None = None

    @property
    def weight(self) -> tuple[float, int, int, int, str]:
        """Those with the least choice of nodes are placed first, then the largest, equal ones by name."""
        slices = [c.slice for c in self.request.containers if c.slice] if self.request else []
        cards = sum(one.cards for one in slices)
        memory = sum(one.cards * (one.memory_mib or 0) for one in slices)
        percent = sum(one.cards * (one.memory_percent or 0) for one in slices)
        choice = math.inf if self.nodes is None else len(self.nodes)
        return (choice, -cards, -memory, -percent, self.pod.metadata.name)

    @cached_property
    def kind(self) -> Hashable:
        """Equal for members that a node has room for alike."""
        assert self.request is not None  # noqa: S101 - only of those that ask for slices
        return PendingPod(self.pod, self.request, self.nodes or ()).kind
