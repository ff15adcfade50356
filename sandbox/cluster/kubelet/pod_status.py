"""The status of a pod from the state of its containers, and the writer that brings it to the API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubelet.containers import Kind
from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of, timestamp, uid_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.kubelet.containers import Container
    from aliquot.sandbox.cluster.kubelet.devices import DeviceManager
    from aliquot.sandbox.cluster.objects import Obj

RETRY_SECONDS = 0.3
NO_SUCH_POD = (404, 409)


def rejected(reason: str, message: str) -> Obj:
    """Status of a pod that this node does not admit: final."""
    text = f"Pod was rejected: {message}"
    return {"phase": "Failed", "reason": reason, "message": text, "startTime": timestamp()}


def status_of(pod: Obj, containers: Sequence[Container], devices: DeviceManager) -> Obj:
    """The whole status of an admitted pod."""
    entries: dict[bool, list[Obj]] = {True: [], False: []}
    for container in containers:
        health = devices.health(uid_of(pod), container.name)
        extra: Obj = {"allocatedResourcesStatus": health} if health else {}
        entries[container.kind is Kind.REGULAR].append(container.status(extra))
    phase = phase_of(containers)
    return {
        "phase": phase,
        "reason": None,
        "message": None,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "startTime": dig(pod, "status.startTime") or timestamp(),
        "conditions": _conditions(pod, containers, phase),
        "initContainerStatuses": entries[False] or None,
        "containerStatuses": entries[True],
    }


def phase_of(containers: Sequence[Container]) -> str:
    """Pending, Running, Succeeded or Failed, by Kubernetes' rules."""
    inits = [c for c in containers if c.kind is Kind.INIT]
    regular = [c for c in containers if c.kind is Kind.REGULAR]
    if any(c.done and c.ended and c.ended.code != 0 for c in inits):
        return "Failed"
    if all(c.done for c in regular):
        failed = any(c.ended and c.ended.code != 0 for c in regular)
        return "Failed" if failed else "Succeeded"
    return "Running" if all(c.done for c in inits) and any(c.begun for c in regular) else "Pending"


def _conditions(pod: Obj, containers: Sequence[Container], phase: str) -> list[Obj]:
    first = [c for c in containers if c.kind is not Kind.REGULAR]
    initialized = all(c.done or (c.kind is Kind.SIDECAR and c.begun) for c in first)
    unready = [c.name for c in containers if c.kind is Kind.REGULAR and not c.running]
    text = f"containers with unready status: [{' '.join(unready)}]"
    why = {"reason": "ContainersNotReady", "message": text}
    if phase == "Succeeded":
        why = {"reason": "PodCompleted", "message": ""}
    elif phase == "Failed":
        why = {"reason": "PodFailed", "message": ""}
    ready: Obj = (
        {"status": "False", **why} if unready else {"status": "True", "reason": None, "message": None}
    )
    wanted = {
        "PodReadyToStartContainers": {"status": "True"},
        "Initialized": {"status": str(initialized)},
        "Ready": ready,
        "ContainersReady": ready,
    }
    before = {c["type"]: c for c in dig(pod, "status.conditions") or ()}
    return [{"type": t, "lastTransitionTime": _since(before.get(t), c), **c} for t, c in wanted.items()]


def _since(before: Obj | None, now: Obj) -> str:
    if before and before.get("status") == now["status"] and before.get("lastTransitionTime"):
        return str(before["lastTransitionTime"])
    return timestamp()


class StatusWriter:
    """Writes the latest status of each pod and deletes finished ones; patient while the server is away."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._latest: dict[str, tuple[Obj, Obj]] = {}
        self._written: dict[str, Obj] = {}
        self._wake = asyncio.Event()

    def set(self, pod: Obj, status: Obj) -> None:
        """Have a status written soon; a later one replaces it."""
        uid = uid_of(pod)
        newest = self._latest[uid][1] if uid in self._latest else self._written.get(uid)
        if newest != status:
            self._latest[uid] = (pod, status)
            self._wake.set()

    async def run(self) -> None:
        """Write, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = False
            for uid, (pod, status) in list(self._latest.items()):
                if uid not in self._latest:  # forgotten while another was written
                    continue
                if not await self._write(pod, status):
                    failed = True
                elif self._latest.get(uid, (pod, None))[1] is status:
                    self._latest.pop(uid, None)
            if failed:
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def finalise(self, pod: Obj) -> None:
        """Remove the pod's object once its containers are gone; returns when it is."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(pod)}}
        while True:
            try:
                await self._client.delete(_path(pod), options)
            except ApiError as error:
                if error.status in NO_SUCH_POD:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def forget(self, pod: Obj) -> None:
        """The pod is gone: nothing more to write."""
        self._latest.pop(uid_of(pod), None)
        self._written.pop(uid_of(pod), None)

    async def _write(self, pod: Obj, status: Obj) -> bool:
        """Whether nothing is left to do: written, or the pod is another one by now."""
        try:
            patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
            await self._client.patch(f"{_path(pod)}/status", patch)
        except ApiError as error:
            return error.status in NO_SUCH_POD
        self._written[uid_of(pod)] = status
        return True


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
