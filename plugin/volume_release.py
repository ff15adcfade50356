"""Closes the usage pages of pods that have ended, so that the kubelet can unmount the volumes that they are in.

A file that is open in a volume keeps it mounted, and a deleted pod is shown by the API server until all are unmounted.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from aliquot.plugin.leases import Leases, lease_name
from aliquot.plugin.pods import Pods
from aliquot.plugin.tenants import EVERYBODY, TenantPages, Tenants
from aliquot.plugin.turns import Turns
from aliquot.processes import Processes

log = logging.getLogger(__name__)

FIRST_S = 0.25
MOST_S = 5.0


@dataclass
class VolumeRelease:
    """Looks at the pods that are ending whenever a pod has changed, and while they have processes yet."""

    pods: Pods
    tenants: Tenants
    leases: Leases
    turns: Turns
    processes: Processes = EVERYBODY
    _pause_s: float = field(default=FIRST_S, init=False)

    async def run(self) -> None:
        """Looks until cancelled; the longer a pod takes to end, the more seldom."""
        while True:
            changed = await self.pods.wait(self._pause_s)
            try:
                left = await self.look()
            except OSError as error:
                log.warning("usage pages of pods that have ended may be open yet: %s", error)
                left = True
            self._pause_s = self._next_pause(left=left, changed=changed)

    def _next_pause(self, *, left: bool, changed: bool) -> float:
        if not left:
            return MOST_S
        return FIRST_S if changed else min(2 * self._pause_s, MOST_S)

    async def look(self) -> bool:
        """Closes the pages of pods that are ending and have no process; returns whether there are others yet."""
        ending = self._ending()
        if not ending:
            return False
        table = await asyncio.to_thread(self.processes.read)
        left = False
        for tenant in ending:
            if self.tenants.pod_lives(tenant.pod_uid, table) or self.turns.taken(tenant.pod_uid):
                left = True
            else:
                await asyncio.to_thread(self._release, tenant)
        return left

    def _ending(self) -> list[TenantPages]:
        """The containers of pods that are ending whose pages in volumes may be open."""
        ending = (uid for uid in self.tenants.pod_uids() if self.pods.ending(uid))
        pages = (tenant for uid in ending for tenant in self.tenants.of_pod(uid))
        return [one for one in pages if one.has_own_volume and not one.usage.is_released]

    def _release(self, tenant: TenantPages) -> None:
        self.leases.leave(lease_name(tenant.pod_uid, tenant.container))
        tenant.usage.release()
        log.debug("page of pod %s, container %s, closed", tenant.pod_uid, tenant.container)
