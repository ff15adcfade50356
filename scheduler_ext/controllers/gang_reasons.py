"""Why pods may be evicted for a group that waits: it has a higher priority, or what they have borrowed is its own.

The same two grounds as for a pod without a group (`extender_preemption`, `reclaim`), for what as many members take
together as have to get their places at once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Protocol

from aliquot.kube.objects import Pod
from aliquot.request.amounts import NOTHING, Amounts
from aliquot.scheduler_ext.gang.gang import Gang
from aliquot.scheduler_ext.preemption.candidates import Objection
from aliquot.scheduler_ext.preemption.eviction_plans import PREEMPTION, RECLAIM
from aliquot.scheduler_ext.preemption.evictions import Told
from aliquot.scheduler_ext.preemption.reclaim import EVICTIONS_PER_MINUTE
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.state.running_pods import RunningPod


@dataclass(frozen=True)
class GangDemand:
    """What a group that waits asks for.

    Attributes:
        gang: The group.
        pods: Its members without a place, as kube-scheduler has asked for them.
        wanted: What as many of them take together of each pool's cards, at most, as have to get their places at once.
    """

    gang: Gang
    pods: tuple[Pod, ...]
    wanted: Mapping[str, Amounts]

    @property
    def namespace(self) -> str:
        """The group's."""
        return self.gang.key.namespace


@dataclass(frozen=True)
class Rule:
    """Which pods may be evicted for one group.

    Attributes:
        may_go: Whether a pod may be, by itself.
        objection: Which of some pods may not be together, by UID.
        leaves: What is told on each of them.
        gains: What is told on a member of the group.
    """

    may_go: Callable[[RunningPod], bool]
    objection: Objection
    leaves: Told
    gains: Told


class GangReason(Protocol):
    """Why pods are evicted for groups."""

    @property
    def name(self) -> str:
        """As for pods without a group."""

    @property
    def per_minute(self) -> int | None:
        """How many are evicted at most in any minute; None where that has no bound."""

    def rule(self, demand: GangDemand, borrowing: Borrowing) -> Rule | None:
        """Who may be evicted for a group; None where nobody may."""


@dataclass(frozen=True)
class GangExtenderPreemption:
    """The ground that the group has a higher priority: that of its lowest member."""

    name: str = PREEMPTION
    per_minute: int | None = None

    def rule(self, demand: GangDemand, borrowing: Borrowing) -> Rule | None:
        """All of a lower priority, but for those whose quota would be below its guarantee where the group borrows."""
        gang = demand.gang
        if any(pod.spec.preemption_policy == "Never" for pod in demand.pods):
            return None
        who = f"group {gang.key} of priority {gang.priority}"
        return Rule(
            may_go=lambda pod: pod.priority < gang.priority,
            objection=lambda pods: borrowing.spared(pods, demand.namespace, demand.wanted, in_part=False),
            leaves=("Preempted", f"Evicted: {who}, which is higher, waits for its cards"),
            gains=(
                "Preempting",
                "Pods of lower priority were evicted to make room for this one and its group",
            ),
        )


@dataclass(frozen=True)
class GangReclaim:
    """The ground that what the group asks for is guaranteed to its namespace."""

    per_minute: int | None = EVICTIONS_PER_MINUTE
    name: str = RECLAIM

    def rule(self, demand: GangDemand, borrowing: Borrowing) -> Rule | None:
        """Those who run on what was borrowed of it."""
        total = reduce(or_, demand.wanted.values(), NOTHING)
        owed = borrowing.owed(demand.namespace, total, "")
        if not owed:
            return None

        def objection(pods: Sequence[RunningPod]) -> Collection[str]:
            """The one that goes least willingly, where all of them together are not borrowed."""
            return () if borrowing.may_go(pods, demand.namespace, owed) else (pods[-1].uid,)

        whose = f"namespace {demand.namespace}, whose group {demand.gang.key.name} waits for them"
        return Rule(
            may_go=lambda pod: borrowing.may_go([pod], demand.namespace, owed),
            objection=objection,
            leaves=("Reclaimed", f"Evicted: its cards are guaranteed to {whose}"),
            gains=(
                "Reclaiming",
                "Pods that had borrowed were evicted to make room for this one and its group",
            ),
        )
