"""Grants memory to burst tenants when they need it, and takes back what they do not use.

The sum of grants on a card is at most what is guaranteed to nobody. A tenant that meets its grant writes its wish into
its usage page and waits for a change of its control page. This loop looks forty times a second whether a burst tenant
waits, and where one does, or four times a second, at what they all use; then it says in their pages that it looked. A
guaranteed pod never waits for a wish: what it was promised leaves the budget when it enters the ledger, and the gate
lets its container start when the grants are back within the budget.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aliquot.libshim.control_page import CardLimit, Control, change_control, read_control, touch_granter
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import CardUsage, read_card_usages, read_newest_wish
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages, granted
from aliquot.plugin.container.usage_bounds import FRESH_NS, used_bytes, wanted_bytes
from aliquot.plugin.sharing.grant_shares import Claim, divide
from aliquot.plugin.state.admitted_pods import AdmittedPods
from aliquot.plugin.state.node_ledger import NodeLedger
from aliquot.units import MIB

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.025
LOOK_AT_ALL_NS = 250_000_000
"""So often it is looked at what nobody waits for: grants that a guaranteed pod takes back."""
GRACE_NS = 60_000_000
"""What was just granted is not taken back before the tenant can have used it."""
STEP = 64 * MIB
"""Grants are raised to a multiple of this, so that a program that takes much in small pieces waits seldom."""


@dataclass(frozen=True)
class Share:
    """A burst tenant's part of one card as its pages have it."""

    tenant: TenantPages
    index: int
    limit: CardLimit
    usage: CardUsage | None
    """None: it cannot be read, by whosever fault."""

    @property
    def key(self) -> tuple[TenantPages, int]:
        """Names it."""
        return (self.tenant, self.index)

    def claim(self, now_ns: int, raised_ns: int) -> Claim:
        """What it uses, has and wants; `raised_ns` is when its grant was raised last.

        A tenant is not believed to use more than it can have, or others would wait for memory that nobody has. Of one
        that hides its use all that was granted counts.
        """
        most, grant = self.limit.memory_bytes, self.limit.grant_bytes or 0
        if self.usage is None:
            return Claim(grant, grant, grant, turn=raised_ns)
        top = max(most, grant)
        used = min(max(0, used_bytes(self.usage, top) + self.limit.adjust_bytes), top)
        used = max(used, grant) if now_ns - raised_ns < GRACE_NS else used
        wish = min(most, -(-wanted_bytes(self.usage, most, now_ns) // STEP) * STEP)
        return Claim(used, grant, max(used, wish), turn=raised_ns)


@dataclass
class BurstGrants:
    """Looks at the burst tenants of this node."""

    ledger: NodeLedger
    admitted_pods: AdmittedPods
    tenants: TenantDirectories
    _raised: dict[tuple[TenantPages, int], int] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled."""
        due_ns = 0
        while True:
            now_ns = time.monotonic_ns()
            if now_ns >= due_ns or self._wished(now_ns):
                self.look()
                due_ns = now_ns + LOOK_AT_ALL_NS
            await asyncio.sleep(LOOK_EVERY_S)

    def _wished(self, now_ns: int) -> bool:
        """Whether anybody waits: a dozen microseconds a tenant, where a look takes ten times as long."""
        for tenant in self._tenants():
            with contextlib.suppress(OSError):  # it cannot be waiting for us
                if 0 <= now_ns - read_newest_wish(tenant.usage) < FRESH_NS:
                    return True
        return False

    def look(self) -> None:
        """Grants and takes back once, and says that it did."""
        by_card: dict[str, list[Share]] = defaultdict(list)
        for share in self._shares():
            by_card[share.limit.uuid].append(share)
        self._forget(share.key for shares in by_card.values() for share in shares)
        now_ns = time.monotonic_ns()
        self._divide(by_card, now_ns)
        for tenant in self._tenants():
            with contextlib.suppress(OSError):  # it is told at the next look
                touch_granter(tenant.control, now_ns)

    def _divide(self, by_card: Mapping[str, Sequence[Share]], now_ns: int) -> None:
        for uuid, shares in by_card.items():
            claims = [share.claim(now_ns, self._raised.get(share.key, 0)) for share in shares]
            grants = divide(self.ledger.grantable_mib(uuid) * MIB, claims)
            for share, grant in zip(shares, grants, strict=True):
                if grant > (share.limit.grant_bytes or 0):
                    self._raised[share.key] = now_ns
                if grant != share.limit.grant_bytes:
                    _grant(share, grant)

    def _forget(self, here: Iterable[tuple[TenantPages, int]]) -> None:
        """Keeps nothing of tenants that are gone."""
        for key in self._raised.keys() - set(here):
            del self._raised[key]

    def held_mib(self, uuid: str) -> int:
        """What burst tenants hold of a card now: granted, or in use."""
        claims = [share.claim(0, 0) for share in self._shares() if share.limit.uuid == uuid]
        return -(-sum(claim.held for claim in claims) // MIB)

    def _shares(self) -> Iterator[Share]:
        for tenant in self._tenants():
            try:
                control = read_control(tenant.control)
            except (OSError, PageError) as error:
                log.debug("no grants for %s now: %s", tenant.directory, error)
                continue
            usages = _usages(tenant)
            for index, limit in enumerate(control.cards):
                if limit.grant_bytes is not None:
                    yield Share(tenant, index, limit, usages[index] if usages else None)

    def _tenants(self) -> Iterator[TenantPages]:
        """The containers with burst memory that have pages."""
        for admitted in self.admitted_pods:
            for container in admitted.placement.containers if admitted.placement else ():
                if not container.burst:
                    continue
                tenant = self.tenants.pages(admitted.pod_uid, container.name)
                if tenant.control.path.exists():
                    yield tenant


def _usages(tenant: TenantPages) -> tuple[CardUsage, ...]:
    """What a tenant says that it uses, by card; nothing where it cannot be read."""
    try:
        return read_card_usages(tenant.usage)
    except (OSError, PageError) as error:
        log.debug("all that was granted counts as in use: %s", error)
        return ()


def _grant(share: Share, grant: int) -> None:
    """Writes one grant; the page's other words stay as they are in that moment."""

    def change(control: Control | None) -> Control:
        if control is None:
            raise PageError(share.tenant.control, "a writer left it half-written")
        cards = list(control.cards)
        cards[share.index] = granted(cards[share.index], grant)
        return replace(control, cards=tuple(cards))

    try:
        change_control(share.tenant.control, change)
    except (OSError, PageError) as error:
        log.warning("grant of %s stays as it is: %s", share.tenant.directory, error)
