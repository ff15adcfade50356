"""The kubelet: follows the node's pods, admits them one at a time, and runs a worker for each."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aliquot.sandbox.cluster.events import Recorder
from aliquot.sandbox.cluster.kubelet import runtime
from aliquot.sandbox.cluster.kubelet.containers import Pace
from aliquot.sandbox.cluster.kubelet.devices import DeviceManager
from aliquot.sandbox.cluster.kubelet.endpoints import Registration
from aliquot.sandbox.cluster.kubelet.launch import Launcher
from aliquot.sandbox.cluster.kubelet.node import Node, NodeSettings
from aliquot.sandbox.cluster.kubelet.pod_status import StatusWriter
from aliquot.sandbox.cluster.kubelet.pod_worker import TERMINAL, PodWorker, Services
from aliquot.sandbox.cluster.kubelet.podresources import PodResources
from aliquot.sandbox.cluster.objects import dig, uid_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from pathlib import Path

    from aliquot.sandbox.cluster.client import Client, Notice
    from aliquot.sandbox.cluster.objects import Obj

_log = logging.getLogger(__name__)

READY_FILE = "ready"
"""In the node's directory: the pid of the kubelet that has registered the node and serves."""


@dataclass(frozen=True)
class Settings:
    """Where things lie on this node, and how patient the kubelet is.

    Attributes:
        plugin_patience: seconds that plugins known from before a restart have until pods are looked at.
    """

    node: NodeSettings
    device_plugins: Path
    pod_resources: Path
    cdi: Sequence[Path]
    device_root: Path
    pace: Pace = field(default_factory=Pace)
    plugin_patience: float = 1.0


class Kubelet:
    """One node."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        settings.device_plugins.mkdir(parents=True, exist_ok=True)
        self._devices = DeviceManager(settings.device_plugins, self._devices_changed)
        self._node = Node(client, settings.node, self._devices)
        self._registration = Registration(settings.device_plugins, self._devices)
        self._pod_resources = PodResources(settings.pod_resources, self, self._devices)
        self._recorder = Recorder(client, "kubelet", settings.node.name)
        self._statuses = StatusWriter(client)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: dict[str, Obj] = {}
        self._admission = asyncio.Lock()
        self._services = Services(
            client=client,
            devices=self._devices,
            launcher=Launcher(client, settings.device_root),
            recorder=self._recorder,
            statuses=self._statuses,
            pods=settings.node.pods,
            cdi=settings.cdi,
            pace=settings.pace,
            admit=self._admit,
            release=self._release,
        )

    async def run(self) -> None:
        """Serve until cancelled; containers keep running."""
        await self._registration.start()
        await self._pod_resources.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                group.create_task(self._statuses.run())
                await self._node.register()
                group.create_task(self._node.report())
                group.create_task(self._node.beat())
                group.create_task(self._follow())
                (self._settings.node.pods.parent / READY_FILE).write_text(str(os.getpid()))
        finally:
            await self._registration.stop()
            await self._pod_resources.stop()

    def active_pods(self) -> Iterable[Obj]:
        """Pods that hold resources of this node, the one being admitted included."""
        return list(self._active.values())

    async def _follow(self) -> None:
        selector = f"spec.nodeName={self._settings.node.name}"
        early: list[Obj] | None = []
        async for notice in self._client.follow("/api/v1/pods", fieldSelector=selector):
            if notice.type == "SYNCED":
                await self._devices.remembered_plugins(self._settings.plugin_patience)
                # Those that are looked at first must not free what those that come after them hold.
                self._active |= {
                    uid_of(pod): pod for pod in early or [] if dig(pod, "status.phase") not in TERMINAL
                }
                for pod in sorted(early or [], key=lambda p: str(p["metadata"]["creationTimestamp"])):
                    self._add(pod)
                early = None
                self._remove_orphans()
            elif early is not None:
                early.append(notice.object)
            else:
                self._heed(notice)

    def _heed(self, notice: Notice) -> None:
        worker = self._workers.get(uid_of(notice.object))
        if notice.type == "DELETED":
            self._release(notice.object)  # one deleted by force may still run (kubernetes/kubernetes#104824)
            if worker is not None:
                worker.removed()
        elif worker is not None:
            worker.update(notice.object)
        else:
            self._add(notice.object)

    def _add(self, pod: Obj) -> None:
        uid = uid_of(pod)
        worker = self._workers[uid] = PodWorker(pod, self._services)
        self._begin(worker.run()).add_done_callback(lambda _: self._workers.pop(uid, None))

    def _remove_orphans(self) -> None:
        """End what runs of pods that were removed while no kubelet was here; other pods do not wait for it."""
        pods = self._settings.node.pods
        pods.mkdir(parents=True, exist_ok=True)
        for directory in [d for d in pods.iterdir() if d.name not in self._workers]:
            self._begin(self._remove_orphan(directory.name))

    async def _remove_orphan(self, uid: str) -> None:
        pods, grace = self._settings.node.pods, self._settings.pace.forced_grace
        await asyncio.gather(*(c.stop(grace) for c in runtime.containers_in(pods, uid)))
        runtime.remove(pods, uid)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done in the background; a failure is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task

    async def _admit(self, pod: Obj, running: list[str]) -> None:
        async with self._admission:
            self._active[uid_of(pod)] = pod
            await self._devices.admit(pod, list(self._active), running)

    def _release(self, pod: Obj) -> None:
        self._active.pop(uid_of(pod), None)

    def _devices_changed(self) -> None:
        self._node.changed()
        for worker in self._workers.values():
            worker.refresh()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("a pod worker failed", exc_info=error)
