"""The node agent: every part, put together and kept running.

Start-up asks only this machine: lock, cards, files. The kubelet is served as soon as that is done, because
pods whose plugin is missing when the kubelet restarts are rejected for good; the API server may come
whenever it likes.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import IO

from prometheus_client import CollectorRegistry

from aliquot.arbiter import Arbiter
from aliquot.crds.gpu_node import GPUNodeStatus
from aliquot.kube.api import Api
from aliquot.node.processes import ProcessTable, may_trace
from aliquot.plugin.cluster.events import Events
from aliquot.plugin.cluster.gpu_node import GpuNodePublisher, describe
from aliquot.plugin.cluster.node_summary import NodeSummary
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.cluster.pools import Pools
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.interceptor import install_interceptor
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.devices.health import Health
from aliquot.plugin.devices.nvml_cards import Card, CardsError, Nvml
from aliquot.plugin.devices.sysfs import pcie_root, rdma_nics
from aliquot.plugin.gate.control_words import ControlWords
from aliquot.plugin.gate.garbage_collection import GarbageCollector
from aliquot.plugin.gate.gate import Gate
from aliquot.plugin.gate.live_limits import LiveLimits
from aliquot.plugin.gate.pod_locks import PodLocks
from aliquot.plugin.gate.preferred_allocation import SlicePreference, choose_any, slice_id
from aliquot.plugin.gate.recovery import (
    adopt_admitted_pods,
    adopt_running,
    recover_admitted_pods,
    unknown_pods,
)
from aliquot.plugin.kubelet.allocation_journal import AllocationJournal
from aliquot.plugin.kubelet.checkpoint import FILE_NAME
from aliquot.plugin.kubelet.container_identity import ContainerIdentity
from aliquot.plugin.kubelet.device_plugin import Device, DevicePlugin
from aliquot.plugin.kubelet.pod_resources import PodResources, PodResourcesError
from aliquot.plugin.kubelet.registration import Registration
from aliquot.plugin.kubelet.usage_volumes import UsageVolumes
from aliquot.plugin.metrics import NodeCollector
from aliquot.plugin.settings import Settings
from aliquot.plugin.sharing.arbiter_metrics import ArbiterCollector
from aliquot.plugin.sharing.burst_grants import BurstGrants
from aliquot.plugin.sharing.lease_length import LeaseLength
from aliquot.plugin.sharing.leases import Leases
from aliquot.plugin.sharing.overhead import Overheads
from aliquot.plugin.sharing.watchdog import Watchdog
from aliquot.plugin.state.admitted_pods import AdmittedPods
from aliquot.plugin.state.card_table import CardTable
from aliquot.plugin.state.node_ledger import NodeLedger
from aliquot.plugin.util.atomic_files import make_private
from aliquot.plugin.util.latest_value import LatestValue
from aliquot.server import service
from aliquot.server.authn import make_guard
from aliquot.server.certificate_metrics import CertificateCollector
from aliquot.server.metrics import Metrics, add_routes
from aliquot.server.tls import server_context

log = logging.getLogger(__name__)

DISCOVER_EVERY_S = 30.0
KUBELET_RETRY_S = 0.25
API_PATIENCE_S = 3.0
METRICS_PATIENCE_S = 1.0
LARGEST_BODY = 1 << 10
"""Nobody has to send one."""


class AlreadyRunningError(Exception):
    """Another agent works on this node's state; names its process where that is known."""


@contextlib.contextmanager
def only_agent(state_dir: Path) -> Iterator[None]:
    """Holds the node's lock. Raises AlreadyRunningError if another process does; it ends with the process."""
    make_private(state_dir)
    with (state_dir / "lock").open("a+") as file:
        lock_or_refuse(file, state_dir)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def lock_or_refuse(file: IO[str], state_dir: Path) -> None:
    """Takes the lock or says who has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        raise AlreadyRunningError(
            f"another node agent (process {holder}) works on this node: it holds {state_dir / 'lock'}"
        ) from None


class Agent:
    """One node's agent. `run` serves until cancelled."""

    def __init__(self, settings: Settings, nvml: Nvml, api: Api) -> None:
        self._settings = settings
        self._nvml = nvml
        self._api = api
        self._cards: LatestValue[tuple[Card, ...]] = LatestValue(())
        self._health = Health(nvml, self._cards)
        self._status = LatestValue(GPUNodeStatus(slices_per_card=settings.slices_per_card))
        self._devices: dict[str, LatestValue[tuple[Device, ...]]] = {}
        self._registrations: list[Registration] = []
        self._registry = CollectorRegistry()
        self._calls = Metrics(self._registry, "plugin").timer(
            "call", "Calls of the kubelet", ("ok", "refused"), ("call", "resource")
        )
        self._node = OwnNode(api, settings.node)
        self._pools = Pools(api, self._node, settings.state_dir / "pools.json")
        self._pools.on_change(self._follow_pools)
        self._table = CardTable(settings.reserve_mib, settings.proc_root, self._pools.of)
        self._journal = AllocationJournal(settings.state_dir / "journal")
        self._admitted_pods = AdmittedPods(settings.state_dir / "tenancies")
        self._tenants = TenantDirectories(settings.run_dir, settings.processes)
        self._ledger = NodeLedger({})
        self._pod_locks = PodLocks()
        self._arbiter = Arbiter() if settings.arbiter else None
        self._leases = Leases(self._arbiter)
        self._processes = ProcessTable()
        self._pods = Pods(api, settings.node, settings.state_dir / "pods")
        self._ledger.on_change(self._pods.notify)
        self._terms = ControlWords(self._table, self._pods, self._ledger, self._leases, settings.enforcement)
        self._pod_resources = PodResources(settings.pod_resources_socket)
        self._checkpoint = settings.device_plugins / FILE_NAME
        self._specs = CdiSpecs(
            directory=settings.cdi_dir,
            driver=settings.driver,
            dev_root=settings.dev_root,
            interceptor=install_interceptor(settings.library, settings.state_dir, settings.forwarders),
        )
        self._specs.prepare()
        self._garbage_collector = self._build_garbage_collector()
        self._burst_grants = BurstGrants(self._ledger, self._admitted_pods, self._tenants)
        self._gate = self._build_gate()
        self._events = Events(api, settings.node)
        self._limits = self._build_limits()
        self._watchdog = self._build_watchdog()
        self._lease_length = LeaseLength(self._table, self._tenants, self._leases)
        self._overheads = Overheads(
            nvml, self._table, self._tenants, self._admitted_pods, settings.processes.proc
        )
        self._publisher = GpuNodePublisher(
            api, self._node, self._status, NodeSummary(self._pods, self._ledger)
        )

    def _build_garbage_collector(self) -> GarbageCollector:
        return GarbageCollector(
            pods=self._pods,
            pod_resources=self._pod_resources,
            checkpoint=self._checkpoint,
            journal=self._journal,
            admitted_pods=self._admitted_pods,
            tenants=self._tenants,
            specs=self._specs,
            ledger=self._ledger,
            leases=self._leases,
            pod_locks=self._pod_locks,
            processes=self._settings.processes,
        )

    def _build_gate(self) -> Gate:
        return Gate(
            node=self._settings.node,
            names=self._settings.names,
            identity=ContainerIdentity(self._journal, self._pod_resources, self._checkpoint, self._pods),
            pods=self._pods,
            ledger=self._ledger,
            admitted_pods=self._admitted_pods,
            tenants=self._tenants,
            specs=self._specs,
            cards=self._table,
            terms=self._terms,
            usage_volumes=UsageVolumes(self._settings.pods_dir),
            pod_locks=self._pod_locks,
            burst_grants=self._burst_grants,
            relieve=self._garbage_collector.sweep,
            equipped=self._look_again,
            wait_s=self._settings.wait_s,
        )

    def _look_again(self, uid: str) -> None:
        """Limits know of the gate, which was built first."""
        self._limits.look_again(uid)

    def _build_limits(self) -> LiveLimits:
        return LiveLimits(
            pods=self._pods,
            ledger=self._ledger,
            admitted_pods=self._admitted_pods,
            tenants=self._tenants,
            pod_locks=self._pod_locks,
            terms=self._terms,
            leases=self._leases,
            events=self._events,
            rebuilt=self._gate.rebuilt,
        )

    def _build_watchdog(self) -> Watchdog:
        return Watchdog(
            nvml=self._nvml,
            leases=self._leases,
            admitted_pods=self._admitted_pods,
            tenants=self._tenants,
            pods=self._pods,
            events=self._events,
            processes=self._settings.processes,
        )

    async def run(self) -> None:
        """Serves until cancelled. Raises CardsError if the driver cannot list the cards at the start."""
        if os.geteuid() == 0 and not may_trace():
            log.warning(
                "the capability SYS_PTRACE is missing: other users' processes are told apart by pid and start time "
                "alone, and what the driver says of them is of no use"
            )
        self._take_over(await asyncio.to_thread(self._nvml.cards))
        recover_admitted_pods(self._admitted_pods, self._tenants, self._settings.node)
        adopt_admitted_pods(self._ledger, self._admitted_pods)
        async with self._serving_metrics(), self._arbitrating(), asyncio.TaskGroup() as group:
            for work in (
                self._rebuild(),
                self._pods.run(),
                self._node.run(),
                self._pools.run(),
                self._garbage_collector.run(),
                self._limits.run(),
            ):
                group.create_task(work)
            for work in (
                self._health.run(),
                self._follow_health(),
                self._publisher.run(),
                self._burst_grants.run(),
                self._overheads.run(),
                self._watchdog.run(),
                self._lease_length.run(),
            ):
                group.create_task(work)
            await self._serve_resources(group)

    async def _serve_resources(self, group: asyncio.TaskGroup) -> None:
        """Registers each resource once, also those that appear later (a MIG instance of a new profile)."""
        served: set[str] = set()
        async for _ in self._cards.changes():
            for resource in sorted(self._devices.keys() - served):
                registration = Registration(
                    self._settings.device_plugins, self._device_plugin(resource), self._publisher.compare
                )
                self._registrations.append(registration)
                group.create_task(registration.run())
                served.add(resource)

    def _device_plugin(self, resource: str) -> DevicePlugin:
        slices = resource == self._settings.names.gpu
        return DevicePlugin(
            resource,
            self._devices[resource],
            self._journal,
            self._gate.open,
            SlicePreference(self._pods, self._ledger) if slices else choose_any,
            self._calls,
        )

    async def _rebuild(self) -> None:
        """Opens the gate once it is known what the kubelet runs, and looks again when the API server has answered.

        Pods that only the API server could tell about are waited for, but not for long: it may be away.
        """
        patience, settled = time.monotonic() + API_PATIENCE_S, False
        while not settled:
            synced = self._pods.synced
            try:
                running = await self._pod_resources.list()
            except PodResourcesError:
                await asyncio.sleep(KUBELET_RETRY_S)
                continue
            names = self._settings.names
            strangers = unknown_pods(running, self._pods, self._admitted_pods, names)
            if synced or not strangers or time.monotonic() > patience:
                adopt_running(self._ledger, self._pods, self._admitted_pods, running, self._checkpoint, names)
                self._gate.rebuilt.set()
            settled = synced
            if not settled:
                await self._pods.wait(KUBELET_RETRY_S)

    async def _follow_health(self) -> None:
        """Lists the cards again now and then, and tells kubelet and cluster what has changed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._discover())
            async for _ in self._health.reasons.changes():
                self._announce()

    async def _discover(self) -> None:
        while True:
            await asyncio.sleep(DISCOVER_EVERY_S)
            try:
                self._take_over(await asyncio.to_thread(self._nvml.cards))
            except CardsError as error:
                log.warning("cards not listed again, the last list stays: %s", error)

    def _follow_pools(self) -> None:
        """A pool has changed: capacities, inventory and the limits of running tenants follow."""
        self._ledger.set_capacities(self._table.capacities())
        self._announce()
        self._pods.notify()

    def _take_over(self, cards: tuple[Card, ...]) -> None:
        self._table.set(cards)
        self._ledger.set_capacities(self._table.capacities())
        self._announce(cards)
        self._cards.set(cards)

    def _announce(self, cards: tuple[Card, ...] | None = None) -> None:
        """Brings device lists and inventory up to date."""
        cards = self._cards.value if cards is None else cards
        reasons = self._health.reasons.value
        listed = self._listed(cards, reasons)
        for resource in listed.keys() | self._devices.keys():
            devices = tuple(listed.get(resource, ()))
            self._devices.setdefault(resource, LatestValue(())).set(devices)
        described = tuple(
            describe(
                card,
                self._table.reserve_mib(card.uuid),
                reasons.get(card.uuid, ""),
                pcie_root(self._settings.sys_root, card.bus_id),
            )
            for card in cards
        )
        self._status.set(
            GPUNodeStatus(
                slices_per_card=self._settings.slices_per_card,
                cards=described,
                nics=rdma_nics(self._settings.sys_root),
            ),
        )

    def _listed(self, cards: tuple[Card, ...], reasons: Mapping[str, str]) -> dict[str, list[Device]]:
        """Every device id by resource; ids that somebody holds stay listed whatever was changed."""
        names = self._settings.names
        listed: dict[str, dict[str, Device]] = {names.gpu: {}}
        for card in cards:
            well = card.uuid not in reasons
            for number in range(0 if card.mig_enabled else self._settings.slices_per_card):
                one = slice_id(card.uuid, number)
                listed[names.gpu][one] = Device(one, well)
            for instance in card.mig:
                resource = names.mig_resource(instance.profile)
                free = self._journal.only_for(resource, instance.uuid)
                listed.setdefault(resource, {})[instance.uuid] = Device(instance.uuid, well and free)
        for allocation in self._journal.all():
            devices = listed.setdefault(allocation.resource, {})
            for one in allocation.ids:
                devices.setdefault(one, Device(one))
        return {resource: [found[one] for one in sorted(found)] for resource, found in listed.items()}

    @contextlib.asynccontextmanager
    async def _arbitrating(self) -> AsyncIterator[None]:
        """Has the arbiter's thread run. Where it has ended, the caps in their pages hold for tenants."""
        if self._arbiter is None:
            yield
            return
        if not self._arbiter.start(real_time=True):
            log.info(
                "no real-time priority for the arbiter, as the capability SYS_NICE is missing or the kernel gives "
                "containers none: where CPUs are busy, cards are handed over later"
            )
        try:
            yield
        finally:
            self._arbiter.stop()

    @contextlib.asynccontextmanager
    async def _serving_metrics(self) -> AsyncIterator[None]:
        """Serves /metrics, /healthz and /readyz, unless the port is negative."""
        settings = self._settings
        self._registry.register(self._collector())
        self._registry.register(CertificateCollector(settings.tls_cert, settings.client_ca))
        if self._arbiter is not None:
            self._registry.register(ArbiterCollector(self._arbiter))
        guard = make_guard(
            settings.client_names if settings.client_ca else None,
            self._api if settings.accept_tokens else None,
        )
        app = service.application(LARGEST_BODY, guard)
        add_routes(app, self._registry, self._missing, self._look_at_processes)
        if settings.metrics_port < 0:
            yield
            return
        async with service.listening(
            app, settings.metrics_host, settings.metrics_port, self._tls(), patience=METRICS_PATIENCE_S
        ) as runner:
            log.info("metrics on %s", runner.addresses)
            yield

    def _tls(self) -> ssl.SSLContext | None:
        """How the metrics are served; None: without TLS."""
        settings = self._settings
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return server_context(settings.tls_cert, settings.tls_key, settings.client_ca)

    async def _look_at_processes(self) -> None:
        """A walk over /proc takes 0.1 ms a process, which Allocate must not wait for."""
        self._processes = await asyncio.to_thread(self._settings.processes.read)

    def _collector(self) -> NodeCollector:
        return NodeCollector(
            node=self._settings.node,
            cards=lambda: self._cards.value,
            usable_mib=lambda: {uuid: offer.usable_mib for uuid, offer in self._table.offers().items()},
            used_bytes=lambda: self._health.used_bytes,
            unwell=lambda: self._health.reasons.value,
            errors=lambda: self._health.errors,
            alive=lambda: self._processes,
            ledger=self._ledger,
            admitted_pods=self._admitted_pods,
            tenants=self._tenants,
        )

    def _missing(self) -> str:
        """What keeps the agent from being ready, in words."""
        waiting = [r.resource for r in self._registrations if not r.registered]
        if waiting or not self._registrations:
            return f"not registered with the kubelet: {', '.join(waiting) or 'nothing to register yet'}"
        if not self._gate.rebuilt.is_set():
            return "the kubelet has not said what it runs"
        return "" if self._publisher.published else "inventory not published"
