"""Asks for long leases of a card whose tenants' memory does not fit on it together.

What does not fit is managed memory, for a card has room for all other that is on it. It is on the host, and has to
come to the card, and something else to leave it, whenever another tenant works. Leased for milliseconds, a card would
do nothing but move memory. What has overflowed to the host stays there, however long the lease, and is not counted.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import CardUsage, read_card_usages
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages
from aliquot.plugin.container.usage_bounds import used_bytes
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.state.card_table import CardTable
from aliquot.units import MIB

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
BYTES_PER_S = 12 * 10**9
"""What PCIe 4 moves; a faster link loses less time than it may."""
WORTH = 10
"""A lease is so many times as long as it takes to move what does not fit in and out."""
STEP_NS = 500_000_000
MOST_NS = 30_000_000_000


@dataclass
class LeaseLength:
    """Looks at the memory of all tenants that are leased time."""

    cards: CardTable
    tenants: TenantDirectories
    leases: Leases
    look_every_s: float = LOOK_EVERY_S
    _asked: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await asyncio.sleep(self.look_every_s)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Asks for what has changed."""
        wanted = dict(self._wanted())
        for card in wanted.keys() | self._asked.keys():
            if wanted.get(card) != self._asked.get(card):
                self.leases.quantum(card, wanted.get(card))
                log.info("card %s is leased for %s", card, _spell(wanted.get(card)))
        self._asked = wanted

    def _wanted(self) -> Iterator[tuple[str, int]]:
        """Cards whose tenants have more memory than there is, and how long they shall be leased for."""
        offers = self.cards.offers()
        for card, held in self._held().items():
            beyond = sum(held) - offers[card].usable_mib * MIB if card in offers else 0
            if beyond > 0 and len(held) > 1:
                yield card, quantum_ns(beyond)

    def _held(self) -> Mapping[str, list[int]]:
        """Bytes charged to each tenant that is leased time of a card: what its work may bring there."""
        found: dict[str, list[int]] = defaultdict(list)
        for tenant in self.tenants:
            try:
                for card, size in _memory(tenant):
                    found[card].append(size)
            except (OSError, PageError) as error:
                log.debug("the memory of %s is not counted: %s", tenant.directory, error)
        return found


def quantum_ns(beyond: int) -> int:
    """How long to lease a card for, of which this many bytes more are in use than it has."""
    moving_ns = -(-2 * beyond * 10**9 // BYTES_PER_S)
    return min(MOST_NS, -(-moving_ns * WORTH // STEP_NS) * STEP_NS)


def _memory(tenant: TenantPages) -> Iterator[tuple[str, int]]:
    usages = read_card_usages(tenant.usage)
    for index, limit in enumerate(read_control(tenant.control).cards):
        size = _believed_bytes(usages[index], limit) + limit.adjust_bytes
        if limit.core_share_bp and size > 0:
            yield limit.uuid, size


def _believed_bytes(usage: CardUsage, limit: CardLimit) -> int:
    """Memory that a tenant says it has of a card, up to its grant, or to its limit where it has no grant.

    Who has more than that has it past the interceptor, or is being made smaller: others wait for neither.
    """
    most = limit.memory_bytes if limit.grant_bytes is None else limit.grant_bytes
    return used_bytes(usage, most)


def _spell(quantum: int | None) -> str:
    return (
        f"{quantum / 1e9:g} s at a time, because its tenants' memory does not fit" if quantum else "as usual"
    )
