"""The independent auditor on a real cluster: what the API server, the kubelet, CDI files, containers and cards say.

It never asks a ledger of ours. What must hold of placements alone is shared with the pocket cluster's auditor.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from aliquot.libshim.control_page import read_control
from aliquot.node.processes import POD_UID
from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2 import ListPodResourcesRequest
from aliquot.sandbox.cluster.pb.podresources.v1.api_pb2_grpc import PodResourcesListerStub
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.installation import NAMESPACE, RUN, SLICE, Installation
from tests.cluster.node import KUBELET_DIRECTORY
from tests.cluster.runtime import CDI_DIRECTORY
from tests.integration.journey.auditor import MIB, caps, check_cards, check_promise, placement_of

ORPHAN_DEADLINE_S = 60.0
CONTAINER = re.compile(r"/([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """A process in a container: its id on the node, its pod's UID, its container's id, and its /proc directory."""

    pid: int
    uid: str
    container: str
    directory: Path


def audit(installed: Installation) -> None:
    """Assert that everything that must always hold, holds now: seen while no pod has come, gone or changed."""
    while True:
        pods = _pods(installed)
        try:
            _audit(installed, pods)
        except AssertionError:
            if _pods(installed) == pods:
                raise
        else:
            return


def _pods(installed: Installation) -> list[dict[str, Any]]:
    """Those that have not ended."""
    pods = installed.kubectl.list("pods")
    return [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def _audit(installed: Installation, pods: list[dict[str, Any]]) -> None:
    placed = {p["metadata"]["uid"]: (p, placement) for p in pods if (placement := placement_of(p))}
    sizes = {card.uuid: card.memory_mib - card.reserved_mib for card in installed.node.machine.cards}
    check_cards(sizes, [placement for _, placement in placed.values()])
    for pod, _ in placed.values():
        check_promise(pod)
    _check_kubelet(installed, placed)
    _check_specs(installed, placed)
    for process in processes(installed):
        if process.uid in placed:
            _check_process(installed, process, *placed[process.uid])
    _check_memory(installed, placed)


def audit_clean(installed: Installation) -> None:
    """Assert that, with all pods gone, nothing is left of them: no page, no CDI file, no memory, no process."""
    wait_for("the node to be clean", lambda: not leftovers(installed), ORPHAN_DEADLINE_S)


def leftovers(installed: Installation) -> list[str]:
    """What is on the node though no pod is."""
    box, machine = installed.node.box, installed.node.machine
    pages = [path.name for path in box.path(f"{RUN}/tenants").glob("*")]
    specs = [path.name for path in specs_of(installed)]
    held = [card.uuid for card in machine.cards if machine.memory_used(card.uuid)]
    return pages + specs + held + [f"process {process.pid}" for process in processes(installed)]


def specs_of(installed: Installation) -> list[Path]:
    """The CDI files of slices."""
    return list(installed.node.box.path(CDI_DIRECTORY.replace("/var/run", "/run")).glob("*.json"))


def processes(installed: Installation) -> Iterator[Process]:
    """Every living process in a tenant's pod, those that keep its namespaces among them."""
    services = {pod["metadata"]["uid"] for pod in installed.kubectl.list("pods", NAMESPACE)}
    for directory in installed.node.box.path("/proc").glob("[0-9]*"):
        try:
            text = (directory / "cgroup").read_text()
        except OSError:
            continue
        uid, container = POD_UID.search(text), CONTAINER.search(text)
        if uid and container and uid[1] not in services:
            yield Process(int(directory.name), uid[1], container[1], directory)


def _check_kubelet(installed: Installation, placed: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Each container has as many ids of the kubelet as cards, but where its pod is being deleted and may have ended.

    Two pods may have the same one: the kubelet forgets what it is about to give when it is asked meanwhile.
    """
    socket = installed.node.box.path(f"{KUBELET_DIRECTORY}/pod-resources/kubelet.sock")
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        answer = PodResourcesListerStub(channel).List(ListPodResourcesRequest(), timeout=10)
    had: Counter[tuple[str, str]] = Counter()
    for pod in answer.pod_resources:
        for container in pod.containers:
            given = [i for d in container.devices if d.resource_name == SLICE for i in d.device_ids]
            had[pod.name, container.name] += len(given)
    for pod, placement in placed.values():
        if pod["status"].get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
            continue
        for container in placement["containers"]:
            if container["kind"] != "init":
                key = (pod["metadata"]["name"], container["name"])
                assert had[key] == len(container["cards"]), f"{key}: {had[key]} ids"


def _check_specs(installed: Installation, placed: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """A CDI file gives the device nodes of exactly the cards that its container was granted."""
    minors = {card.uuid: card.minor for card in installed.node.machine.cards}
    for path in specs_of(installed):
        try:
            text = path.read_text()
        except FileNotFoundError:
            continue  # its pod has gone meanwhile
        edits = json.loads(text)["devices"][0]["containerEdits"]
        page = next(m["hostPath"] for m in edits["mounts"] if m["containerPath"].endswith("/control"))
        uid, container = Path(page).parts[-3:-1]
        if uid in placed:
            granted = next(c for c in placed[uid][1]["containers"] if c["name"] == container)
            nodes = {node["path"] for node in edits["deviceNodes"] if re.search(r"nvidia\d+$", node["path"])}
            assert nodes == {f"/dev/nvidia{minors[card['uuid']]}" for card in granted["cards"]}


def _check_process(
    installed: Installation, process: Process, pod: dict[str, Any], placement: dict[str, Any]
) -> None:
    """What a living container was given is what its pod was granted, and it sees these cards only."""
    name = _container_name(pod, process.container)
    if not name and not _is_told(pod):
        return  # which of the pod's containers it is in cannot be said yet
    granted = next((c for c in placement["containers"] if c["name"] == name), None)
    root = process.directory / "root"
    try:
        seen = {path.name for path in (root / "dev").glob("nvidia[0-9]*")}
        page = root / "run/aliquot/control"
        control = read_control(page) if granted else None
    except OSError:
        return  # it has ended meanwhile
    minors = {card.uuid: card.minor for card in installed.node.machine.cards}
    cards = granted["cards"] if granted else []
    assert seen == {f"nvidia{minors[card['uuid']]}" for card in cards}, f"{name}: sees {seen}"
    if granted and control:
        applied = [(card.uuid, card.memory_bytes) for card in control.cards]
        assert applied == [(card["uuid"], card["memoryMiB"] * MIB) for card in cards]
        for card, share in zip(control.cards, cards, strict=True):
            assert card.core_percent in caps(granted, share)


def _is_told(pod: dict[str, Any]) -> bool:
    """Whether the kubelet has told the ids of all that it has started, so that another is the one of the namespaces."""
    status = pod["status"]
    known = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return bool(known) and all(container.get("containerID") for container in known)


def _container_name(pod: dict[str, Any], container: str) -> str:
    """A container's name by its id; empty for the one that keeps the pod's namespaces."""
    status = pod["status"]
    known = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return next((str(c["name"]) for c in known if c.get("containerID", "").endswith(container)), "")


def _check_memory(installed: Installation, placed: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Nobody holds more of a card than it was granted, or anything of a card that it was not granted."""
    owners = {process.pid: process.uid for process in processes(installed)}
    for card in installed.node.machine.cards:
        held: Counter[str] = Counter()
        for pid, size in installed.node.machine.processes(card.uuid).items():
            if pid in owners:
                held[owners[pid]] += size
        for uid, size in held.items():
            assert uid in placed, f"{card.uuid}: {size} bytes of a pod without a placement"
            granted = sum(
                share["memoryMiB"] * MIB
                for container in placed[uid][1]["containers"]
                for share in container["cards"]
                if share["uuid"] == card.uuid
            )
            assert size <= granted, f"{card.uuid}: pod {uid} holds {size} of {granted}"
