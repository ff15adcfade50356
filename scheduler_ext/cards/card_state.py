"""What placement knows about one card: what it can give and what is left of it.

A look at a hundred nodes makes a thousand of these, so they are structs that the garbage collector does not follow.
"""

from dataclasses import dataclass

import msgspec

from aliquot.request.placement import CardShare, Charge
from aliquot.request.pod_request import SliceRequest
from aliquot.request.topology import Rdma
from aliquot.scheduler_ext.cards.card_sets import UNKNOWN_SETS, Sets


class CardState(msgspec.Struct, frozen=True, gc=False):
    """One card of one node as the ledger sees it now; memory in MiB, compute in percent of a card.

    Attributes:
        uuid: The driver's name of the card.
        usable_mib: Memory that may be guaranteed in all: total less reserve.
        extra_mib: Memory that may be promised beyond that, to pods of memory class burst.
        usable_cores: Compute time that may be promised in all.
        slots: Slices the card offers.
        used_mib: Memory promised; more than usable when a card shrank under its tenants.
        burst_mib: What of it need not be there at all times.
        model: As NVML writes it.
        sets: How it and the other cards of its node are linked.
        column: Which of them it is there.
        used_cores: Compute time promised.
        used_slots: Slices taken.
        holders: Tenants that hold the card alone; 0 or 1 unless somebody wrote a placement by hand.
        healthy: Its agent says that it works.
        mig: It is divided by MIG and offers no slices.
    """

    uuid: str
    usable_mib: int
    usable_cores: int = 100
    slots: int = 10
    used_mib: int = 0
    used_cores: int = 0
    used_slots: int = 0
    holders: int = 0
    healthy: bool = True
    mig: bool = False
    extra_mib: int = 0
    burst_mib: int = 0
    model: str = ""
    sets: Sets = UNKNOWN_SETS
    column: int = 0

    def left_mib(self, burst: bool = False) -> int:
        """Memory that can be promised yet: to a burst pod what is left in all, else no more than can be guaranteed."""
        left = self.usable_mib + self.extra_mib - self.used_mib
        return left if burst else min(left, self.guarantee_left_mib)

    @property
    def guarantee_left_mib(self) -> int:
        """Memory that can be guaranteed yet; less than none while a place is held at the expense of pods that leave."""
        return self.usable_mib - (self.used_mib - self.burst_mib)

    def can_guarantee(self, mib: int) -> bool:
        """Whether so much more can be guaranteed; nothing always can."""
        return not mib or mib <= self.guarantee_left_mib

    @property
    def empty(self) -> bool:
        """Whether nobody has any part of this card."""
        return not (self.used_mib or self.used_cores or self.used_slots or self.holders)

    def near(self, rdma: Rdma) -> bool:
        """Whether it counts as near to NICs."""
        return bool(self.sets.shape.near(rdma) >> self.column & 1)

    def admits(self, wanted: SliceRequest) -> bool:
        """Whether the card takes this kind of tenant at all, sizes apart."""
        if not self.healthy or self.mig or self.holders:
            return False
        if wanted.only and not wanted.only.allows(self.model, self.uuid):
            return False
        if wanted.rdma.demands and not self.near(wanted.rdma):
            return False
        return self.empty or not wanted.exclusive

    def carries(self, charge: Charge) -> bool:
        """Whether a charge made out earlier has room beside what is promised now."""
        return (
            self.healthy
            and not self.mig
            and not self.holders
            and charge.memory_mib <= self.left_mib(burst=True)
            and self.can_guarantee(charge.guaranteed_mib)
            and self.used_cores + charge.cores <= self.usable_cores
            and self.used_slots + charge.slots <= self.slots
            and (self.empty or not charge.exclusive)
        )

    def without(self, charge: Charge, holders: int | None = None) -> "CardState":
        """The card without a charge; `holders`: how many that held it alone go, where it is several pods' charge."""
        return msgspec.structs.replace(
            self,
            used_mib=self.used_mib - charge.memory_mib,
            burst_mib=self.burst_mib - charge.burst_mib,
            used_cores=self.used_cores - charge.cores,
            used_slots=self.used_slots - charge.slots,
            holders=self.holders - (charge.exclusive if holders is None else holders),
        )

    def share(self, wanted: SliceRequest) -> CardShare:
        """The part of this very card that the request means."""
        return CardShare(self.uuid, self.memory_of(wanted), wanted.cores, wanted.exclusive)

    def memory_of(self, wanted: SliceRequest) -> int:
        """Memory of that part, in MiB; a percentage is rounded down."""
        if wanted.memory_mib is not None:
            return wanted.memory_mib
        return self.usable_mib * (wanted.memory_percent or 0) // 100


@dataclass(frozen=True)
class Load:
    """What the containers of one pod that run at the same time add to one card."""

    mib: int = 0
    cores: int = 0
    slots: int = 0
    exclusive: bool = False
    burst_mib: int = 0

    def plus(self, share: CardShare, burst: bool = False) -> "Load":
        """The load with one more container's share."""
        return Load(
            self.mib + share.memory_mib,
            self.cores + share.cores,
            self.slots + 1,
            self.exclusive or share.exclusive,
            self.burst_mib + (share.memory_mib if burst else 0),
        )

    def fits(self, card: CardState) -> bool:
        """Whether the card has room for this load beside what it carries already."""
        return (
            self.mib <= card.left_mib(burst=True)
            and card.can_guarantee(self.mib - self.burst_mib)
            and card.used_cores + self.cores <= card.usable_cores
            and card.used_slots + self.slots <= card.slots
            and (self.slots == 1 or not self.exclusive)
        )
