"""The PodResources service: which container of which pod owns which device ids.

As the real one: pods by namespace and name only, one entry per id, plain init containers left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import grpc

from aliquot.sandbox.cluster.objects import name_of, namespace_of, uid_of
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aliquot.sandbox.cluster.kubelet.devices import DeviceManager
    from aliquot.sandbox.cluster.objects import Obj


class Pods(Protocol):
    """Where the pods are."""

    def active_pods(self) -> Iterable[Obj]:
        """Pods of this node that hold resources, the one being admitted included."""


class PodResources(api_pb2_grpc.PodResourcesListerServicer):  # type: ignore[misc]
    """The service on its socket."""

    def __init__(self, socket: Path, pods: Pods, devices: DeviceManager) -> None:
        self._socket = socket
        self._pods = pods
        self._devices = devices
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve, in place of whatever socket is there."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.stop(0)

    async def List(  # noqa: N802 - the protocol's name
        self, _: api_pb2.ListPodResourcesRequest, __: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.ListPodResourcesResponse:
        """All active pods."""
        return api_pb2.ListPodResourcesResponse(
            pod_resources=[self._pod(p) for p in self._pods.active_pods()]
        )

    async def Get(  # noqa: N802 - the protocol's name
        self, request: api_pb2.GetPodResourcesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.GetPodResourcesResponse:
        """One active pod."""
        for pod in self._pods.active_pods():
            if (namespace_of(pod), name_of(pod)) == (request.pod_namespace, request.pod_name):
                return api_pb2.GetPodResourcesResponse(pod_resources=self._pod(pod))
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError

    async def GetAllocatableResources(  # noqa: N802 - the protocol's name
        self, _: api_pb2.AllocatableResourcesRequest, __: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.AllocatableResourcesResponse:
        """Every healthy device."""
        return api_pb2.AllocatableResourcesResponse(
            devices=[_entry(resource, device.id, device.numa) for resource, device in self._devices.healthy()]
        )

    def _pod(self, pod: Obj) -> api_pb2.PodResources:
        sidecars = [c for c in pod["spec"].get("initContainers") or () if c.get("restartPolicy") == "Always"]
        return api_pb2.PodResources(
            name=name_of(pod),
            namespace=namespace_of(pod),
            containers=[
                api_pb2.ContainerResources(name=c["name"], devices=self._entries(uid_of(pod), c["name"]))
                for c in [*sidecars, *pod["spec"]["containers"]]
            ],
        )

    def _entries(self, pod_uid: str, container: str) -> list[api_pb2.ContainerDevices]:
        return [
            _entry(allocation.resource, id_, numa)
            for allocation in self._devices.allocations_of(pod_uid, container)
            for numa, ids in allocation.devices.items()
            for id_ in ids
        ]


def _entry(resource: str, id_: str, numa: int) -> api_pb2.ContainerDevices:
    entry = api_pb2.ContainerDevices(resource_name=resource, device_ids=[id_])
    if numa >= 0:
        entry.topology.nodes.add(ID=numa)
    return entry
