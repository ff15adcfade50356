"""A device plugin for tests of the pocket kubelet: records every call, and fails when told to.

It does what a node agent does: `Allocate` names a CDI device, `PreStartContainer` asks PodResources who the owner is
and writes the device's spec.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2 as podresources_pb2
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2_grpc as podresources_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aliquot.sandbox.cluster.cluster import NodePaths

RESOURCE = "lab.example/vgpu"
KIND = "lab.example/vgpu"


class FakePlugin(api_pb2_grpc.DevicePluginServicer):
    """Serves `lab.example/vgpu` on one node. `calls`: (name, what), in order."""

    def __init__(self, paths: NodePaths, ids: list[str]) -> None:
        self.paths = paths
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.allocate_error = ""
        self.pre_start_error = ""
        self.at_pre_start: Callable[[int], None] = lambda _: None
        self.write_specs = True
        self.edits: dict[str, Any] = {}
        self.hold_allocate = threading.Event()
        self.hold_allocate.set()
        self._devices = dict.fromkeys(ids, "Healthy")
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Serve, and register with the kubelet."""
        self.paths.cdi.mkdir(parents=True, exist_ok=True)
        socket = self.paths.device_plugins / "lab.sock"
        socket.unlink(missing_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(16))
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()
        self.register()

    def register(self) -> None:
        """Tell the kubelet (again)."""
        with grpc.insecure_channel(f"unix:{self.paths.device_plugins / 'kubelet.sock'}") as channel:
            request = api_pb2.RegisterRequest(version="v1beta1", endpoint="lab.sock", resource_name=RESOURCE)
            api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=10, wait_for_ready=True)
        self.calls.append(("Registered", {}))

    def stop(self) -> None:
        """Vanish, streams and all."""
        if self._server is not None:
            stopped = self._server.stop(0)
            with self._changed:
                self._changed.notify_all()
            stopped.wait()
            self._server = None

    def set_health(self, device: str, health: str) -> None:
        """Change a device's health and tell the kubelet."""
        with self._changed:
            self._devices[device] = health
            self._changed.notify_all()

    def names(self) -> list[str]:
        """Names of the calls, in order."""
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[dict[str, Any]]:
        """All calls of one name."""
        return [what for called, what in self.calls if called == name]

    def owners(self) -> list[tuple[str, str, str, tuple[str, ...]]]:
        """What PodResources says: namespace, pod, container, ids; one tuple per entry."""
        with grpc.insecure_channel(f"unix:{self.paths.pod_resources}") as channel:
            stub = podresources_grpc.PodResourcesListerStub(channel)
            listed = stub.List(podresources_pb2.ListPodResourcesRequest(), timeout=10)
        return [
            (pod.namespace, pod.name, container.name, tuple(entry.device_ids))
            for pod in listed.pod_resources
            for container in pod.containers
            for entry in container.devices
        ]

    def listed_pods(self) -> list[str]:
        """Names of the pods that PodResources lists."""
        with grpc.insecure_channel(f"unix:{self.paths.pod_resources}") as channel:
            stub = podresources_grpc.PodResourcesListerStub(channel)
            listed = stub.List(podresources_pb2.ListPodResourcesRequest(), timeout=10)
        return [pod.name for pod in listed.pod_resources]

    def GetDevicePluginOptions(self, _: Any, __: Any) -> api_pb2.DevicePluginOptions:  # noqa: N802
        """Both optional calls are wanted."""
        self.calls.append(("GetDevicePluginOptions", {}))
        return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def ListAndWatch(self, _: Any, context: Any) -> Iterator[api_pb2.ListAndWatchResponse]:  # noqa: N802
        """The list, and again after every change."""
        self.calls.append(("ListAndWatch", {}))
        with self._changed:
            while context.is_active():
                devices = [api_pb2.Device(ID=id_, health=health) for id_, health in self._devices.items()]
                yield api_pb2.ListAndWatchResponse(devices=devices)
                self._changed.wait(timeout=60)

    def GetPreferredAllocation(self, request: Any, _: Any) -> api_pb2.PreferredAllocationResponse:  # noqa: N802
        """The first ids in order."""
        (asked,) = request.container_requests
        must = list(asked.must_include_deviceIDs)
        others = [id_ for id_ in sorted(asked.available_deviceIDs) if id_ not in must]
        pick = (must + others)[: asked.allocation_size]
        what = {
            "available": len(asked.available_deviceIDs),
            "must": must,
            "size": asked.allocation_size,
            "pick": pick,
        }
        self.calls.append(("GetPreferredAllocation", what))
        response = api_pb2.ContainerPreferredAllocationResponse(deviceIDs=pick)
        return api_pb2.PreferredAllocationResponse(container_responses=[response])

    def Allocate(self, request: Any, context: Any) -> api_pb2.AllocateResponse:  # noqa: N802
        """A CDI name for these ids, and an environment variable that a pod may override."""
        (asked,) = request.container_requests
        ids = list(asked.devices_ids)
        what = {"ids": ids, "pods_listed": self.listed_pods(), "owners": self._owners_of(ids)}
        self.calls.append(("Allocate", what))
        self.hold_allocate.wait(30)
        if self.allocate_error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.allocate_error)
        response = api_pb2.ContainerAllocateResponse(envs={"LAB_ALLOC_IDS": ",".join(ids)})
        response.cdi_devices.add(name=f"{KIND}={device_name(ids)}")
        return api_pb2.AllocateResponse(container_responses=[response])

    def PreStartContainer(self, request: Any, context: Any) -> api_pb2.PreStartContainerResponse:  # noqa: N802
        """Write the spec of these ids, unless told to fail."""
        ids = list(request.devices_ids)
        what = {"ids": ids, "deadline": context.time_remaining(), "owners": self._owners_of(ids)}
        self.calls.append(("PreStart", what))
        self.at_pre_start(len(self.of("PreStart")))
        if self.pre_start_error:
            context.abort(grpc.StatusCode.INTERNAL, self.pre_start_error)
        if self.write_specs:
            self.write_spec(ids, what["owners"])
        return api_pb2.PreStartContainerResponse()

    def write_spec(self, ids: list[str], owners: list[Any]) -> None:
        """Write the CDI spec of these ids (temporary file and rename)."""
        owner = "/".join(owners[0][:3]) if owners else ""
        edits = {"env": [f"LAB_OWNER={owner}"], **self.edits}
        device = {"name": device_name(ids), "containerEdits": edits}
        spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": [device]}
        temporary = self.paths.cdi / f".{device_name(ids)}.tmp"
        temporary.write_text(json.dumps(spec))
        temporary.replace(self.paths.cdi / f"{device_name(ids)}.json")

    def _owners_of(self, ids: list[str]) -> list[Any]:
        return [owner for owner in self.owners() if set(owner[3]) & set(ids)]


def device_name(ids: list[str]) -> str:
    """One name for a set of ids."""
    return "_".join(sorted(ids))
