"""Why pods may be evicted for a group that waits: it has a higher priority, or what they have borrowed is its own.

The same two grounds as for a pod without a group (`displacement`, `reclaim`), for what as many members take together
as have to get their places at once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aliquot.amounts import NOTHING, Amounts
from aliquot.scheduler_ext.borrowing import Borrowing
from aliquot.scheduler_ext.evictable import Objection
from aliquot.scheduler_ext.evictions import Told
from aliquot.scheduler_ext.gang import Gang
from aliquot.scheduler_ext.gang_member import Member
from aliquot.scheduler_ext.plans import PREEMPTION, RECLAIM
from aliquot.scheduler_ext.reclaim import EVICTIONS_PER_MINUTE
from aliquot.scheduler_ext.residents import Resident


@dataclass(frozen=True)
class Asking:
    """What a group that waits asks for.

    Attributes:
        gang: The group.
        members: As many as have to get their places at once.
        wanted: What they take together of each pool's cards, at most.
    """

    gang: Gang
    members: tuple[Member, ...]
    wanted: Mapping[str, Amounts]

    @property
    def namespace(self) -> str:
        """The group's."""
        return self.gang.key.namespace


@dataclass(frozen=True)
class Case:
    """Which pods may be evicted for one group.

    Attributes:
        may_go: Whether a pod may be, by itself.
        objection: Which of some pods may not be together, by UID.
        leaves: What is told on each of them.
        gains: What is told on a member of the group.
    """

    may_go: Callable[[Resident], bool]
    objection: Objection
    leaves: Told
    gains: Told


class GangGround(Protocol):
    """Why pods are evicted for groups."""

    @property
    def name(self) -> str:
        """As for pods without a group."""

    @property
    def per_minute(self) -> int | None:
        """How many are evicted at most in any minute; None where that has no bound."""

    def case(self, asking: Asking, borrowing: Borrowing) -> Case | None:
        """Who may be evicted for a group; None where nobody may."""


@dataclass(frozen=True)
class GangDisplacement:
    """The ground that the group, which is its member of the lowest, has a higher priority."""

    name: str = PREEMPTION
    per_minute: int | None = None

    def case(self, asking: Asking, borrowing: Borrowing) -> Case | None:
        """All of a lower priority, but for those within their guarantee where the group would borrow."""
        gang = asking.gang
        if any(member.pod.spec.preemption_policy == "Never" for member in asking.members):
            return None
        who = f"group {gang.key} of priority {gang.priority}"
        return Case(
            may_go=lambda pod: pod.priority < gang.priority,
            objection=lambda pods: borrowing.spared(pods, asking.namespace, asking.wanted),
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

    def case(self, asking: Asking, borrowing: Borrowing) -> Case | None:
        """Those who run on what was borrowed of it."""
        total = Amounts()
        for pool in asking.wanted:
            total |= asking.wanted.get(pool, NOTHING)
        owed = borrowing.owed(asking.namespace, total, "")
        if not owed:
            return None

        def objection(pods: Sequence[Resident]) -> Collection[str]:
            """The one that goes least willingly, where all of them together are not borrowed."""
            return () if borrowing.may_go(pods, asking.namespace, owed) else (pods[-1].uid,)

        whose = f"namespace {asking.namespace}, whose group {asking.gang.key.name} waits for them"
        return Case(
            may_go=lambda pod: borrowing.may_go([pod], asking.namespace, owed),
            objection=objection,
            leaves=("Reclaimed", f"Evicted: its cards are guaranteed to {whose}"),
            gains=(
                "Reclaiming",
                "Pods that had borrowed were evicted to make room for this one and its group",
            ),
        )
