"""Keeps the limits of running tenants at what was placed for their pods: a resize is a change of two words.

The scheduler extender approves a resize by writing the pod's placement anew, with other amounts in the same place. Here
it is checked against the node's own ledger, written down, and then written into the control pages, which the
tenant's processes follow at their next call.

    placement seen --fits--> ledger and tenancy: the larger --> pages: the new --> tenancy and ledger: the new

Neither ledger nor tenancy ever says less than a page, nor less than what a container still uses of what it had: who is
lowered below its use keeps that, and nobody else is promised it. Every step can be repeated, and after a restart every
page is compared once, so an agent killed at any point of it continues. What does not fit yet is told in an event and
tried again.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.libshim.control_page import Control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import ProcessTable
from aliquot.plugin.cluster.events import Events
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages, limit, living_processes
from aliquot.plugin.gate.control_words import ControlWords
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.kubelet.container_identity import PodName
from aliquot.plugin.sharing.leases import Leases, Membership
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.node_ledger import LedgerError, NodeLedger
from aliquot.request.placement import Placement, PlacementError, read_placement

log = logging.getLogger(__name__)

REASON = "ResizeNotApplied"
REASON_KEPT = "ResizeBelowUse"
KEPT = "it uses more than its new limits, and keeps that; until it uses less, this node counts what it had before"
RETRY_S = 1.0
IDLE_S = 60.0
"""What nobody tells of (a context's cost was learned) is followed as late as this."""


@dataclass(frozen=True)
class _InForce:
    """What holds for a pod's containers: their control pages, and how they are leased their cards."""

    controls: dict[str, Control]
    members: dict[str, Membership]


@dataclass
class LiveLimits:
    """Brings tenants' pages in line, one pod after the other."""

    pods: Pods
    ledger: NodeLedger
    admitted_pods: AdmittedPods
    tenants: TenantDirectories
    pod_locks: PodLocks
    terms: ControlWords
    leases: Leases
    events: Events
    rebuilt: asyncio.Event
    _in_force: dict[str, _InForce] = field(default_factory=dict)

    async def run(self) -> None:
        """Follows the pods until cancelled, once the ledger knows them all."""
        await self.rebuilt.wait()
        while True:
            changed = asyncio.ensure_future(self.pods.wait(IDLE_S))
            settled = [await self._follow(admitted.pod_uid) for admitted in self.admitted_pods]
            self._forget({admitted.pod_uid for admitted in self.admitted_pods})
            await asyncio.wait({changed}, timeout=None if all(settled) else RETRY_S)

    def look_again(self, uid: str) -> None:
        """Somebody else has written pages of this pod, by what was known when they began."""
        self._in_force.pop(uid, None)
        self.pods.notify()

    def _forget(self, here: Collection[str]) -> None:
        """Keeps nothing of pods that are gone."""
        for uid in self._in_force.keys() - here:
            del self._in_force[uid]
        self.events.keep(here)

    async def _follow(self, uid: str) -> bool:
        """One pod: whether it has its limits; says what keeps it from them."""
        admitted = self.admitted_pods.get(uid)
        if admitted is None or admitted.placement is None or self._is_in_force(admitted):
            return True
        pod = PodName(admitted.namespace, admitted.pod, uid)
        try:
            async with self.pod_locks.of(uid):
                await self._bring(pod)
        except (LedgerError, PageError, OSError) as error:
            await self.events.warn(pod, REASON, f"the limits stay as they are for now: {error}")
            return False
        self.events.over(pod, REASON)
        return uid in self._in_force

    def _is_in_force(self, admitted: AdmittedPod) -> bool:
        """Whether nothing has changed since the pages were written; asks no file."""
        wanted = self._wanted(admitted)
        in_force = self._in_force.get(admitted.pod_uid)
        return admitted.placement == wanted and in_force == self._wanted_in_force(admitted, wanted)

    async def _bring(self, pod: PodName) -> None:
        admitted = self.admitted_pods.get(pod.uid)
        if admitted is None or admitted.placement is None:
            return
        begin, old, new = time.monotonic(), admitted.placement, self._wanted(admitted)
        most = old | new if old.same_place(new) else new
        if old != new:
            self.ledger.admit(pod.uid, most.charges())
            await asyncio.to_thread(self.admitted_pods.save, replace(admitted, placement=most))
        wanted = self._wanted_in_force(admitted, new)
        await asyncio.to_thread(self._write, pod.uid, wanted)
        if old != new and await asyncio.to_thread(self._uses_more, pod.uid, wanted.controls):
            self._in_force.pop(pod.uid, None)
            await self.events.warn(pod, REASON_KEPT, KEPT)
            return
        if old != new:
            self.events.over(pod, REASON_KEPT)
            await asyncio.to_thread(
                self.admitted_pods.save, replace(admitted, placement=new, recovered=False)
            )
            self.ledger.admit(pod.uid, new.charges())
            log.info("pod %s has its new limits after %.0f ms", pod, 1000 * (time.monotonic() - begin))
        self._in_force[pod.uid] = wanted

    def _wanted(self, admitted: AdmittedPod) -> Placement:
        """What the pod's annotation says now, where that differs from what it was let in with in amounts alone."""
        assert admitted.placement is not None  # noqa: S101 - the callers looked
        pod = self.pods.get(admitted.pod_uid)
        try:
            said = pod and read_placement(pod.metadata.annotations, PLACEMENT_ANNOTATION, admitted.pod_uid)
        except PlacementError:
            said = None
        return said if said and follows(admitted, said) else admitted.placement

    def _wanted_in_force(self, admitted: AdmittedPod, placement: Placement) -> _InForce:
        pod = PodName(admitted.namespace, admitted.pod, admitted.pod_uid)
        return _InForce(
            {one.name: self.terms.control_of(pod, one) for one in placement.containers},
            {one.name: self.terms.membership_of(pod, one) for one in placement.containers},
        )

    def _write(self, uid: str, wanted: _InForce) -> None:
        """Writes the pages there are, and has time leased by them; other containers get theirs at the gate."""
        for tenant in self.tenants.of_pod(uid):
            control = wanted.controls.get(tenant.container)
            if control and tenant.control.path.exists():
                limit(tenant, control)
                self.leases.follow(tenant, control, wanted.members[tenant.container])

    def _uses_more(self, uid: str, controls: Mapping[str, Control]) -> bool:
        """Whether a container has more of a card than its limit, or hides what it has."""
        tenants = [one for one in self.tenants.of_pod(uid) if one.container in controls]
        table = self.tenants.processes.read()
        return any(uses_more(tenant, controls[tenant.container], table) for tenant in tenants)


def uses_more(tenant: TenantPages, control: Control, table: ProcessTable) -> bool:
    """Whether a container says that it has more of a card than its limit; who says nothing is taken to."""
    try:
        usage = read_usage(tenant.usage)
    except (OSError, PageError):
        return tenant.control.path.exists()
    imported = (one for one in usage.processes if not one.pid)  # by others, from a process that has ended
    processes = (*living_processes(usage, tenant.pod_uid, table), *imported)
    used = [sum(one.memory_bytes[index] for one in processes) for index in range(len(control.cards))]
    return any(now > card.memory_bytes for now, card in zip(used, control.cards, strict=True))


def follows(admitted: AdmittedPod, said: Placement) -> bool:
    """Whether a placement is the tenancy's own with other amounts.

    A tenancy that was read off the pages knows only containers that were started, and not their kinds.
    """
    assert admitted.placement is not None  # noqa: S101 - the callers looked
    if not admitted.recovered:
        return admitted.placement.same_place(said)
    cards = {one.name: [share.uuid for share in one.cards] for one in said.containers}
    return said.node == admitted.placement.node and all(
        cards.get(one.name) == [share.uuid for share in one.cards] for one in admitted.placement.containers
    )
