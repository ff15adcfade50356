"""Corrects what tenants are charged by what the driver says their processes have, and learns what a context costs."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.libshim.control_page import read_control
from aliquot.libshim.overhead import Held, Overhead, Sample, context_cost
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import Usage, read_usage
from aliquot.node.processes import PROC, identity_of
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages
from aliquot.plugin.devices.nvml_cards import CardsError, Nvml
from aliquot.plugin.state.admitted_pods import AdmittedPods
from aliquot.plugin.state.card_table import CardTable

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


@dataclass
class Overheads:
    """Looks at all tenants, again and again."""

    nvml: Nvml
    cards: CardTable
    tenants: TenantDirectories
    admitted_pods: AdmittedPods
    proc: Path = PROC
    look_every_s: float = LOOK_EVERY_S
    _known: dict[TenantPages, Overhead] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks until cancelled; a driver that hangs holds up this look alone."""
        while True:
            await asyncio.sleep(self.look_every_s)
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        before = dict(_usages(self.tenants))
        self._known = {tenant: self._known.get(tenant) or Overhead(tenant.control) for tenant in before}
        if not before:
            return
        held = identified(dict(self._processes()), self.proc)
        for tenant, after in _usages(before):
            try:
                self._learn(tenant, self._known[tenant].look(before[tenant], held, after))
            except (OSError, PageError) as error:
                log.debug("overhead of %s stays as it is: %s", tenant.directory, error)

    def _processes(self) -> Iterator[tuple[str, Mapping[int, int]]]:
        """What the driver says, by card; a card that is lost keeps no other from being looked at."""
        for uuid in self.cards.offers():
            try:
                yield uuid, self.nvml.processes(uuid)
            except CardsError as error:
                log.debug("overheads on one card stay as they are: %s", error)

    def _learn(self, tenant: TenantPages, certain: tuple[Sample | None, ...]) -> None:
        admitted = self.admitted_pods.get(tenant.pod_uid)
        for card, one in zip(read_control(tenant.control).cards, certain, strict=True):
            cost = context_cost(one, card.context_bytes) if one else None
            if cost is not None and admitted is not None:
                self.cards.learn_context(card.uuid, admitted.namespace, cost)


def _usages(tenants: Iterable[TenantPages]) -> Iterator[tuple[TenantPages, Usage]]:
    for tenant in tenants:
        try:
            yield tenant, read_usage(tenant.usage)
        except (OSError, PageError):
            continue


def identified(processes: Mapping[str, Mapping[int, int]], proc: Path = PROC) -> Held:
    """Bytes by card and process as its own namespace knows it; what has ended meanwhile is left out."""
    pids = {pid for held in processes.values() for pid in held}
    known = {pid: identity for pid in pids if (identity := identity_of(pid, proc))}
    return {
        uuid: {known[pid]: size for pid, size in held.items() if pid in known}
        for uuid, held in processes.items()
    }
