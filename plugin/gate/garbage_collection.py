"""Gives back what pods had that are gone: specs, pages, nonces, and their place in the ledger.

The kubelet has no call for "this container is over", so it is found out. A pod is gone when the API server
has said so, the kubelet does not run it, and no process of it lives: a force-deleted pod has left the API
while its processes still hold memory. Nothing is given back on silence: not while the API server has never
answered, nor while the kubelet does not.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import Processes, ProcessTable
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.tenant_pages import EVERYBODY, TenantDirectories, TenantPages, living
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.kubelet.allocation_journal import AllocationJournal
from aliquot.plugin.kubelet.checkpoint import read_checkpoint
from aliquot.plugin.kubelet.pod_resources import PodResources, PodResourcesError, Running
from aliquot.plugin.sharing.leases import Leases, lease_name
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.node_ledger import NodeLedger

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 5.0
SETTLE_S = 0.5
UNCLAIMED_FOR_S = 60.0


@dataclass
class GarbageCollector:
    """Sweeps now and then, and whenever the gate finds no room."""

    pods: Pods
    pod_resources: PodResources
    checkpoint: Path
    journal: AllocationJournal
    admitted_pods: AdmittedPods
    tenants: TenantDirectories
    specs: CdiSpecs
    ledger: NodeLedger
    leases: Leases
    pod_locks: PodLocks
    processes: Processes = EVERYBODY
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    unclaimed_since: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Sweeps until cancelled: soon after a pod has changed, and now and then."""
        while True:
            await self.pods.wait(SWEEP_EVERY_S)
            await asyncio.sleep(SETTLE_S)
            await self.sweep()

    async def sweep(self) -> None:
        """Gives back what can be given back now. A failure is logged and mended by a later sweep."""
        async with self.lock:
            if not self.pods.synced:
                return
            before = tuple(self.admitted_pods)
            try:
                running = await self.pod_resources.list()
            except PodResourcesError as error:
                log.debug("no sweep: %s", error)
                return
            table = await asyncio.to_thread(self.processes.read)
            freed: list[str] = []
            with _later("what is left of pods"):
                self._give_back(before, running, table, freed)
            await asyncio.to_thread(self.journal.forget, [*freed, *self._unclaimed(running)])

    def _give_back(
        self, before: Collection[AdmittedPod], running: Running, table: ProcessTable, freed: list[str]
    ) -> None:
        """Adds the nonces that are free to `freed`. What no tenancy owns is removed too.

        Nothing is taken from a pod that the gate is letting in: a tenancy that changed since `before` is in use,
        and so is what is not a tenancy yet.
        """
        kept = frozenset(entry.pod_uid for entry in read_checkpoint(self.checkpoint))
        for admitted in before:
            if self.admitted_pods.get(admitted.pod_uid) is admitted and self._gone(
                admitted, running, kept, table
            ):
                with _later(f"pod {admitted.namespace}/{admitted.pod}"):
                    self._remove(admitted)
                    freed += admitted.all_nonces
        in_use = {admitted.pod_uid for admitted in self.admitted_pods}
        for uid in (self.pods.known_uids() | self.ledger.pod_uids()) - in_use:
            if self.pods.over(uid) and not self.pod_locks.taken(uid):
                with _later(f"pod {uid}"):
                    self.pods.forget(uid)
                    self.ledger.release(uid)
        owned = {nonce for admitted in self.admitted_pods for nonce in admitted.all_nonces}
        for nonce in self.specs.nonces() - owned:
            with _later(f"CDI spec {nonce}"):
                self.specs.remove(nonce)

    def _gone(
        self, admitted: AdmittedPod, running: Running, kept: frozenset[str], table: ProcessTable
    ) -> bool:
        """Whether the pod is gone; `kept` are the pods that the kubelet's notes give ids to.

        A watch that lags shows the predecessor of a pod made anew under its name, and the kubelet runs
        a pod of that name: only its notes tell which of the two is the one to give back.
        """
        uid = admitted.pod_uid
        if self.pod_locks.taken(uid) or not self.pods.over(uid) or self._alive(uid, table):
            return False
        if (admitted.namespace, admitted.pod) not in running.pods:
            return True
        return self.pods.finished(uid) or (
            uid not in kept and self.pods.replaced(uid, admitted.namespace, admitted.pod)
        )

    def _alive(self, uid: str, table: ProcessTable) -> bool:
        """Whether a process of the pod lives, by its cgroup; by its pages only where there are no cgroups."""
        if table.by_cgroup:
            return uid in table.pod_uids
        return any(page_names_living(tenant, table) for tenant in self.tenants.of_pod(uid))

    def _remove(self, admitted: AdmittedPod) -> None:
        """The pages go first: what is open of them keeps the pod's volumes mounted, and so the pod from going.

        The tenancy's file goes last, so that a kill half-way, or a disk that takes nothing, is followed by another try.
        """
        for tenant in self.tenants.of_pod(admitted.pod_uid):
            self.leases.leave(lease_name(tenant.pod_uid, tenant.container))
        self.tenants.remove(admitted.pod_uid)
        for nonce in admitted.all_nonces:
            self.specs.remove(nonce)
        self.pods.forget(admitted.pod_uid)
        self.admitted_pods.remove(admitted.pod_uid)
        self.ledger.release(admitted.pod_uid)
        log.info(
            "pod %s/%s (%s) is gone; its slices are free", admitted.namespace, admitted.pod, admitted.pod_uid
        )

    def _unclaimed(self, running: Running) -> list[str]:
        """Nonces that nobody has claimed for long: those of pods that ended before they started.

        A pod that waits, perhaps for its image, has no tenancy yet; the kubelet's notes name its nonce. Where
        they cannot be read, what the kubelet says it holds counts.
        """
        owned = {nonce for admitted in self.admitted_pods for nonce in admitted.all_nonces}
        entries = read_checkpoint(self.checkpoint)
        kept = {entry.nonce for entry in entries}
        held = {(entry.resource, entry.ids) for entry in entries if not entry.nonce}
        if not entries:
            held = {(resource, ids) for one in running.holders for resource, ids in one.devices.items()}
        unclaimed = {
            one.nonce
            for one in self.journal.all()
            if one.nonce not in owned | kept and (one.resource, one.ids) not in held
        }
        now = time.monotonic()
        for nonce in self.unclaimed_since.keys() - unclaimed:
            del self.unclaimed_since[nonce]
        for nonce in unclaimed:
            self.unclaimed_since.setdefault(nonce, now)
        return [nonce for nonce, since in self.unclaimed_since.items() if now - since > UNCLAIMED_FOR_S]


@contextlib.contextmanager
def _later(what: str) -> Iterator[None]:
    """Leaves to a later sweep what cannot be removed now; the others are given back all the same."""
    try:
        yield
    except OSError as error:
        log.warning("not given back yet: %s: %s", what, error)


def page_names_living(tenant: TenantPages, table: ProcessTable) -> bool:
    """Whether a usage page names a process that lives; a page that cannot be read names nobody."""
    try:
        return living(read_usage(tenant.usage), tenant.pod_uid, table)
    except (OSError, PageError):
        return False
