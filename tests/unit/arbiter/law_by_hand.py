"""A law that a test tells what its tenants say, instant by instant."""

from collections.abc import Sequence
from typing import Any

from aliquot.arbiter._arbiter import ffi, lib
from tests.unit.arbiter.modelled import MS


class Law:
    """A law that is told by hand what its tenants say."""

    def __init__(self) -> None:
        self.law = ffi.gc(lib.aq_law_new(ffi.new("aq_rules *", lib.aq_law_rules()), 0), lib.aq_law_free)
        self.now = MS

    def enter(self, *cards: str, share: int = 50, priority: int = 0) -> Any:
        """A capped tenant with a seat at each card."""
        return lib.aq_law_enter(self.law, _terms(cards, share, priority), len(cards))

    def join(self, tenant: Any, *cards: str, share: int = 50, priority: int = 0) -> int:
        """A tenant enters and moves to this one; the number of its first seat there, or -1 where it cannot."""
        entered = self.enter(*cards, share=share, priority=priority)
        moved, first = self.move(entered, 0, len(cards), tenant)
        if moved != ffi.NULL:
            return first
        self.leave(entered, 0, len(cards))
        return -1

    def move(self, tenant: Any, first: int, count: int, to: Any = ffi.NULL) -> tuple[Any, int]:
        """Where seats are then."""
        number = ffi.new("uint32_t *", first)
        return lib.aq_law_move(self.law, tenant, number, count, to), number[0]

    def leave(self, tenant: Any, first: int, count: int = 1) -> None:
        """Seats go."""
        lib.aq_law_leave(self.law, tenant, first, count)

    def say(self, tenant: Any, seat: int, *, waiting: int = 0, in_flight: int = 0, used: int = 0) -> None:
        """What a tenant has to do with a card."""
        said = {"waiting": waiting, "in_flight": in_flight, "moving": in_flight, "ends_ns": self.now + MS}
        report = ffi.new("aq_report *", {**said, "used_ns": used})
        lib.aq_law_report(self.law, tenant, seat, report, self.now)

    def step(self, after: int = 0) -> None:
        """Time passes, and the law is applied."""
        self.now += after
        lib.aq_law_step(self.law, self.now)

    def quantum(self, card: str, ns: int) -> None:
        """A card is leased for so long at a time."""
        lib.aq_law_quantum(self.law, card.encode(), ns)

    def late(self, ns: int) -> None:
        """Threads of the node are woken so late."""
        lib.aq_law_late(self.law, ns)

    def lease(self, tenant: Any, seat: int) -> tuple[int, int]:
        """How much longer it lasts, and how much work may be in flight, in nanoseconds."""
        lease = lib.aq_law_lease(tenant, seat)
        return lease.end_ns - self.now, lease.window_ns

    def is_open(self, tenant: Any, seat: int) -> bool:
        """Whether a seat's gate lets in."""
        return bool(lib.aq_law_lease(tenant, seat).open)

    def used(self, tenant: Any, seat: int) -> int:
        """Charged to a seat so far."""
        return int(lib.aq_law_account(tenant, seat).used_ns)


def _terms(cards: Sequence[str], share: int, priority: int) -> Any:
    return ffi.new("aq_terms[]", [(card.encode(), share * 100, share, priority) for card in cards])
