"""The five calls of the kubelet's device plugin protocol, for one resource.

Allocate is where others go wrong: it has no deadline, the kubelet admits no pod at all while it runs, and
an error ends the pod for good. So it asks nobody anything: it draws a nonce, writes it down and answers.
Whatever can fail or wait happens in PreStartContainer, which has 30 s, holds up one pod only and is tried
again.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from aliquot.api.names import DOMAIN
from aliquot.plugin.kubelet.allocation_journal import Allocation, AllocationJournal
from aliquot.plugin.pb.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from aliquot.plugin.util.errors import GateError
from aliquot.plugin.util.latest_value import LatestValue
from aliquot.server.metrics import Timer

log = logging.getLogger(__name__)

CDI_KIND = f"{DOMAIN}/slice"
NONCE_BYTES = 16
ALLOCATE, PRE_START = "Allocate", "PreStartContainer"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


@dataclass(frozen=True)
class Device:
    """One device id as the kubelet sees it: a token to count with, not a promise of a card."""

    id: str
    healthy: bool = True


OpenGate = Callable[[str, Collection[str]], Awaitable[None]]
"""Called with (resource, ids) before each start of a container; raises GateError."""


class Preference(Protocol):
    """Chooses among free ids; a hint that the kubelet may ignore."""

    def __call__(self, available: Sequence[str], must: Sequence[str], size: int) -> Sequence[str]:
        """At most `size` ids of `available`, those of `must` first."""


class DevicePlugin:
    """Serves one resource. Messages are turned into our own values here and go no further."""

    def __init__(  # noqa: PLR0917 - each is of another type
        self,
        resource: str,
        devices: LatestValue[tuple[Device, ...]],
        journal: AllocationJournal,
        open_gate: OpenGate,
        prefer: Preference,
        calls: Timer,
    ) -> None:
        self.resource = resource
        self._devices = devices
        self._journal = journal
        self._open_gate = open_gate
        self._prefer = prefer
        self._calls = calls
        for call in (ALLOCATE, PRE_START):
            calls.expect(call, resource)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Puts the service on a gRPC server."""
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, server)

    async def GetDevicePluginOptions(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """What the kubelet may call besides Allocate."""
        return options()

    async def ListAndWatch(self, _request: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The full list at once, and again whenever it has changed."""
        async for devices in self._devices.changes():
            yield api_pb2.ListAndWatchResponse(devices=map(to_message, devices))

    async def GetPreferredAllocation(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """A hint which ids to take; it never waits and never fails."""
        chosen = [
            self._prefer(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            for one in request.container_requests
        ]
        return api_pb2.PreferredAllocationResponse(
            container_responses=[
                api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen
            ],
        )

    async def Allocate(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Answers each container with the CDI name of a fresh nonce, after the nonce is on disk."""
        with self._calls.measure(ALLOCATE, self.resource):
            drawn = [self._draw(one.devices_ids) for one in request.container_requests]
            await asyncio.to_thread(self._journal.record, drawn)
            return api_pb2.AllocateResponse(container_responses=map(to_answer, drawn))

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The gate: returns once the container's pages and CDI spec are there, else fails with the reason."""
        with self._calls.measure(PRE_START, self.resource) as outcome:
            try:
                await self._open_gate(self.resource, frozenset(request.devices_ids))
            except GateError as error:
                outcome.word = "refused"
                log.warning("refused to start a container: %s", error)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return api_pb2.PreStartContainerResponse()

    def _draw(self, ids: Sequence[str]) -> Allocation:
        return Allocation(nonce=secrets.token_hex(NONCE_BYTES), resource=self.resource, ids=frozenset(ids))


def options() -> Any:
    """The options told at registration and on request."""
    return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


def to_message(device: Device) -> Any:
    """A device as the kubelet reads it. No NUMA hint: a slice's id says nothing of the card it will be on."""
    return api_pb2.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)


def to_answer(allocation: Allocation) -> Any:
    """Allocate's answer for one container: a CDI name and nothing else.

    No environment: a pod's own would beat it, while a CDI spec's beats the pod's.
    """
    return api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=cdi_name(allocation.nonce))])


def cdi_name(nonce: str) -> str:
    """The full CDI device name of a nonce."""
    return f"{CDI_KIND}={nonce}"
