"""A small world for the API server: stores pods, applies Bindings, loses answers, keeps what a watch sees."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from aliquot.kube.api import ApiError
from aliquot.kube.objects import ObjectMeta, Pod, PodSpec, PodStatus
from aliquot.kube.resources import Resource
from scheduler_ext.feed import PlacedPod


@dataclass
class WorldPod:
    """A pod as the API server has it."""

    pod: Pod
    node: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Pending"

    def seen(self) -> Pod:
        """What a GET answers."""
        meta = ObjectMeta(
            name=self.pod.metadata.name,
            namespace="default",
            uid=self.pod.metadata.uid,
            annotations=dict(self.annotations),
        )
        spec = PodSpec(
            containers=self.pod.spec.containers,
            init_containers=self.pod.spec.init_containers,
            node_name=self.node,
        )
        return Pod(metadata=meta, spec=spec, status=PodStatus(phase=self.phase))


class World:
    """An API server with a bad line: `line` says what becomes of the next Binding."""

    def __init__(self) -> None:
        self.pods: dict[str, WorldPod] = {}
        self.events: list[tuple[str, PlacedPod]] = []
        self.line = "good"
        self.held: list[asyncio.Event] = []

    def note(self, kind: str, pod: WorldPod) -> None:
        """Put a change where the watch will find it."""
        seen = json.loads(_json(pod.seen()))
        self.events.append((kind, _placed(seen)))

    async def get(self, _resource: Resource[Pod], name: str, _namespace: str = "", /) -> Pod:
        """Read a pod."""
        if self.line == "down":
            raise ApiError(0, "", "no route")
        if name not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        return self.pods[name].seen()

    async def bind_pod(
        self, _namespace: str, name: str, uid: str, where: str, annotations: Mapping[str, str], /
    ) -> None:
        """Apply a Binding, late or never if the line is bad."""
        line = self.line
        if line == "slow":
            gate = asyncio.Event()
            self.held.append(gate)
            await gate.wait()
        if line in ("down", "lost before"):
            raise ApiError(0, "", "connection reset")
        if line == "down after":
            self.line = "down"
        if line == "conflict":
            raise ApiError(409, "Conflict", "try again")
        self._apply(name, uid, where, annotations)
        if line == "lost after":
            raise ApiError(0, "", "connection reset")

    def _apply(self, name: str, uid: str, where: str, annotations: Mapping[str, str]) -> None:
        pod = self.pods.get(name)
        if pod is None:
            raise ApiError(404, "NotFound", "no such pod")
        if pod.pod.metadata.uid != uid or pod.node:
            raise ApiError(409, "Conflict", "another pod, or bound already")
        pod.node, pod.annotations = where, dict(annotations)
        self.note("MODIFIED", pod)


def _json(pod: Pod) -> str:
    meta = {"name": pod.metadata.name, "uid": pod.metadata.uid, "annotations": pod.metadata.annotations}
    return json.dumps({"metadata": meta, "node": pod.spec.node_name, "phase": pod.status.phase})


def _placed(seen: dict[str, object]) -> PlacedPod:
    body = {
        "metadata": seen["metadata"],
        "spec": {"nodeName": seen["node"]},
        "status": {"phase": seen["phase"]},
    }
    return msgspec.convert(body, PlacedPod)
