"""One group of pods: who is in it, and how far its members have come together."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from aliquot.kube.objects import Pod
from aliquot.request import PodRequest
from scheduler_ext.groups import UNSAID, GroupKey, Terms
from scheduler_ext.ledger import Ledger, Stage

ON_ITS_WAY = frozenset({Stage.BINDING, Stage.UNCERTAIN, Stage.ASSUMED, Stage.BOUND})
LONGEST_REST = 8
"""A group that has failed again and again rests for so many times as long as its places were held."""


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
    """

    pod: Pod
    request: PodRequest | None
    terms: Terms = UNSAID
    placed: bool = False
    gated: bool = False
    nodes: tuple[str, ...] | None = None

    @property
    def weight(self) -> tuple[float, int, int, int, str]:
        """Those with the least choice of nodes are placed first, then the largest, equal ones by name."""
        slices = [c.slice for c in self.request.containers if c.slice] if self.request else []
        cards = sum(one.cards for one in slices)
        memory = sum(one.cards * (one.memory_mib or 0) for one in slices)
        percent = sum(one.cards * (one.memory_percent or 0) for one in slices)
        choice = math.inf if self.nodes is None else len(self.nodes)
        return (choice, -cards, -memory, -percent, self.pod.metadata.name)


@dataclass(frozen=True)
class Look:
    """What a look for places has found.

    Attributes:
        changes: The state of the cluster at that time.
        enough: Whether as many found a place as the group needs.
        covered: How many have one then, or need none.
        uids: Who has a place then.
    """

    changes: int = -1
    enough: bool = False
    covered: int = 0
    uids: frozenset[str] = frozenset()


@dataclass
class Gang:
    """A group.

    A member's place is first *held*, with those of the others; *offered* once kube-scheduler has asked for the pod;
    *ready* once it has come to bind there. When enough are ready all are *admitted*, and are bound.

    Attributes:
        key: Which one.
        ledger: Where the places are.
        said: What its PodGroup says.
        members: By UID.
        since: When its places were taken; None while it has none.
        rest: It takes no places before this time.
        failures: How often it has given its places back since it was admitted last.
        why: Why it has no places, in words.
        told: Why it has none, as a member was told last.
        given_back: Why it gave them back last.
        decided: Set, and replaced, when it is admitted or gives its places back.
        look: What came of the last look for places.
        short_since: When it first found no room for all, and has found none since.
        saved: How often it has saved up places in vain.
    """

    key: GroupKey
    ledger: Ledger
    said: Terms = UNSAID
    members: dict[str, Member] = field(default_factory=dict)
    offered: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    admitted: set[str] = field(default_factory=set)
    since: float | None = None
    rest: float = 0.0
    failures: int = 0
    why: str = ""
    told: str = ""
    given_back: str = ""
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    look: Look = field(default_factory=Look)
    short_since: float | None = None
    saved: int = 0

    @property
    def terms(self) -> Terms:
        """What its object says, else the most that a member says."""
        members = (m.terms for m in self.members.values())
        said = [(t.members, t.seconds) for t in members]
        most = max((m for m, _ in said if m is not None), default=None)
        longest = max((s for _, s in said if s is not None), default=None)
        return self.said.over(Terms(most, longest))

    def reserved(self, uid: str) -> bool:
        """Whether the member has a place that nobody has begun to bind it to."""
        entry = self.ledger.entry(uid)
        return entry is not None and entry.stage is Stage.RESERVED

    def settled(self, uid: str) -> bool:
        """Whether nothing can be asked of this member any more: it is on its way to its node, or needs no slice."""
        member = self.members[uid]
        if member.placed:
            return True
        if member.request is None:
            return not member.gated
        entry = self.ledger.entry(uid)
        return entry is not None and entry.stage not in (Stage.RESERVED, Stage.HELD)

    @property
    def needed(self) -> int:
        """How many of the others must get their places at once; 0 where each may go alone."""
        return max(0, (self.terms.members or 0) - sum(map(self.settled, self.members)))

    @property
    def covered(self) -> int:
        """How many have a place, or need none."""
        return sum(1 for uid in self.members if self.settled(uid) or self.reserved(uid))

    @property
    def whole(self) -> bool:
        """Whether these are as many as it needs."""
        return self.covered >= (self.terms.members or 0)

    @property
    def held(self) -> list[str]:
        """The members with places that may be taken back."""
        return [uid for uid in self.members if self.reserved(uid)]

    @property
    def present(self) -> int:
        """The members that are there, not counting those that may not be scheduled yet."""
        return sum(1 for member in self.members.values() if not member.gated)

    def seekers(self) -> Iterator[Member]:
        """The members without a place, the hardest to place first."""
        waiting = (
            m
            for uid, m in self.members.items()
            if m.request and not (m.gated or self.settled(uid) or self.reserved(uid))
        )
        return iter(sorted(waiting, key=lambda member: member.weight))

    def obstacle(self, now: float) -> str:
        """Why it is no use to look for places; empty when it may be."""
        least = self.terms.members
        if least is None:
            return f"group {self.key}: no PodGroup and no annotation says how many members it needs"
        if self.present < least:
            return f"group {self.key}: {self.present} of the {least} members that it needs exist"
        if now < self.rest:
            return f"group {self.key}: {self.given_back}; others have their turn before it tries again"
        return ""

    def fit(self, covered: int) -> str:
        """What is said when so many of those needed at once have a place."""
        return f"group {self.key}: {covered} of the {self.terms.members} members that it needs fit at once"

    def decide(self) -> None:
        """Wake the bind calls that wait for the others."""
        self.decided.set()
        self.decided = asyncio.Event()

    def admit(self) -> None:
        """All members that have a place may be bound."""
        self.admitted |= set(self.held)
        self.failures = 0
        self.decide()

    def give_back(self, now: float, why: str) -> None:
        """Free all that nobody has begun to bind; if nobody could be, rest as long as it was held, longer each time."""
        for uid in self.held:
            self.ledger.release(uid)
        if self.since is not None and not self.admitted:
            self.rest = now + (now - self.since) * min(2**self.failures, LONGEST_REST)
            self.failures += 1
        self.given_back, self.why = why, f"group {self.key}: {why}"
        self.forget_progress()
        self.decide()

    def forget_progress(self) -> None:
        """Nobody is on the way to a place any more, or all have arrived."""
        self.since = None
        self.offered.clear()
        self.ready.clear()
        self.admitted.clear()

    def drop(self, uid: str) -> None:
        """A member has gone."""
        self.members.pop(uid, None)
        for progress in (self.offered, self.ready, self.admitted):
            progress.discard(uid)
