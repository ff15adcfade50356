"""The gate before every start of a container: PreStartContainer, once it is known whose container it is.

Device ids → pod and container → placement → does it cover the request, does it fit this node → tenancy on
disk → pages → CDI spec. Each step can be repeated at will, so a kill between any two of them costs nothing
but a retry by the kubelet. What may still come (a placement the watch has not brought, memory of a pod
that is ending) is waited for; an error costs the pod 15 s, so it is the answer only where waiting cannot
help or has not.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

from aliquot.api.names import (
    INJECT_ANNOTATION,
    INJECT_BY_FILE,
    PLACEMENT_ANNOTATION,
    SCHEDULER_NAME,
    ResourceNames,
    is_mig,
)
from aliquot.api.preload import has_interceptor_first
from aliquot.kube.objects import Pod
from aliquot.libshim.control_page import CardLimit, Control, Enforcement
from aliquot.libshim.page_file import PageError
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.driver_files import DriverFilesError
from aliquot.plugin.devices.mig import MigError
from aliquot.plugin.gate.control_words import ControlWords, tenant_name
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.kubelet.container_identity import ContainerIdentity, PodName, Starting
from aliquot.plugin.kubelet.usage_volumes import UsageVolumeError, UsageVolumes
from aliquot.plugin.sharing.burst_grants import BurstGrants
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.card_table import CardTable
from aliquot.plugin.state.node_ledger import LedgerError, NodeLedger
from aliquot.plugin.state.placement_check import PlacementMismatchError, check_cover
from aliquot.plugin.util.errors import GateError, NotYetError
from aliquot.request.placement import Charge, ContainerPlacement, Placement, PlacementError, read_placement
from aliquot.request.pod_request import RequestError, read_pod_request
from aliquot.units import MIB

log = logging.getLogger(__name__)

TRY_EVERY_S = 0.5


class Gate:
    """Lets containers in.

    `relieve` is asked to give back what ended pods held when a pod does not fit, `equipped` is told of pods that have
    got pages.
    """

    def __init__(
        self,
        *,
        node: str,
        names: ResourceNames,
        identity: ContainerIdentity,
        pods: Pods,
        ledger: NodeLedger,
        admitted_pods: AdmittedPods,
        tenants: TenantDirectories,
        specs: CdiSpecs,
        cards: CardTable,
        terms: ControlWords,
        usage_volumes: UsageVolumes,
        pod_locks: PodLocks,
        burst_grants: BurstGrants,
        relieve: Callable[[], Awaitable[None]],
        equipped: Callable[[str], None],
        wait_s: float,
    ) -> None:
        self._node = node
        self._names = names
        self._identity = identity
        self._pods = pods
        self._ledger = ledger
        self._admitted_pods = admitted_pods
        self._tenants = tenants
        self._specs = specs
        self._cards = cards
        self._terms = terms
        self._usage_volumes = usage_volumes
        self._pod_locks = pod_locks
        self._burst_grants = burst_grants
        self._relieve = relieve
        self._equipped = equipped
        self._wait_s = wait_s
        self.rebuilt = asyncio.Event()

    async def open(self, resource: str, ids: Collection[str]) -> None:
        """Makes everything ready for the container that holds these ids.

        Raises:
            GateError: placement and request contradict each other, or what was waited for has not come.
        """
        deadline, said = time.monotonic() + self._wait_s, ""
        while True:
            try:
                await self._attempt(resource, ids)
                return
            except NotYetError as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise GateError(f"{error} (waited {self._wait_s:g} s)") from error
                if str(error) != said:
                    log.info("a container waits: %s", error)
                said = str(error)
                await self._pods.wait(min(left_s, TRY_EVERY_S))

    async def _attempt(self, resource: str, ids: Collection[str]) -> None:
        if not self.rebuilt.is_set():
            raise NotYetError("the node agent is still finding out what runs on this node")
        for starting in await self._identity.identify(resource, ids):
            async with self._pod_locks.of(starting.pod.uid):
                with passing_faults(starting.pod):
                    if is_mig(resource):
                        await self._open_instances(starting)
                    else:
                        await self._open_slices(starting, len(ids))

    async def _open_slices(self, starting: Starting, count: int) -> None:
        placement = await self._placement(starting.pod)
        containers = {name: self._container(starting.pod, placement, name, count) for name in starting.nonces}
        await self._admit(starting, placement)
        for name, container in containers.items():
            nodes = [self._cards.node_of(share.uuid) for share in container.cards]
            by_file = await self._needs_file(starting.pod, name)
            control = self._terms.control_of(starting.pod, container)
            await self._equip(starting, name, control, nodes, by_file=by_file)
        self._equipped(starting.pod.uid)

    async def _open_instances(self, starting: Starting) -> None:
        """MIG instances: the ids are the cards, so there is no placement and nothing to divide."""
        equipment = {name: await self._instances(starting.pod, name) for name in starting.nonces}
        await self._admit(starting, None)
        for container, (limits, nodes) in equipment.items():
            control = Control(tenant_name(starting.pod, container), limits, Enforcement.OBSERVE)
            by_file = _asks_for_file(await self._seen(starting.pod))
            await self._equip(starting, container, control, nodes, by_file=by_file)

    async def _instances(self, pod: PodName, container: str) -> tuple[tuple[CardLimit, ...], list[str]]:
        """All MIG instances of a container, of whatever profiles: they share one control page."""
        devices = await self._identity.devices_of(pod, container)
        uuids = sorted(one for resource, ids in devices.items() if is_mig(resource) for one in ids)
        found = [self._cards.instance(uuid) for uuid in uuids]
        for card, instance, _ in found:
            if self._ledger.promised(card.uuid).memory_mib:
                await self._relieve()
                raise NotYetError(
                    f"pod {pod}: MIG instance {instance.uuid}: pods with slices still run on card {card.uuid}"
                )
        limits = tuple(CardLimit(instance.uuid, instance.memory_mib * MIB) for _, instance, _ in found)
        return limits, [node for _, _, nodes in found for node in nodes]

    async def _placement(self, pod: PodName) -> Placement:
        """The placement; a pod that was let in keeps the one it had then, whatever its annotation says now.

        Raises NotYetError while there is none, GateError where it contradicts the request.
        """
        admitted = self._admitted_pods.get(pod.uid)
        if admitted and admitted.placement and not admitted.recovered:
            return admitted.placement
        seen = self._pods.get(pod.uid)
        if seen is None or PLACEMENT_ANNOTATION not in seen.metadata.annotations:
            await self._pods.refresh(pod.namespace, pod.name)
            seen = self._pods.get(pod.uid)
        if seen is None:
            raise NotYetError(f"pod {pod}: not seen at the API server yet, so its placement is not known")
        try:
            placement = read_placement(seen.metadata.annotations, PLACEMENT_ANNOTATION, pod.uid)
            if placement is None:
                raise NotYetError(f"pod {pod}: has no placement; is its schedulerName {SCHEDULER_NAME}?")
            check_cover(
                read_pod_request(seen, self._names), placement, self._node, self._cards.offers(), self._names
            )
        except RequestError as error:
            raise GateError(f"pod {pod}: {error}") from error
        except (PlacementError, PlacementMismatchError) as error:
            text = str(error)
            raise GateError(text if text.startswith("pod ") else f"pod {pod}: {text}") from error
        return placement

    def _container(self, pod: PodName, placement: Placement, name: str, count: int) -> ContainerPlacement:
        """One container's place."""
        where = f"pod {pod}, container {name}, {self._names.gpu}"
        container = next((one for one in placement.containers if one.name == name), None)
        if container is None:
            raise GateError(f"{where}: holds {count} slice(s), the placement leaves it out")
        if len(container.cards) != count:
            raise GateError(
                f"{where}: holds {count} slice(s), the placement gives {len(container.cards)} card(s)"
            )
        return container

    async def _admit(self, starting: Starting, placement: Placement | None) -> None:
        """Enters the pod in the ledger and writes down that it is in, before anything is made for it."""
        pod = starting.pod
        await self._enter(pod, placement)
        known = self._admitted_pods.get(pod.uid)
        base = AdmittedPod(pod.uid, pod.namespace, pod.name, placement, known.nonces if known else {})
        if placement is None and known:
            base = known
        try:
            await asyncio.to_thread(self._admitted_pods.save, base.with_nonces(starting.nonces))
        except OSError:
            if known is None:
                self._ledger.release(pod.uid)
            raise

    async def _enter(self, pod: PodName, placement: Placement | None) -> None:
        if placement is None:
            return
        try:
            self._ledger.admit(pod.uid, placement.charges())
        except LedgerError as error:
            await self._relieve()
            raise NotYetError(f"pod {pod}: does not fit this node: {error}") from error
        for uuid, charge in placement.charges().items():
            self._await_grants(pod, uuid, charge)

    def _await_grants(self, pod: PodName, uuid: str, charge: Charge) -> None:
        """What is guaranteed must be there: it left the grants' budget with the entry, and may be in use yet."""
        beyond_mib = (
            self._burst_grants.held_mib(uuid) - self._ledger.grantable_mib(uuid)
            if charge.guaranteed_mib
            else 0
        )
        if beyond_mib > 0:
            raise NotYetError(
                f"pod {pod}: card {uuid}: {beyond_mib} MiB of what is guaranteed to it are held by burst pods yet"
            )

    async def _equip(
        self, starting: Starting, container: str, control: Control, nodes: list[str], *, by_file: bool
    ) -> None:
        """Pages first, then the specs that name them."""
        volume = await self._usage_volume(starting.pod, container)
        tenant = await asyncio.to_thread(self._tenants.prepare, starting.pod.uid, container, control, volume)
        for nonce in starting.nonces[container]:
            await asyncio.to_thread(self._specs.write, nonce, nodes, tenant, by_file=by_file)

    async def _needs_file(self, pod: PodName, container: str) -> bool:
        """Whether a container with a slice has the interceptor preloaded by a file.

        It has where its pod asks for it, and wherever its environment does not preload it: an annotation can be taken
        away between admission and start, the environment of a container cannot be changed.
        """
        seen = await self._seen(pod)
        if seen is None or _asks_for_file(seen):
            return True
        found = seen.container(container)
        return found is None or not has_interceptor_first(found.env)

    async def _usage_volume(self, pod: PodName, container: str) -> Path | None:
        """Where the container's usage page goes, if its pod has a volume for it."""
        seen = await self._seen(pod)
        found = seen.container(container) if seen else None
        return self._usage_volumes.of(pod.uid, found) if found else None

    async def _seen(self, pod: PodName) -> Pod | None:
        return self._pods.get(pod.uid) or await self._pods.refresh(pod.namespace, pod.name)


def _asks_for_file(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.annotations.get(INJECT_ANNOTATION) == INJECT_BY_FILE


@contextlib.contextmanager
def passing_faults(pod: PodName) -> Iterator[None]:
    """A full disk or a driver that is being upgraded may be mended while we wait."""
    try:
        yield
    except (OSError, PageError, DriverFilesError, MigError, UsageVolumeError) as error:
        raise NotYetError(f"pod {pod}: {error}") from error
