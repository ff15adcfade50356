"""A small world for the API server: stores pods, applies Bindings, loses answers, keeps what a watch sees."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aliquot.kube.answers import ApiError
from aliquot.kube.listing import Listing
from aliquot.kube.objects import ObjectMeta, Pod, PodSpec, PodStatus
from aliquot.kube.resources import Resource
from aliquot.scheduler_ext.state.pods import PlacedPod


@dataclass
class WorldPod:
    """A pod as the API server has it."""

    pod: Pod
    node: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Pending"
    version: int = 0

    def seen(self) -> Pod:
        """What a GET answers."""
        meta = ObjectMeta(
            name=self.pod.metadata.name,
            namespace=self.pod.metadata.namespace,
            uid=self.pod.metadata.uid,
            resource_version=str(self.version),
            annotations=dict(self.annotations),
        )
        spec = PodSpec(
            containers=self.pod.spec.containers,
            init_containers=self.pod.spec.init_containers,
            node_name=self.node,
            scheduler_name=self.pod.spec.scheduler_name,
        )
        status = PodStatus(phase=self.phase, conditions=self.pod.status.conditions)
        return Pod(metadata=meta, spec=spec, status=status)


class World:
    """An API server with a bad line: `line` says what becomes of the next Binding."""

    def __init__(self) -> None:
        self.pods: dict[str, WorldPod] = {}
        self.events: list[tuple[str, PlacedPod]] = []
        self.line = "good"
        self.held: list[asyncio.Event] = []
        self.version = 0
        self.patches = 0
        self.stumbles: set[str] = set()
        """Pods of which every patch ends in an error of the server."""
        self.evicted: list[str] = []
        self.kept: set[str] = set()
        """Pods, by name, that the server does not let be evicted."""
        self.evicting: Callable[[], object] = lambda: None
        """Happens at each call to evict a pod."""
        self.told: list[tuple[str, str, str]] = []
        """Events: the pod, the reason and the message."""

    def note(self, kind: str, pod: WorldPod) -> None:
        """Put a change where the watch will find it."""
        self.version += 1
        pod.version = self.version
        seen = json.loads(_json(pod.seen()))
        self.events.append((kind, msgspec.convert(seen, PlacedPod)))

    async def get(self, _resource: Resource[Pod], name: str, _namespace: str = "", /) -> Pod:
        """Read a pod."""
        if self.line == "down":
            raise ApiError(0, "", "no route")
        if name not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        return self.pods[name].seen()

    async def list(
        self, _resource: Resource[Pod], _namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Pod]:
        """Read all pods that have no node."""
        assert field_selector == "spec.nodeName="
        if self.line == "down":
            raise ApiError(0, "", "no route")
        return Listing("1", tuple(pod.seen() for pod in self.pods.values() if not pod.node))

    async def bind_pod(
        self, _namespace: str, name: str, uid: str, where: str, annotations: Mapping[str, str], /
    ) -> None:
        """Apply a Binding, late or never if the line is bad."""
        line = await self._travel()
        if line == "down after":
            self.line = "down"
        if line == "conflict":
            raise ApiError(409, "Conflict", "try again")
        self._apply(name, uid, where, annotations)
        if line == "lost after":
            raise ApiError(0, "", "connection reset")

    async def _travel(self) -> str:
        """A write on its way: what becomes of its answer, unless it is lost before."""
        line = self.line
        if line == "slow":
            gate = asyncio.Event()
            self.held.append(gate)
            await gate.wait()
        if line in ("down", "lost before"):
            raise ApiError(0, "", "connection reset")
        return line

    async def patch(
        self,
        _resource: Resource[Pod],
        name: str,
        body: Any,
        _namespace: str = "",
        /,
        *,
        subresource: str = "",
    ) -> Pod:
        """Change annotations, late or never if the line is bad, if the pod is as it was when it was read."""
        assert subresource == "status"
        self.patches += 1
        line = await self._travel()
        pod = self.pods.get(name)
        if name in self.stumbles:
            raise ApiError(500, "InternalError", "a webhook failed")
        if pod is None:
            raise ApiError(404, "NotFound", "no such pod")
        if body["metadata"].get("uid", pod.pod.metadata.uid) != pod.pod.metadata.uid:
            raise ApiError(409, "Conflict", "another pod of that name")
        if body["metadata"].get("resourceVersion", str(pod.version)) != str(pod.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        changed = {**pod.annotations, **body["metadata"]["annotations"]}
        if changed != pod.annotations:
            pod.annotations = changed
            self.note("MODIFIED", pod)
        if line == "lost after":
            raise ApiError(0, "", "connection reset")
        return pod.seen()

    async def evict_pod(self, _namespace: str, name: str, _uid: str, /) -> None:
        """Evict a pod, if that is allowed."""
        self.evicting()
        if name in self.kept:
            raise ApiError(429, "TooManyRequests", "a disruption budget")
        if name not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        self.evicted.append(name)

    async def request(self, method: str, path: str, /, *, body: Any = None) -> bytes:
        """Take an event."""
        assert (method, path.rpartition("/")[2]) == ("POST", "events")
        self.told.append((body["involvedObject"]["name"], body["reason"], body["message"]))
        return b""

    def _apply(self, name: str, uid: str, where: str, annotations: Mapping[str, str]) -> None:
        pod = self.pods.get(name)
        if pod is None:
            raise ApiError(404, "NotFound", "no such pod")
        if pod.pod.metadata.uid != uid or pod.node:
            raise ApiError(409, "Conflict", "another pod, or bound already")
        pod.node, pod.annotations = where, dict(annotations)
        self.note("MODIFIED", pod)


def _json(pod: Pod) -> str:
    meta = {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "uid": pod.metadata.uid,
        "resourceVersion": pod.metadata.resource_version,
        "annotations": pod.metadata.annotations,
    }
    return json.dumps(
        {"metadata": meta, "spec": msgspec.to_builtins(pod.spec), "status": {"phase": pod.status.phase}}
    )
