"""One group of pods: who is in it, and how far its members have come together."""

import asyncio
from dataclasses import dataclass, field

from aliquot.api.pod_groups import GroupKey
from aliquot.scheduler_ext.gang.member import Member
from aliquot.scheduler_ext.gang.pod_groups import UNSAID, Terms
from aliquot.scheduler_ext.gang.runs import of_earlier_runs
from aliquot.scheduler_ext.state.ledger import Ledger, Stage

ON_ITS_WAY = frozenset({Stage.BINDING, Stage.UNCERTAIN, Stage.ASSUMED, Stage.BOUND})
LONGEST_REST = 8
"""A group that has failed again and again rests for so many times as long as its places were held."""


RECOVERED_SECONDS = 600.0
"""A group that has run with enough members for so long has recovered from what it was evicted for."""


@dataclass(frozen=True)
class Look:
    """What a look for places has found.

    Attributes:
        changes: The state of the cluster at that time.
        enough: Whether as many found a place as the group needs.
        covered: How many have one then, or need none.
        uids: Who has a place then.
        host_bound: Whether a member found too little CPU or memory on some node.
        barred: Which quota kept a member from every node with cards; empty where none did.
    """

    changes: int = -1
    enough: bool = False
    covered: int = 0
    uids: frozenset[str] = frozenset()
    host_bound: bool = False
    barred: str = ""


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
        too_large: It was found not to fit even if no other pod were there.
        below_since: Since when pods of it run, but fewer than it needs; None while that is not so.
        enough_since: Since when as many run as it needs; None while that is not so.
        yielded: How often it was evicted because fewer ran, and has not run for long since.
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
    too_large: bool = False
    below_since: float | None = None
    enough_since: float | None = None
    yielded: int = 0
    _earlier: frozenset[str] | None = None

    def __str__(self) -> str:
        """As it is written to the log."""
        return f"group {self.key}"

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
    def earlier(self) -> frozenset[str]:
        """The UIDs of pods of runs that have ended, which do not count."""
        if self._earlier is None:
            self._earlier = of_earlier_runs(self.members)
        return self._earlier

    @property
    def run(self) -> list[str]:
        """The UIDs of the members of the present run."""
        earlier = self.earlier
        return [uid for uid in self.members if uid not in earlier] if earlier else list(self.members)

    @property
    def priority(self) -> int:
        """The lowest of a member that has not finished: no member lends the others its own."""
        return min((m.priority for m in self.members.values() if m.finished is None), default=0)

    @property
    def begun(self) -> float:
        """When the first member of the present run was made, in seconds since 1970."""
        return min((self.members[uid].created for uid in self.run), default=0.0)

    @property
    def working(self) -> list[str]:
        """The UIDs of the members that are bound and have not finished."""
        return [uid for uid, m in self.members.items() if m.placed and m.finished is None]

    @property
    def needed(self) -> int:
        """How many of the others must get their places at once; 0 where each may go alone."""
        return max(0, (self.terms.members or 0) - sum(map(self.settled, self.run)))

    def breaks_without(self, uid: str) -> bool:
        """Whether it has as many members as it needs, and would not without this one."""
        least, run = self.terms.members or 0, self.run
        return uid in run and self.settled(uid) and sum(map(self.settled, run)) == least

    @property
    def covered(self) -> int:
        """How many have a place, or need none."""
        return sum(1 for uid in self.run if self.settled(uid) or self.reserved(uid))

    @property
    def lacking(self) -> int:
        """How many more have to have one."""
        return max(0, (self.terms.members or 0) - self.covered)

    @property
    def whole(self) -> bool:
        """Whether these are as many as it needs."""
        return not self.lacking

    @property
    def held(self) -> list[str]:
        """The members with places that may be taken back."""
        return [uid for uid in self.members if self.reserved(uid)]

    @property
    def present(self) -> int:
        """The members that are there, not counting those that may not be scheduled yet."""
        return sum(1 for uid in self.run if not self.members[uid].gated)

    @property
    def offered_nodes(self) -> tuple[str, ...]:
        """What a member was offered last, for those of which that is not known."""
        return next((m.nodes for m in self.members.values() if m.nodes is not None), ())

    def seeking(self) -> list[Member]:
        """The members that wait for their nodes, whether they have places or not."""
        return [m for uid, m in self.members.items() if m.request and not (m.gated or self.settled(uid))]

    def seekers(self) -> list[Member]:
        """The members without a place, the hardest to place first."""
        waiting = (m for m in self.seeking() if m.request and not self.reserved(m.request.uid))
        return sorted(waiting, key=lambda member: member.weight)

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

    def fit(self, look: Look) -> str:
        """What is said when no more of those needed at once have a place."""
        said = (
            f"group {self.key}: {look.covered} of the {self.terms.members} members that it needs fit at once"
        )
        if look.barred:
            return f"{said}; {look.barred} keeps the others from every node"
        if self.too_large:
            return f"{said}, and fewer than it needs would if no other pod were there"
        return said

    def note_below(self, now: float) -> None:
        """Take note of whether it runs with fewer members than it needs."""
        working, needed = bool(self.working), bool(self.needed)
        self.below_since = _since(self.below_since, now, so=working and needed)
        self.enough_since = _since(self.enough_since, now, so=working and not needed)
        if self.enough_since is not None and now - self.enough_since >= RECOVERED_SECONDS:
            self.yielded = 0

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

    def put(self, uid: str, member: Member) -> None:
        """A member has come, or is not what it was."""
        self.members[uid] = member
        self._earlier = None

    def drop(self, uid: str) -> None:
        """A member has gone."""
        self.members.pop(uid, None)
        self._earlier = None
        for progress in (self.offered, self.ready, self.admitted):
            progress.discard(uid)


def _since(before: float | None, now: float, *, so: bool) -> float | None:
    """Since when something is so; None where it is not."""
    if not so:
        return None
    return now if before is None else before
