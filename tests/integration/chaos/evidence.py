"""First-hand evidence of a cluster: the API server, the kubelets, CDI files, living containers, the simulated driver.

Nothing here is told by Aliquot about itself but what it has given to containers: their pages and their device nodes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import Control, read_control
from aliquot.libshim.page_file import PageError
from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2 import ListPodResourcesRequest
from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2_grpc import PodResourcesListerStub
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.auditor import placement_of

RESOURCE = "aliquot.dev/gpu"
Json = dict[str, Any]
Key = tuple[str, str]
"""A container: its pod's UID and its name."""


@dataclass(frozen=True)
class Living:
    """A container that lives and has pages: the pid and start of its first process, all its pids, what it was given."""

    key: Key
    node: str
    first: tuple[int, int]
    pids: frozenset[int]
    control: Control
    devices: frozenset[str]


@dataclass(frozen=True)
class Evidence:
    """What was seen. `pods` are those that have not ended; `ids` lacks a node whose kubelet does not answer."""

    cards: Mapping[str, tuple[SimCard, ...]]
    pods: tuple[Json, ...]
    ended: frozenset[str]
    """UIDs of pods that have, but for those that a restarted kubelet gives up by a rule of its own."""
    limits: Mapping[str, int]
    """MiB that a namespace may have."""
    living: tuple[Living, ...]
    held: Mapping[str, Mapping[int, int]]
    """Bytes by pid, by card or instance."""
    ids: Mapping[str, Mapping[tuple[str, str], tuple[str, ...]]]
    """The kubelet's device ids by pod's and container's name, by node."""
    files: Mapping[str, frozenset[str]]
    """CDI files and directories of pages on a node, by the UID that they are of."""
    by_uid: Mapping[str, Json] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_uid", {pod["metadata"]["uid"]: pod for pod in self.pods})

    def is_init(self, living: Living) -> bool:
        """Whether a container is one that ends before the others start."""
        spec = self.by_uid.get(living.key[0], {"spec": {}})["spec"]
        return living.key[1] in {container["name"] for container in spec.get("initContainers", ())}

    def placed(self, node: str) -> list[Json]:
        """The placements on a node."""
        return [p for p in map(placement_of, self.pods) if p and p["node"] == node]


def look(stack: Stack) -> Evidence:
    """Look at everything now. Raises ApiError while the API server is away."""
    pods = {pod["metadata"]["uid"]: pod for pod in stack.kubectl.list("pods")}
    ended = {uid for uid, pod in pods.items() if pod["status"].get("phase") in ("Succeeded", "Failed")}
    nodes = stack.nodes.values()
    return Evidence(
        cards={node.name: node.machine.cards for node in nodes},
        pods=tuple(pod for uid, pod in pods.items() if uid not in ended),
        ended=frozenset(uid for uid in ended if not _is_given_up(pods[uid])),
        limits=_limits(stack),
        living=tuple(living for node in nodes for living in _living(node)),
        held={
            device.uuid: node.machine.processes(device.uuid)
            for node in nodes
            for card in node.machine.cards
            for device in (card, *card.mig)
        },
        ids={node.name: ids for node in nodes if (ids := _ids(stack, node)) is not None},
        files={node.name: frozenset(_files(stack, node)) for node in nodes},
    )


def _is_given_up(pod: Json) -> bool:
    """Whether a kubelet that was restarted before the agent was back has ended it for one of its containers.

    That is one that does not run at the moment, as an init container that is done: its devices are not there.
    """
    several = len([*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]) > 1
    return several and pod["status"].get("reason") == "UnexpectedAdmissionError"


def _limits(stack: Stack) -> dict[str, int]:
    return {
        namespace: quota["spec"]["limit"]["memoryMiB"]
        for quota in stack.kubectl.list("gpuquotas.aliquot.dev")
        for namespace in quota["spec"]["namespaces"]
    }


def _living(node: Node) -> Iterator[Living]:
    """Found by the page that their environment names."""
    found: dict[Path, list[tuple[int, int]]] = {}
    devices: dict[Path, Path] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "environ").read_bytes().decode(errors="replace").split("\0")
            start = int((path / "stat").read_text().rpartition(")")[2].split()[19])
        except OSError:
            continue
        environ = dict(word.partition("=")[::2] for word in words if word)
        page = Path(environ.get("ALIQUOT_CONTROL_PAGE", "/"))
        if page.is_relative_to(node.tenants):
            found.setdefault(page, []).append((start, int(path.name)))
            devices[page] = Path(environ["SIMGPU_DEV"])
    for page, processes in found.items():
        try:
            control = read_control(page)
            seen = frozenset(path.name for path in devices[page].rglob("*") if path.name[-1].isdigit())
        except (OSError, PageError):
            continue  # its last process has just ended
        start, pid = min(processes)
        pids = frozenset(pid for _, pid in processes)
        yield Living((page.parts[-3], page.parts[-2]), node.name, (pid, start), pids, control, seen)


def _ids(stack: Stack, node: Node) -> dict[tuple[str, str], tuple[str, ...]] | None:
    with grpc.insecure_channel(f"unix://{stack.cluster.node(node.name).pod_resources}") as channel:
        try:
            answer = PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=5)
        except grpc.RpcError:
            return None
    return {
        (pod.name, container.name): tuple(
            i for device in container.devices if device.resource_name == RESOURCE for i in device.device_ids
        )
        for pod in answer.pod_resources
        for container in pod.containers
    }


def _files(stack: Stack, node: Node) -> Iterator[str]:
    """The UIDs that something on a node is of."""
    yield from (path.name for path in node.tenants.glob("*"))
    for path in stack.cluster.node(node.name).cdi.glob("*.json"):
        try:
            (device,) = json.loads(path.read_text())["devices"]
        except (OSError, ValueError):
            continue  # it was removed meanwhile, or somebody has damaged it
        pages = [
            m["hostPath"] for m in device["containerEdits"]["mounts"] if m["hostPath"].endswith("/control")
        ]
        yield from (Path(page).parts[-3] for page in pages)
