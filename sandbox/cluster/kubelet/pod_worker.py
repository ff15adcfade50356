"""One pod's life on the node: admission, volumes, its containers in order, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.kubelet import runtime, volumes
from aliquot.sandbox.cluster.kubelet.containers import Container, Kind, Pace, kinds_of
from aliquot.sandbox.cluster.kubelet.devices import AdmissionError
from aliquot.sandbox.cluster.kubelet.endpoints import PluginError
from aliquot.sandbox.cluster.kubelet.environment import MissingReferenceError
from aliquot.sandbox.cluster.kubelet.launch import CreateError, Surroundings, edits_of
from aliquot.sandbox.cluster.kubelet.pod_status import rejected, status_of
from aliquot.sandbox.cluster.objects import dig, full_name, uid_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.events import Recorder
    from aliquot.sandbox.cluster.kubelet.devices import DeviceManager
    from aliquot.sandbox.cluster.kubelet.launch import Launcher
    from aliquot.sandbox.cluster.kubelet.pod_status import StatusWriter
    from aliquot.sandbox.cluster.objects import Obj

_log = logging.getLogger(__name__)

TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Services:
    """What a worker needs of its kubelet."""

    client: Client
    devices: DeviceManager
    launcher: Launcher
    recorder: Recorder
    statuses: StatusWriter
    pods: Path
    cdi: Sequence[Path]
    pace: Pace
    admit: Callable[[Obj, list[str]], Awaitable[None]]
    release: Callable[[Obj], None]


class PodWorker:
    """Runs one pod; `update` and `removed` tell it what the API server says."""

    def __init__(self, pod: Obj, services: Services) -> None:
        self._pod = pod
        self._services = services
        self._containers = [self._container(spec, kind) for spec, kind in kinds_of(pod)]
        self._volumes: dict[str, Path] = {}
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()
        self._gone = asyncio.Event()
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._due: list[float] = []
        self.update(pod)

    def update(self, pod: Obj) -> None:
        """The pod's object changed."""
        self._pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._ending.set()

    def removed(self) -> None:
        """The pod's object is gone: whatever still runs must end."""
        self._gone.set()
        self._ending.set()

    def refresh(self) -> None:
        """Something outside the pod (a device's health) may show in its status."""
        self._changed.set()

    async def run(self) -> None:
        """Live until the pod's object is gone and nothing of it runs."""
        living = asyncio.create_task(self._live_or_say())
        await self._ending.wait()
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living
        await self._end()

    async def _live_or_say(self) -> None:
        """An error that nobody foresaw must not keep the pod from being deleted later."""
        try:
            await self._live()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends in an event
            _log.exception("pod %s stands still", full_name(self._pod))
            self._record("Warning", "FailedSync", f"error syncing pod, skipping: {error!r}")

    async def _live(self) -> None:
        """From admission to the last container's end; the result stays until the pod is deleted."""
        if dig(self._pod, "status.phase") in TERMINAL:
            return
        for container in self._containers:
            await container.runtime.settle()
        running = [c.name for c in self._containers if c.running]
        try:
            await self._services.admit(self._pod, running)
        except AdmissionError as error:
            await self._reject(str(error))
            return
        await self._mount()
        while (status := await self._sync())["phase"] not in TERMINAL:
            self._services.statuses.set(self._pod, status)
            await self._pause()
        await self._stop_all(self._grace)
        self._services.release(self._pod)
        self._publish()

    async def _reject(self, message: str) -> None:
        for container in self._containers:
            await container.runtime.stop(0)
        self._record("Warning", "UnexpectedAdmissionError", message)
        self._services.statuses.set(self._pod, rejected("UnexpectedAdmissionError", message))
        self._services.release(self._pod)

    async def _mount(self) -> None:
        directory = self._services.pods / uid_of(self._pod) / "volumes"
        delay = self._services.pace.first_retry
        while True:
            try:
                self._volumes = await volumes.set_up(self._services.client, self._pod, directory)
            except volumes.VolumeError as error:
                self._record("Warning", "FailedMount", str(error))
                self._publish()
                await asyncio.sleep(delay)
                delay = min(2 * delay, self._services.pace.retry)
            else:
                return

    async def _sync(self) -> Obj:
        """Start what may be started now, and return the status of that moment."""
        self._changed.clear()
        await self._start_due()
        return status_of(self._pod, self._containers, self._services.devices)

    async def _start_due(self) -> None:
        """Go through the containers in the order that their kinds demand."""
        self._due.clear()
        app_begun = any(c.begun for c in self._containers if c.kind is Kind.REGULAR)
        for container in self._containers:
            if container.running and container.name not in self._watchers:
                self._watch_end(container)
            if not container.running and not container.done and container.due <= time.monotonic():
                await self._start(container)
            if not container.running and not container.done:
                self._due.append(container.due)
            blocks = container.kind is not Kind.REGULAR and not container.done
            if blocks and not (container.kind is Kind.SIDECAR and (container.running or app_begun)):
                return

    async def _start(self, container: Container) -> None:
        try:
            await self._create(container)
        except (PluginError, MissingReferenceError) as error:
            self._hold(container, "CreateContainerConfigError", str(error))
        except CreateError as error:
            self._hold(container, "CreateContainerError", str(error))
        else:
            container.started()
            self._record("Normal", "Started", f"Started container {container.name}")
            self._watch_end(container)

    async def _create(self, container: Container) -> None:
        services, pod = self._services, self._pod
        responses = await services.devices.pre_start(uid_of(pod), container.name)
        edits = edits_of(responses, services.cdi)
        plugin_env = {name: value for response in responses for name, value in response.envs.items()}
        mounts = volumes.mounts_of(container.spec, self._volumes)
        around = Surroundings(plugin_env, edits, mounts, container.runtime.directory)
        launch = await services.launcher.build(pod, container.spec, around)
        self._starting = asyncio.create_task(container.runtime.start(launch))
        await asyncio.shield(self._starting)

    def _hold(self, container: Container, reason: str, message: str) -> None:
        container.failed_to_start(reason, message)
        self._record("Warning", "Failed", f"Error: {message}")

    def _watch_end(self, container: Container) -> None:
        """Have the worker woken when the container's present attempt ends (it may have ended already)."""
        self._watchers[container.name] = asyncio.create_task(self._wake_at_end(container))

    async def _wake_at_end(self, container: Container) -> None:
        await container.runtime.wait()
        self._changed.set()

    async def _pause(self) -> None:
        """Sleep until something changed or a container's time has come, be it that it came while others started."""
        first = min(self._due, default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if first is None else first - time.monotonic()):
                await self._changed.wait()

    async def _end(self) -> None:
        """The pod is being deleted: stop everything, then remove the object and the files."""
        if self._starting is not None:
            await self._starting
        await self._stop_all(self._services.pace.forced_grace if self._gone.is_set() else self._grace)
        for task in self._watchers.values():
            task.cancel()
        if not self._gone.is_set():
            await self._services.statuses.finalise(self._pod)
        self._services.release(self._pod)
        self._services.statuses.forget(self._pod)
        runtime.remove(self._services.pods, uid_of(self._pod))

    async def _stop_all(self, grace: float) -> None:
        """Regular containers together, then sidecars in reverse order."""
        regular = [c for c in self._containers if c.kind is not Kind.SIDECAR]
        for container in (c for c in self._containers if c.running):
            self._record("Normal", "Killing", f"Stopping container {container.name}")
        await asyncio.gather(*(c.runtime.stop(grace) for c in regular))
        for container in reversed([c for c in self._containers if c.kind is Kind.SIDECAR]):
            await container.runtime.stop(grace)

    @property
    def _grace(self) -> float:
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        return float(metadata.get("deletionGracePeriodSeconds", spec["terminationGracePeriodSeconds"]))

    def _publish(self) -> None:
        status = status_of(self._pod, self._containers, self._services.devices)
        self._services.statuses.set(self._pod, status)

    def _record(self, kind: str, reason: str, message: str) -> None:
        self._services.recorder.record(self._pod, kind, reason, message)

    def _container(self, spec: Obj, kind: Kind) -> Container:
        services = self._services
        found = runtime.Runtime(services.pods, uid_of(self._pod), spec["name"])
        return Container(spec, kind, self._pod["spec"]["restartPolicy"], found, services.pace)
