"""Divides what can be granted of a card among its burst tenants: pure arithmetic.

In use is never taken away; what is wanted beyond that is given whole or not at all, to those who use least first.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One tenant's part of a card, in bytes: what it uses, is granted, and wants (at least what it uses)."""

    used: int
    grant: int
    wanted: int
    turn: int = 0
    """When it was served last: of those who use the same, who has waited longest comes first."""

    @property
    def held(self) -> int:
        """What nobody else can have now: what was granted may be used at any moment."""
        return max(self.used, self.grant)


def divide(budget: int, claims: Sequence[Claim]) -> list[int]:
    """The grants as they shall be now, in the order of the claims.

    What one tenant is to give back is lowered first, and given to others at the next call, when it has been seen
    that it was not used meanwhile. So the sum of what is held never grows beyond the budget; where it is beyond
    it already (a guaranteed pod has come), nothing is raised.
    """
    targets = fair(budget, claims)
    spare = budget - sum(claim.held for claim in claims)
    need = sum(max(0, target - claim.held) for target, claim in zip(targets, claims, strict=True))
    short = spare < need
    grants = []
    for target, claim in zip(targets, claims, strict=True):
        if target > claim.held:
            raised = min(target - claim.held, max(0, spare))
            spare -= raised
            grants.append(claim.held + raised)
        else:
            grants.append(max(target, claim.used) if short or spare < 0 else claim.held)
    return grants


def fair(budget: int, claims: Sequence[Claim]) -> list[int]:
    """What each tenant shall have in the end: what it uses, or what it wants; who uses least is asked first.

    Half of a wish helps nobody: two that each got half of what is left would both wait in vain.
    """
    targets = [claim.used for claim in claims]
    left = budget - sum(targets)
    for n in sorted(range(len(claims)), key=lambda n: (claims[n].used, claims[n].turn)):
        more = claims[n].wanted - claims[n].used
        if more <= left:
            targets[n] += more
            left -= more
    return targets
