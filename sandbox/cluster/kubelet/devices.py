"""The device manager: hands device ids out to containers, as the real kubelet does, and remembers them.

Errors while admitting are final for a pod; errors before a container's start are retried. The rules kept from
the real one: one Allocate per container and resource; ids of a plain init container are used again by later
containers of its pod, without asking for a preference; what a container got is never asked for again; a
resource whose plugin is gone keeps its capacity and has nothing allocatable.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import quantity
from aliquot.sandbox.cluster.kubelet.checkpoint import Allocation, Checkpoint
from aliquot.sandbox.cluster.kubelet.endpoints import Device, Endpoint
from aliquot.sandbox.cluster.objects import uid_of
from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from aliquot.sandbox.cluster.objects import Obj


class AdmissionError(Exception):
    """The pod is rejected for good; the text goes into its status."""


@dataclass
class Resource:
    """One extended resource: its plugin and its devices by id."""

    endpoint: Endpoint
    devices: dict[str, Device] = field(default_factory=dict)

    @property
    def healthy(self) -> list[str]:
        """Ids that may be given out, in the plugin's order."""
        return [device.id for device in self.devices.values() if device.healthy]


class DeviceManager:
    """Devices of the node. Listens to endpoints; `changed` is called when capacity or health changed."""

    def __init__(self, directory: Path, changed: Callable[[], None]) -> None:
        self._directory = directory
        self._changed = changed
        checkpoint = Checkpoint.read(directory)
        self._allocations: list[Allocation] = checkpoint.allocations
        self._resources = {name: Resource(Endpoint(name, stopped=True)) for name in checkpoint.registered}
        self._admission = asyncio.Lock()
        self._missing = set(self._resources)
        self._arrival = asyncio.Event()

    def plugin_connected(self, endpoint: Endpoint) -> None:
        """A plugin is there; its devices count once it has sent them."""
        self._resources.setdefault(endpoint.resource, Resource(endpoint)).endpoint = endpoint

    def plugin_devices(self, endpoint: Endpoint, devices: Sequence[Device]) -> None:
        """Take over a plugin's list."""
        resource = self._resources[endpoint.resource]
        if resource.endpoint is endpoint:
            resource.devices = {device.id: device for device in devices}
            self._write()
            self._missing.discard(endpoint.resource)
            self._arrival.set()
            self._changed()

    async def remembered_plugins(self, patience: float) -> None:
        """Return once all resources known from before a restart are back, or after `patience` seconds.

        The real kubelet has no such wait, but it takes about as long from serving `kubelet.sock` to its first
        pod; a plugin that is slower loses the pods that were not running.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self._missing:
                    self._arrival.clear()
                    await self._arrival.wait()

    def plugin_stopped(self, endpoint: Endpoint) -> None:
        """All devices of a plugin that went away are unhealthy until it registers again."""
        resource = self._resources[endpoint.resource]
        if resource.endpoint is endpoint:
            resource.devices = {
                d.id: Device(d.id, healthy=False, numa=d.numa) for d in resource.devices.values()
            }
            self._changed()

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Resource → capacity and allocatable, in devices."""
        return {name: (len(r.devices), len(r.healthy)) for name, r in self._resources.items()}

    def healthy(self) -> Iterator[tuple[str, Device]]:
        """Every healthy device with its resource."""
        for name, resource in self._resources.items():
            yield from ((name, device) for device in resource.devices.values() if device.healthy)

    def allocations_of(self, pod_uid: str, container: str) -> list[Allocation]:
        """What a container holds."""
        return [a for a in self._allocations if (a.pod_uid, a.container) == (pod_uid, container)]

    def health(self, pod_uid: str, container: str) -> list[Obj]:
        """`allocatedResourcesStatus` of a container."""
        return [
            {"name": a.resource, "resources": [self._health_of(a.resource, id_) for id_ in a.ids]}
            for a in self.allocations_of(pod_uid, container)
        ]

    async def admit(self, pod: Obj, active: Iterable[str], running: Iterable[str]) -> None:
        """Allocate for all containers of a pod, in order; one pod at a time.

        Args:
            pod: the pod.
            active: UIDs of pods whose devices are not free (this one's included).
            running: names of this pod's containers that already run (after a restart of the kubelet).

        Raises:
            AdmissionError: the pod cannot have what it asks for.
        """
        async with self._admission:
            self._release_all_but(set(active))
            reusable: dict[str, list[str]] = {}
            running = set(running)
            for container, plain_init in _containers(pod):
                if container["name"] not in running:
                    await self._allocate(uid_of(pod), container, reusable)
                for allocation in self.allocations_of(uid_of(pod), container["name"]):
                    rest = [i for i in reusable.get(allocation.resource, []) if i not in allocation.ids]
                    reusable[allocation.resource] = rest + (allocation.ids if plain_init else [])

    async def pre_start(self, pod_uid: str, container: str) -> list[api_pb2.ContainerAllocateResponse]:
        """Call the gate of every resource a container holds, and return what Allocate had answered.

        Raises:
            PluginError: a plugin refused or could not be reached.
        """
        responses = []
        for allocation in self.allocations_of(pod_uid, container):
            await self._resources[allocation.resource].endpoint.pre_start_container(allocation.ids)
            responses.append(api_pb2.ContainerAllocateResponse.FromString(allocation.response))
        return responses

    async def _allocate(self, pod_uid: str, container: Obj, reusable: dict[str, list[str]]) -> None:
        for name, amount in (container.get("resources", {}).get("limits") or {}).items():
            needed = int(quantity.parse(amount)) if name in self._resources else 0
            if needed == 0:
                continue
            try:
                ids = await self._choose(pod_uid, container["name"], name, needed, reusable.get(name, []))
                if ids:
                    response = await self._resources[name].endpoint.allocate(ids)
                    self._remember(pod_uid, container["name"], name, ids, response)
            except Exception as error:
                raise AdmissionError(f"Allocate failed due to {error}, which is unexpected") from error

    async def _choose(
        self, pod_uid: str, container: str, name: str, needed: int, reusable: Sequence[str]
    ) -> list[str]:
        """Ids to allocate; none when the container has all it needs from before."""
        resource = self._resources[name]
        held = [i for a in self.allocations_of(pod_uid, container) if a.resource == name for i in a.ids]
        healthy = resource.healthy
        if not healthy:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {name}")
        if not set(held) <= set(healthy):
            raise AdmissionError(
                "previously allocated devices are no longer healthy;"
                f" cannot allocate unhealthy devices {name}"
            )
        if held:
            return []
        chosen = list(reusable[:needed])
        if len(chosen) == needed:
            return chosen
        taken = {i for a in self._allocations if a.resource == name for i in a.ids}
        available = [i for i in healthy if i not in taken]
        missing = needed - len(chosen)
        if len(available) < missing:
            raise AdmissionError(
                f"requested number of devices unavailable for {name}."
                f" Requested: {missing}, Available: {len(available)}"
            )
        preferred = await resource.endpoint.prefer(available + chosen, chosen, needed)
        order = [i for i in preferred if i in available] + available
        return chosen + list(dict.fromkeys(order))[:missing]

    def _remember(
        self,
        pod_uid: str,
        container: str,
        resource: str,
        ids: Sequence[str],
        response: api_pb2.ContainerAllocateResponse,
    ) -> None:
        devices: dict[int, list[str]] = {}
        for id_ in ids:
            devices.setdefault(self._resources[resource].devices[id_].numa, []).append(id_)
        entry = Allocation(
            pod_uid, container, resource, devices, response.SerializeToString(deterministic=True)
        )
        self._allocations.append(entry)
        self._write()

    def _release_all_but(self, active: set[str]) -> None:
        kept = [a for a in self._allocations if a.pod_uid in active]
        if len(kept) != len(self._allocations):
            self._allocations = kept
            self._write()

    def _health_of(self, resource: str, id_: str) -> Obj:
        device = self._resources[resource].devices.get(id_)
        return {"resourceID": id_, "health": "Healthy" if device and device.healthy else "Unhealthy"}

    def _write(self) -> None:
        registered = {name: resource.healthy for name, resource in self._resources.items()}
        Checkpoint(self._allocations, registered).write(self._directory)


def _containers(pod: Obj) -> Iterator[tuple[Obj, bool]]:
    """Containers in the order they are admitted, and whether each is a plain init container."""
    for container in pod["spec"].get("initContainers") or ():
        yield container, container.get("restartPolicy") != "Always"
    for container in pod["spec"]["containers"]:
        yield container, False
