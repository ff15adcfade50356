"""Compares what a tenant says of itself with what the card says of its processes, again and again.

What a limit allows is known only roughly while it changes: a process may have read the old one just before, and been
kept from running since. So the account may be as high as the highest limit of the last seconds, or as it was then.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from aliquot.libshim.control_page import Control, Enforcement, read_control
from aliquot.libshim.usage_page import Usage
from tests.native.chaos.crowd import Crowd, ViolationError

MEMORY_S = 4.0
"""How long a limit may have been known to a process that was kept from running."""
PATIENCE_S = 3.0
"""How long two things that are not read at one moment may contradict each other."""
STUCK_S = 25.0
IMPOSSIBLE = 1 << 40


@dataclass(frozen=True)
class Look:
    """What was seen at one moment."""

    at: float
    usage: Usage
    ceiling: float
    held: int
    uncharged: int

    @property
    def tally(self) -> int:
        """The account of the card."""
        return self.usage.cards[0].memory_used_bytes


@dataclass
class Auditor:
    """One tenant's."""

    crowd: Crowd
    looks: deque[Look] = field(default_factory=deque)
    contradictions: dict[str, float] = field(default_factory=dict)
    """Since when what is said to be wrong has been wrong at every look."""
    total: int = 0

    def look(self) -> None:
        """Raises ViolationError if a promise is broken."""
        now = self._see()
        self.looks.append(now)
        while self.looks[1].at < now.at - MEMORY_S if len(self.looks) > 1 else False:
            self.looks.popleft()
        self.total += 1
        wrong = dict(self._contradictions(now))
        self.contradictions = {what: self.contradictions.get(what, now.at) for what in wrong}
        for what, since in self.contradictions.items():
            if now.at - since >= self._patience(what):
                raise self._violation(f"{what}: {wrong[what]}; {self._state(now)}")
        stuck = self.crowd.watch.stuck(self.crowd.alive() - set(self.crowd.stopped), STUCK_S)
        if stuck:
            raise self._violation(f"hangs: {stuck}")

    def _violation(self, what: str) -> ViolationError:
        return ViolationError(f"{self.crowd.tenant.directory.name}: {what}")

    def _see(self) -> Look:
        tenant, watch = self.crowd.tenant, self.crowd.watch
        before = watch.uncharged(self.crowd.alive())
        sizes = tenant.machine.processes(tenant.machine.cards[0].uuid)
        held = sum(size for pid, size in sizes.items() if self.crowd.owns(pid))
        usage = tenant.usage()
        after = watch.uncharged(self.crowd.alive())
        return Look(time.monotonic(), usage, ceiling(read_control(tenant.control)), held, max(before, after))

    def _contradictions(self, now: Look) -> Iterator[tuple[str, str]]:
        bound = max(*(look.ceiling for look in self.looks), self.looks[0].tally)
        if now.tally > bound:
            yield "charged beyond the limit", f"{now.tally} of {bound}"
        if now.held > bound + now.uncharged:
            yield "on the card beyond the limit", f"{now.held} of {bound} + {now.uncharged}"
        if now.held > now.tally + now.uncharged:
            yield "on the card but not charged", f"{now.held} of {now.tally} + {now.uncharged}"
        for index, card in enumerate(now.usage.cards):
            slots = sum(process.memory_bytes[index] for process in now.usage.processes)
            if card.memory_used_bytes != slots:
                yield f"tally {index} is not the sum of its slots", f"{card.memory_used_bytes}, {slots}"
            if max(card.memory_used_bytes, slots) > IMPOSSIBLE:
                yield f"tally {index} wrapped", f"{card.memory_used_bytes}, {slots}"

    def _patience(self, what: str) -> float:
        """Who has just been killed has its memory for a moment yet, though its neighbours may take it already."""
        if "wrapped" in what or what == "charged beyond the limit":
            return 0.0
        return PATIENCE_S

    def _state(self, now: Look) -> str:
        slots = [(process.pid, process.memory_bytes[0]) for process in now.usage.processes]
        tenant = self.crowd.tenant
        card = tenant.machine.processes(tenant.machine.cards[0].uuid)
        control = read_control(tenant.control)
        return f"slots {slots}, card {card}, watch {self.crowd.watch.entries()}, {control}"


def ceiling(control: Control) -> float:
    """The most that the account may be made to say by a request."""
    card = control.cards[0]
    if control.enforcement != Enforcement.ENFORCE:
        return float("inf")
    grant = card.memory_bytes if card.grant_bytes is None else card.grant_bytes
    return max(0, min(card.memory_bytes, grant) - card.adjust_bytes)
