"""A scheduler that a test tells what its tenants say, instant by instant."""

from collections.abc import Sequence
from typing import Any

from aliquot.arbiter._arbiter import ffi, lib
from tests.unit.arbiter.modelled import MS


class Scheduler:
    """A scheduler that is told by hand what its tenants say."""

    def __init__(self) -> None:
        self.scheduler = ffi.gc(
            lib.aq_scheduler_new(ffi.new("aq_rules *", lib.aq_scheduler_rules()), 0), lib.aq_scheduler_free
        )
        self.now = MS

    def enter(self, *cards: str, share: int = 50, priority: int = 0) -> Any:
        """A capped tenant with an entity at each card."""
        return lib.aq_scheduler_enter(self.scheduler, _terms(cards, share, priority), len(cards))

    def join(self, tenant: Any, *cards: str, share: int = 50, priority: int = 0) -> int:
        """A tenant enters and moves to this one; the number of its first entity there, or -1 where it cannot."""
        entered = self.enter(*cards, share=share, priority=priority)
        moved, first = self.move(entered, 0, len(cards), tenant)
        if moved != ffi.NULL:
            return first
        self.leave(entered, 0, len(cards))
        return -1

    def move(self, tenant: Any, first: int, count: int, to: Any = ffi.NULL) -> tuple[Any, int]:
        """Where entities are then."""
        number = ffi.new("uint32_t *", first)
        return lib.aq_scheduler_move(self.scheduler, tenant, number, count, to), number[0]

    def leave(self, tenant: Any, first: int, count: int = 1) -> None:
        """Entities go."""
        lib.aq_scheduler_leave(self.scheduler, tenant, first, count)

    def say(self, tenant: Any, entity: int, *, waiting: int = 0, in_flight: int = 0, used: int = 0) -> None:
        """What a tenant has to do with a card."""
        said = {"waiting": waiting, "in_flight": in_flight, "moving": in_flight, "ends_ns": self.now + MS}
        report = ffi.new("aq_report *", {**said, "used_ns": used})
        lib.aq_scheduler_report(self.scheduler, tenant, entity, report, self.now)

    def step(self, after: int = 0) -> None:
        """Time passes, and the scheduler is applied."""
        self.now += after
        lib.aq_scheduler_step(self.scheduler, self.now)

    def quantum(self, card: str, ns: int) -> None:
        """A card is leased for so long at a time."""
        lib.aq_scheduler_quantum(self.scheduler, card.encode(), ns)

    def late(self, ns: int) -> None:
        """Threads of the node are woken so late."""
        lib.aq_scheduler_late(self.scheduler, ns)

    def lease(self, tenant: Any, entity: int) -> tuple[int, int]:
        """How much longer it lasts, and how much work may be in flight, in nanoseconds."""
        lease = lib.aq_scheduler_lease(tenant, entity)
        return lease.end_ns - self.now, lease.window_ns

    def is_open(self, tenant: Any, entity: int) -> bool:
        """Whether an entity's gate lets in."""
        return bool(lib.aq_scheduler_lease(tenant, entity).open)

    def used(self, tenant: Any, entity: int) -> int:
        """Charged to an entity so far."""
        return int(lib.aq_scheduler_account(tenant, entity).used_ns)


def _terms(cards: Sequence[str], share: int, priority: int) -> Any:
    return ffi.new("aq_terms[]", [(card.encode(), share * 100, share, priority) for card in cards])
