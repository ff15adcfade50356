"""What each tenant of a card is due of its time: pure arithmetic, in hundredths of a percent."""

from dataclasses import dataclass

from aliquot.request.core_policy import CoreTerms

WHOLE_PERCENT = 100
WHOLE_BP = 10_000
LEAST_BP = 10
"""What a tenant without a share of its own has where the shares leave nothing: nobody starves."""


@dataclass(frozen=True)
class Promised:
    """What the tenants of a card, so many, have of its time together; `uncapped` counts those without a share."""

    cores: int
    uncapped: int
    tenants: int


@dataclass(frozen=True)
class CorePart:
    """A tenant's part of a card's time in the words of its control page, which are all 0 where it is not measured."""

    cap_percent: int = 0
    share_bp: int = 0
    most_percent: int = 0
    priority: int = 0


FREE = CorePart()


def core_part(terms: CoreTerms, cores: int, promised: Promised) -> CorePart:
    """What holds for a tenant where an arbiter leases the card.

    Args:
        terms: How its time is held.
        cores: Its guaranteed percentage; 0: none.
        promised: What all tenants of the card have, this one included.
    """
    if is_free(terms.most_percent, promised):
        return FREE
    return CorePart(cores, share_bp(cores, promised), terms.most_percent, terms.priority)


def share_bp(cores: int, promised: Promised) -> int:
    """A tenant's own part of a card's time.

    Where more is promised than there is, everybody has proportionally less. Who has no share of its own gets an equal
    part of what the shares leave.
    """
    if cores:
        return cores * WHOLE_BP // max(WHOLE_PERCENT, promised.cores)
    left = max(0, WHOLE_BP - promised.cores * WHOLE_BP // WHOLE_PERCENT)
    return max(LEAST_BP, left // max(1, promised.uncapped))


def is_free(most_percent: int, promised: Promised) -> bool:
    """Whether a tenant needs no measuring: it may have all of the card's time, and nobody else is there to want it."""
    return most_percent == WHOLE_PERCENT and promised.tenants <= 1
