"""Device plugins as the kubelet sees them: the Registration service, and an Endpoint for each resource."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = "v1beta1"
DIAL_SECONDS = 10
PRE_START_SECONDS = 30
FRESH = [("grpc.use_local_subchannel_pool", 1)]
"""A plugin that was not there a moment ago may be there now: a new channel forgets how an earlier one failed."""


class PluginError(Exception):
    """A plugin's call failed; the text is what the real kubelet would print."""


@dataclass(frozen=True)
class Device:
    """One device of a resource; `numa` is -1 where the plugin gave no topology."""

    id: str
    healthy: bool
    numa: int = -1


class EndpointListener(Protocol):
    """Who wants to know about plugins."""

    def plugin_connected(self, endpoint: Endpoint) -> None:
        """A plugin registered its resource (anew)."""

    def plugin_devices(self, endpoint: Endpoint, devices: Sequence[Device]) -> None:
        """A plugin sent its whole list."""

    def plugin_stopped(self, endpoint: Endpoint) -> None:
        """A plugin's stream ended."""


@dataclass
class Endpoint:
    """The connection to one resource's plugin; without a channel it is only remembered from a checkpoint."""

    resource: str
    channel: grpc.aio.Channel | None = None
    socket: str = ""
    pre_start: bool = False
    preferred: bool = False
    stopped: bool = field(default=False)

    @property
    def _stub(self) -> api_pb2_grpc.DevicePluginStub:
        if self.channel is None or self.stopped:
            raise PluginError(f"endpoint {self.resource} has been stopped")
        return api_pb2_grpc.DevicePluginStub(self.channel)

    async def read_options(self) -> None:
        """Ask the plugin which optional calls it wants."""
        options = await self._stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=DIAL_SECONDS)
        self.pre_start = options.pre_start_required
        self.preferred = options.get_preferred_allocation_available

    async def listen(self, listener: EndpointListener) -> None:
        """Follow the plugin's list until the stream ends."""
        with contextlib.suppress(grpc.aio.AioRpcError, PluginError):
            async for message in self._stub.ListAndWatch(api_pb2.Empty()):
                listener.plugin_devices(self, [_device(device) for device in message.devices])
        self.stopped = True
        listener.plugin_stopped(self)

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """Which ids the plugin would like best; empty when it does not care."""
        if not self.preferred:
            return []
        request = api_pb2.PreferredAllocationRequest(
            container_requests=[
                api_pb2.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
                )
            ]
        )
        try:
            answer = await self._stub.GetPreferredAllocation(request)
        except grpc.aio.AioRpcError as error:
            raise PluginError(
                f"device plugin GetPreferredAllocation rpc failed with err: {_text(error)}"
            ) from error
        responses = answer.container_responses
        return list(responses[0].deviceIDs) if responses else []

    async def allocate(self, ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        """Allocate for one container; there is no deadline, as in the real kubelet."""
        request = api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)]
        )
        try:
            answer = await self._stub.Allocate(request)
        except grpc.aio.AioRpcError as error:
            raise PluginError(_text(error)) from error
        if not answer.container_responses:
            raise PluginError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def pre_start_container(self, ids: Sequence[str]) -> None:
        """Tell the plugin that a container with these ids is about to start (where it wants to know)."""
        if not self.pre_start:
            return
        prefix = "device plugin PreStartContainer rpc failed with err: "
        try:
            request = api_pb2.PreStartContainerRequest(devices_ids=ids)
            await self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PluginError(prefix + _text(error)) from error
        except PluginError as error:
            raise PluginError(prefix + str(error)) from error

    async def close(self) -> None:
        """Drop the connection."""
        self.stopped = True
        if self.channel is not None:
            await self.channel.close(None)


class Registration(api_pb2_grpc.RegistrationServicer):  # type: ignore[misc]
    """The service on `kubelet.sock`; dials back every plugin that registers."""

    def __init__(self, directory: Path, listener: EndpointListener) -> None:
        self._directory = directory
        self._listener = listener
        self._server: grpc.aio.Server | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._streams: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Remove every socket in the directory, as the real kubelet does, and serve."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)  # plugins that see the new socket make theirs anew
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._directory / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving and drop all plugins."""
        for task in self._streams:
            task.cancel()
        if self._server is not None:
            await self._server.stop(0)

    async def Register(  # noqa: N802 - the protocol's name
        self, request: api_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.Empty:
        """Check a registration and dial the plugin back, within the call.

        A socket over which it is connected is refused, as by kubelet 1.37, which refuses it from then on.
        """
        if request.version != VERSION:
            text = f'requested API version "{request.version}" is not supported by kubelet.'
            await context.abort(grpc.StatusCode.UNKNOWN, f'{text} Supported version is "{VERSION}"')
        if "/" not in request.resource_name:
            text = f"the ResourceName {request.resource_name!r} is invalid"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        socket = str(self._directory / request.endpoint)
        known = self._endpoints.get(request.resource_name)
        if known is not None and not known.stopped and known.socket == socket:
            await context.abort(grpc.StatusCode.UNKNOWN, f"device plugin already connected: {socket}")
        endpoint = Endpoint(
            request.resource_name, grpc.aio.insecure_channel(f"unix:{socket}", options=FRESH), socket=socket
        )
        try:
            await endpoint.read_options()
        except grpc.aio.AioRpcError as error:
            await endpoint.close()
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {_text(error)}")
        await self._adopt(endpoint)
        return api_pb2.Empty()

    async def _adopt(self, endpoint: Endpoint) -> None:
        old = self._endpoints.get(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        self._listener.plugin_connected(endpoint)
        if old is not None:
            await old.close()
        task = asyncio.create_task(endpoint.listen(self._listener))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)


def _device(device: api_pb2.Device) -> Device:
    nodes = device.topology.nodes
    return Device(device.ID, device.health == "Healthy", nodes[0].ID if nodes else -1)


def _text(error: grpc.aio.AioRpcError) -> str:
    """A gRPC error as Go prints it."""
    code = "".join(part.capitalize() for part in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"
