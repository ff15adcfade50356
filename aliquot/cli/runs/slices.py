"""What a run was promised, and its control page's words for it."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from aliquot.libshim.control_page import CardLimit
from aliquot.request.core_policy import NO_POLICY, CorePolicy, CoreRules, CoreTerms
from aliquot.request.core_shares import Promised, core_part
from aliquot.request.pod_request import ManagedMemory


class Slice(msgspec.Struct, frozen=True):
    """A card, bytes of its memory, percent of its time (0: no share), how both are held."""

    card: str
    memory_bytes: int
    core_percent: int = 0
    policy: CorePolicy = NO_POLICY
    managed: ManagedMemory = ManagedMemory.RESERVE

    @property
    def core_terms(self) -> CoreTerms:
        """What the policy comes to, as for a pod of no pool."""
        return CoreRules().terms_for(self.policy, self.core_percent)

    def limits(self, limit: CardLimit, promised: Promised) -> CardLimit:
        """A page's limit of its card with these amounts; what else it says stays.

        Args:
            limit: As it is.
            promised: What all slices of the card take, this one included.
        """
        part = core_part(self.core_terms, self.core_percent, promised)
        return replace(
            limit,
            memory_bytes=self.memory_bytes,
            core_percent=part.cap_percent,
            core_share_bp=part.share_bp,
            core_most_percent=part.most_percent,
            priority=part.priority,
            managed_resident=self.managed is ManagedMemory.RESIDENT,
        )


def promised(slices: Iterable[Slice], card: str) -> Promised:
    """What the slices together have of a card's time."""
    cores = [one.core_percent for one in slices if one.card == card]
    return Promised(sum(cores), uncapped=cores.count(0), tenants=len(cores))
