"""A kubelet small enough to hold in one hand: real sockets, and the order of calls a real one keeps.

It has its messages from the sandbox's copy of the protocols, not from the plugin's, so that one misreading
cannot hide in both ends. Containers never run: tests say when one would start.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2 as dp
from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2_grpc as dp_grpc
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2 as pr
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2_grpc as pr_grpc

DEADLINE_S = 60.0
NOTICE_S = 2.0
"""For a thread to notice what has happened before the call; a plugin waits longer for its answer."""


def until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until a condition holds and return its value; fail with `what` when it does not in time."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {deadline_s} s in vain: {what}"
        time.sleep(0.02)
    return value


@dataclass
class Held:
    """What one container holds of one resource, and the answer that Allocate gave."""

    namespace: str
    pod: str
    uid: str
    container: str
    resource: str
    ids: list[str]
    answer: Any
    init: bool = False

    @property
    def cdi(self) -> list[str]:
        """The CDI devices the runtime would be asked for."""
        return [device.name for device in self.answer.cdi_devices]

    @property
    def nonce(self) -> str:
        """The one nonce."""
        (name,) = self.cdi
        return name.partition("=")[2]


@dataclass
class Endpoint:
    """A plugin that registered."""

    resource: str
    socket: str
    stub: Any
    channel: Any
    options: Any
    devices: dict[str, str] = field(default_factory=dict)
    messages: int = 0
    ended: bool = False


class SmallKubelet(pr_grpc.PodResourcesListerServicer):
    """Serves Registration and PodResources; calls plugins as the kubelet's device manager does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plugins = directory / "device-plugins"
        self.socket = self.plugins / "kubelet.sock"
        self.endpoints: dict[str, Endpoint] = {}
        self.registrations = self.refused = 0
        self.held: list[Held] = []
        self.writes_checkpoint = True
        self._server: grpc.Server | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts as a kubelet does: every socket in the plugins' directory is removed first."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        for socket in self.plugins.glob("*.sock"):
            socket.unlink(missing_ok=True)  # the plugin makes its own anew meanwhile
        (self.directory / "pod-resources").mkdir(exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        dp_grpc.add_RegistrationServicer_to_server(self, self._server)
        pr_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.add_insecure_port(f"unix://{self.directory / 'pod-resources' / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        """Ends; its own sockets vanish with it, what it knows of pods is kept."""
        if self._server is not None:
            self._server.stop(0).wait()
        for endpoint in self.endpoints.values():
            endpoint.channel.close()
        self.endpoints.clear()
        self._server = None
        self.socket.unlink(missing_ok=True)

    def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A plugin says where it serves; it is asked back in a thread, as the real one does.

        As kubelet 1.37 (`devicemanager/manager.go`) it refuses a socket over which it is connected; there the refused
        call makes it forget to end the first connection, and no later one over this socket succeeds.
        """
        known = self.endpoints.get(request.resource_name)
        if known is not None and known.socket == request.endpoint and not self._has_ended(known):
            self.refused += 1
            context.abort(grpc.StatusCode.UNKNOWN, f"device plugin already connected: {request.endpoint}")
        if request.version != "v1beta1" or "/" in request.endpoint:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad registration")
        channel = grpc.insecure_channel(f"unix://{self.plugins / request.endpoint}")
        stub = dp_grpc.DevicePluginStub(channel)
        endpoint = Endpoint(request.resource_name, request.endpoint, stub, channel, request.options)
        self.endpoints[request.resource_name] = endpoint
        self.registrations += 1
        threading.Thread(target=self._list_and_watch, args=(endpoint,), daemon=True).start()
        return dp.Empty()

    @staticmethod
    def _has_ended(known: Endpoint) -> bool:
        """Whether a plugin's stream has ended; on a busy machine the thread that reads it is late to say so."""
        end = time.monotonic() + NOTICE_S
        while not known.ended and time.monotonic() < end:
            time.sleep(0.01)
        return known.ended

    def List(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Pods and what their containers hold; plain init containers are not told."""
        answer = pr.ListPodResourcesResponse()
        with self._lock:
            held = list(self.held)
        for namespace, pod in sorted({(one.namespace, one.pod) for one in held}):
            told = answer.pod_resources.add(namespace=namespace, name=pod)
            for one in held:
                if (one.namespace, one.pod, one.init) == (namespace, pod, False):
                    container = told.containers.add(name=one.container)
                    for device in one.ids:
                        container.devices.add(resource_name=one.resource, device_ids=[device])
        return answer

    def _list_and_watch(self, endpoint: Endpoint) -> None:
        try:
            for message in endpoint.stub.ListAndWatch(dp.Empty(), wait_for_ready=True):
                endpoint.devices = {device.ID: device.health for device in message.devices}
                endpoint.messages += 1
        except (grpc.RpcError, ValueError):
            pass
        endpoint.ended = True

    def wait_for(self, resource: str) -> Endpoint:
        """The endpoint of a resource whose devices are known and whose stream is open."""

        def ready() -> Endpoint | None:
            endpoint = self.endpoints.get(resource)
            return endpoint if endpoint and endpoint.messages and not endpoint.ended else None

        found: Endpoint = until(ready, f"{resource} registered")
        return found

    def allocate(
        self, pod: dict[str, Any], container: str, resource: str, size: int, *, reuse: Sequence[str] = ()
    ) -> Held:
        """Admission: choose ids, with a preference unless an init container's are used again; Allocate."""
        endpoint = self.wait_for(resource)
        ids = list(reuse)[:size]
        if len(ids) < size:
            ids = self._preferred(endpoint, resource, ids, size)
        request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
        (answer,) = endpoint.stub.Allocate(request, timeout=DEADLINE_S).container_responses
        meta = pod["metadata"]
        init = any(
            one["name"] == container and one.get("restartPolicy") != "Always"
            for one in pod["spec"].get("initContainers", ())
        )
        held = Held(meta["namespace"], meta["name"], meta["uid"], container, resource, ids, answer, init)
        with self._lock:
            self.held.append(held)
        self.write_checkpoint()
        return held

    def _preferred(self, endpoint: Endpoint, resource: str, must: list[str], size: int) -> list[str]:
        taken = {one for held in self.held if held.resource == resource for one in held.ids}
        free = [one for one, health in endpoint.devices.items() if health == "Healthy" and one not in taken]
        request = dp.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=free + must, must_include_deviceIDs=must, allocation_size=size
        )
        (answer,) = endpoint.stub.GetPreferredAllocation(request, timeout=DEADLINE_S).container_responses
        chosen = list(answer.deviceIDs)
        assert set(chosen) <= set(free + must)
        return (chosen + [one for one in free if one not in chosen])[:size]

    def pre_start(self, held: Held, deadline_s: float = 30.0) -> None:
        """The last question before a container is created. Raises grpc.RpcError if it may not start."""
        request = dp.PreStartContainerRequest(devices_ids=held.ids)
        self.wait_for(held.resource).stub.PreStartContainer(request, timeout=deadline_s)

    def ask(self, held: Held) -> Any:
        """The same question, not waited for: a call that can be cancelled."""
        request = dp.PreStartContainerRequest(devices_ids=held.ids)
        return self.wait_for(held.resource).stub.PreStartContainer.future(request, timeout=30.0)

    def forget(self, uid: str) -> None:
        """The pod is gone from this kubelet."""
        with self._lock:
            self.held = [one for one in self.held if one.uid != uid]
        self.write_checkpoint()

    def forget_all(self) -> None:
        """Every pod is gone."""
        for uid in {one.uid for one in self.held}:
            self.forget(uid)

    def write_checkpoint(self) -> None:
        """The kubelet's own notes, in its own format."""
        path = self.plugins / "kubelet_internal_checkpoint"
        if not self.writes_checkpoint:
            path.unlink(missing_ok=True)
            return
        entries = [
            {
                "PodUID": one.uid,
                "ContainerName": one.container,
                "ResourceName": one.resource,
                "DeviceIDs": {"-1": one.ids},
                "AllocResp": base64.b64encode(one.answer.SerializeToString()).decode(),
            }
            for one in self.held
        ]
        registered = {name: sorted(one.devices) for name, one in self.endpoints.items()}
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        temporary = path.with_name("kubelet_internal_checkpoint.tmp")
        temporary.write_text(json.dumps({"Data": data, "Checksum": 0}))
        temporary.rename(path)
