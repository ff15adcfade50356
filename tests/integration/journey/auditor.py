"""An independent auditor: recomputes from first-hand evidence what must hold, and never asks our own ledgers.

Evidence: pods as the API server has them, control pages and device directories of living processes, CDI files,
and the simulated driver's own counts.
"""

import contextlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import read_control
from aliquot.sandbox.cluster.processes import wait_for

MIB = 1 << 20
ORPHAN_DEADLINE_S = 60.0
Living = tuple[str, str, dict[str, str], Path]
"""A process: its pod's UID, its container's name, its environment, its directory in /proc."""
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "": 1}


def audit(stack: Stack) -> None:
    """Assert that everything that must always hold, holds now."""
    # Before the pods: a container that starts in between is of a pod that was listed without a placement.
    living = {name: list(_containers(node)) for name, node in stack.nodes.items()}
    pods = [pod for pod in stack.kubectl.list("pods") if _alive(pod)]
    for node in stack.nodes.values():
        placed = [p for p in map(placement_of, pods) if p and p["node"] == node.name]
        check_cards({card.uuid: card.memory_mib - card.reserved_mib for card in node.machine.cards}, placed)
    for pod in pods:
        if placement_of(pod):
            check_promise(pod)
    for name, node in stack.nodes.items():
        _check_processes(node, living[name], pods)
        check_living(node)


def audit_clean(stack: Stack) -> None:
    """Assert that nothing is left of pods that are gone: no pages, no CDI files, no memory."""
    for node in stack.nodes.values():
        wait_for(f"{node.name} to be clean", lambda n=node: not _leftovers(stack, n), ORPHAN_DEADLINE_S)


def empty(stack: Stack) -> None:
    """Start what a failed test has left dead; audit all, delete all pods, and audit again."""
    for name, process in stack.cluster.processes.items():
        if not process.running:
            stack.cluster.restart(name)
    audit(stack)
    names = [pod["metadata"]["name"] for pod in stack.kubectl.list("pods")]
    for name in names:
        stack.kubectl.delete("pods", name, grace=0)
    for name in names:
        stack.kubectl.wait_gone("pods", name)
    audit_clean(stack)


def _leftovers(stack: Stack, node: Node) -> list[str]:
    uids = {pod["metadata"]["uid"] for pod in stack.kubectl.list("pods")}
    pages = [path.name for path in node.tenants.glob("*") if path.name not in uids]
    specs = list(stack.cluster.node(node.name).cdi.glob("*")) if not uids else []
    held = [card.uuid for card in node.machine.cards if not uids and node.machine.memory_used(card.uuid)]
    return pages + [spec.name for spec in specs] + held


def _alive(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def placement_of(pod: dict[str, Any]) -> dict[str, Any] | None:
    """What a pod was granted, as its annotation says."""
    text = pod["metadata"].get("annotations", {}).get("aliquot.dev/placement")
    return json.loads(text) if text else None


def check_cards(sizes: Mapping[str, int], placed: list[dict[str, Any]]) -> None:
    """No card over its memory (MiB, by UUID) or cores; an exclusive one has a single tenant."""
    memory: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    tenants: Counter[str] = Counter()
    alone: set[str] = set()
    for placement in placed:
        for uuid, (mib, percent, exclusive) in _peak(placement).items():
            memory[uuid] += mib
            cores[uuid] += percent
            tenants[uuid] += 1
            alone |= {uuid} if exclusive else set()
    for uuid, total in memory.items():
        assert total <= sizes[uuid], f"{uuid}: {total} MiB promised of {sizes[uuid]}"
        assert cores[uuid] <= 100, f"{uuid}: {cores[uuid]} % promised"
        assert uuid not in alone or tenants[uuid] == 1, f"{uuid}: shared though exclusive"


def _peak(placement: dict[str, Any]) -> dict[str, tuple[int, int, bool]]:
    """What a pod takes of each card at once, at most: containers that outlive others add up."""
    peaks: dict[str, tuple[int, int, bool]] = {}
    lasting: dict[str, tuple[int, int, bool]] = {}
    for container in placement["containers"]:
        for share in container["cards"]:
            uuid = share["uuid"]
            mib, cores, alone = lasting.get(uuid, (0, 0, False))
            now = (mib + share["memoryMiB"], cores + share["cores"], alone or share["exclusive"])
            if container["kind"] != "init":
                lasting[uuid] = now
            peak = peaks.get(uuid, (0, 0, False))
            peaks[uuid] = (max(peak[0], now[0]), max(peak[1], now[1]), peak[2] or now[2])
    return peaks


def check_promise(pod: dict[str, Any]) -> None:
    """What was granted is what was asked, container by container."""
    placement = placement_of(pod)
    assert placement is not None
    assert placement["podUID"] == pod["metadata"]["uid"]
    assert placement["node"] == pod["spec"]["nodeName"]
    granted = {container["name"]: container["cards"] for container in placement["containers"]}
    resized = _resized(pod, placement)
    for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
        limits = container.get("resources", {}).get("limits", {})
        if "aliquot.dev/gpu" not in limits:
            assert container["name"] not in granted
            continue
        cards = granted[container["name"]]
        assert len({card["uuid"] for card in cards}) == int(limits["aliquot.dev/gpu"])
        if container["name"] in resized:
            asked = resized[container["name"]]
            assert all(card.items() >= asked.items() for card in cards), (asked, cards)
        elif "aliquot.dev/gpu-mem" in limits:
            wanted = math.ceil(_bytes(limits["aliquot.dev/gpu-mem"]) / MIB)
            assert all(card["memoryMiB"] == wanted for card in cards), (wanted, cards)
            assert all(card["cores"] == int(limits.get("aliquot.dev/gpu-core", 0)) for card in cards)


def _resized(pod: dict[str, Any], placement: dict[str, Any]) -> dict[str, dict[str, int]]:
    """What was asked and approved for the containers whose amounts are no longer their request's."""
    text = pod["metadata"]["annotations"].get("aliquot.dev/resize-status", "{}")
    status = json.loads(text)
    asked = status["asked"] if status.get("approved") else {}
    return {c["name"]: asked.get(c["name"], {}) for c in placement["containers"] if c.get("resized")}


def _bytes(quantity: str) -> int:
    unit = quantity.lstrip("0123456789")
    return int(quantity.removesuffix(unit)) * UNITS[unit]


def caps(container: dict[str, Any], share: dict[str, Any]) -> set[int]:
    """What a page may say of a share's time: 0 for who has its card alone, or may have all of it while alone there."""
    if share["exclusive"]:
        return {0}
    bursts = container.get("coreMode") == "burst" or share["cores"] == 100
    return {0, share["cores"]} if bursts else {share["cores"]}


def check_living(node: Node) -> set[str]:
    """The UIDs of pods of which a container lives, known to the API server or not; the cards have room for all of them.

    Memory that is granted and not guaranteed (class burst) is left out.
    """
    guaranteed: Counter[str] = Counter()
    living = set(containers_of(node))
    for _, _, page in living:
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            control = read_control(page)
            guaranteed.update({c.uuid: c.memory_bytes for c in control.cards if c.grant_bytes is None})
    for card in node.machine.cards:
        total, held = (card.memory_mib - card.reserved_mib) * MIB, guaranteed[card.uuid]
        assert held <= total, f"{card.uuid}: containers of {living} may take {held} bytes of {total}"
    return {uid for uid, _, _ in living}


def _check_processes(node: Node, living: list[Living], pods: list[dict[str, Any]]) -> None:
    """What a living container was given is what its pod was granted, and it sees these cards only."""
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    for uid, container, environ, process in living:
        if uid not in by_uid:
            continue
        placement = placement_of(by_uid[uid])
        assert placement is not None
        granted = next(c for c in placement["containers"] if c["name"] == container)
        try:
            control = read_control(Path(environ["ALIQUOT_CONTROL_PAGE"]))
            devices = os.listdir(environ["SIMGPU_DEV"])  # noqa: PTH208
        except FileNotFoundError:
            if _lives(process):
                raise
            continue
        applied = [(card.uuid, card.memory_bytes) for card in control.cards]
        assert applied == [(c["uuid"], c["memoryMiB"] * MIB) for c in granted["cards"]]
        for card, share in zip(control.cards, granted["cards"], strict=True):
            assert card.core_percent in caps(granted, share)
        minors = {card.uuid: card.minor for card in node.machine.cards}
        seen = {name for name in devices if name[6:].isdigit()}
        assert seen == {f"nvidia{minors[card['uuid']]}" for card in granted["cards"]}


def containers_of(node: Node) -> Iterator[tuple[str, str, Path]]:
    """Living processes of slices on this node: pod UID, container, control page."""
    for uid, container, environ, _ in _containers(node):
        yield uid, container, Path(environ["ALIQUOT_CONTROL_PAGE"])


def _lives(process: Path) -> bool:
    """Whether the process of a directory of /proc has not ended."""
    try:
        return bool((process / "environ").read_bytes())
    except OSError:
        return False


def _containers(node: Node) -> Iterator[Living]:
    """Living processes with a control page of this node."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        environ = dict(word.partition("=")[::2] for word in words if word)
        page = Path(environ.get("ALIQUOT_CONTROL_PAGE", "/"))
        if page.is_relative_to(node.tenants):
            yield page.parts[-3], page.parts[-2], environ, path.parent
