"""What a tenant's page says, as far as it counts for others: never more than the tenant was granted."""

from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.usage_page import CardUsage


def believed_bytes(usage: CardUsage, limit: CardLimit) -> int:
    """Memory that a tenant says it has of a card, up to its grant, or to its limit where it has no grant.

    Who has more than that has it past the interceptor, or is being made smaller: others wait for neither.
    """
    most = limit.memory_bytes if limit.grant_bytes is None else limit.grant_bytes
    return max(0, min(usage.memory_used_bytes, most))
