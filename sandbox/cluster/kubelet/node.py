"""The Node object and its Lease: registration, capacity and allocatable, heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver.discovery import VERSION
from aliquot.sandbox.cluster.client import MERGE_PATCH, ApiError
from aliquot.sandbox.cluster.logs import LOG_DIRECTORY_ANNOTATION
from aliquot.sandbox.cluster.objects import micro_timestamp, timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.kubelet.devices import DeviceManager
    from aliquot.sandbox.cluster.objects import Obj

LEASE_SECONDS = 40
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RETRY_SECONDS = 0.3
CONFLICT, NOT_FOUND = 409, 404

CONDITIONS = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}


@dataclass(frozen=True)
class NodeSettings:
    """What the node is: name, labels, the directory of its pods, native capacity, periods in seconds."""

    name: str
    pods: Path
    labels: dict[str, str] = field(default_factory=dict)
    cpu: int = 16
    memory: str = "64Gi"
    status_period: float = 10.0
    lease_period: float = 10.0


class Node:
    """Keeps the node's objects true; `changed` has the status written at once."""

    def __init__(self, client: Client, settings: NodeSettings, devices: DeviceManager) -> None:
        self._client = client
        self._settings = settings
        self._devices = devices
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """Capacity or health changed."""
        self._wake.set()

    async def register(self) -> None:
        """Create the Node, or claim the one that is there; patient while the server is away."""
        settings = self._settings
        labels = {
            "kubernetes.io/hostname": settings.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **settings.labels,
        }
        annotations = {LOG_DIRECTORY_ANNOTATION: str(settings.pods)}
        metadata: Obj = {"name": settings.name, "labels": labels, "annotations": annotations}
        while True:
            try:
                await self._create_or_patch({"metadata": metadata})
                await self._write_status()
            except ApiError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def report(self) -> None:
        """Write the status whenever it changed, and periodically; for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.status_period):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._write_status()
            except ApiError as error:
                if error.status == NOT_FOUND:
                    await self.register()
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    async def beat(self) -> None:
        """Renew the Lease, for ever."""
        while True:
            with contextlib.suppress(ApiError):
                await self._renew()
            await asyncio.sleep(self._settings.lease_period)

    async def _create_or_patch(self, node: Obj) -> None:
        try:
            await self._client.create("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            await self._client.patch(f"/api/v1/nodes/{self._settings.name}", node, MERGE_PATCH)

    async def _write_status(self) -> None:
        path = f"/api/v1/nodes/{self._settings.name}"
        node = await self._client.get(path)
        await self._client.replace(f"{path}/status", {**node, "status": self._status(node)})

    def _status(self, node: Obj) -> Obj:
        native = {
            "cpu": str(self._settings.cpu),
            "memory": self._settings.memory,
            "ephemeral-storage": "100Gi",
            "pods": "110",
        }
        devices = self._devices.capacity()
        before = {c["type"]: c for c in node.get("status", {}).get("conditions", ())}
        return {
            "capacity": {**native, **{name: str(pair[0]) for name, pair in devices.items()}},
            "allocatable": {**native, **{name: str(pair[1]) for name, pair in devices.items()}},
            "conditions": [_condition(kind, before.get(kind, {})) for kind in CONDITIONS],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self._settings.name},
            ],
            "nodeInfo": {
                "kubeletVersion": VERSION["gitVersion"],
                "containerRuntimeVersion": "process://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "kernelVersion": os.uname().release,
            },
        }

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self._settings.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_timestamp(),
        }
        try:
            await self._client.patch(f"{LEASES}/{self._settings.name}", {"spec": spec}, MERGE_PATCH)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            await self._client.create(LEASES, {"metadata": {"name": self._settings.name}, "spec": spec})


def _condition(kind: str, before: Obj) -> Obj:
    status, reason, message = CONDITIONS[kind]
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": timestamp(),
        "lastTransitionTime": since or timestamp(),
    }
