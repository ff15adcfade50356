"""Kubernetes events, written on a best-effort basis: what a person reads in `kubectl describe`."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of, timestamp

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.objects import Obj


class Recorder:
    """Writes events of one component; repeated ones are counted on the first."""

    def __init__(self, client: Client, component: str, host: str = "") -> None:
        self._client = client
        self._source = {"component": component, **({"host": host} if host else {})}
        self._serial = itertools.count(time.time_ns())
        self._seen: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._queue: asyncio.Queue[tuple[Obj, str, str, str]] = asyncio.Queue()

    def record(self, about: Obj, kind: str, reason: str, message: str) -> None:
        """Note an event (`kind`: Normal or Warning) about a pod; returns at once."""
        self._queue.put_nowait((about, kind, reason, message))

    async def run(self) -> None:
        """Write what was recorded, for ever; what cannot be written is dropped."""
        while True:
            about, kind, reason, message = await self._queue.get()
            try:
                await self._write(about, kind, reason, message)
            except ApiError:
                continue

    async def _write(self, about: Obj, kind: str, reason: str, message: str) -> None:
        path = f"/api/v1/namespaces/{namespace_of(about)}/events"
        key = (str(dig(about, "metadata.uid")), reason, message)
        if key in self._seen:
            name, count = self._seen[key]
            self._seen[key] = (name, count + 1)
            await self._client.patch(f"{path}/{name}", {"count": count + 1, "lastTimestamp": timestamp()})
            return
        name = f"{name_of(about)}.{next(self._serial):x}"
        self._seen[key] = (name, 1)
        metadata = {"name": name, "namespace": namespace_of(about)}
        await self._client.create(
            path,
            {
                "metadata": metadata,
                "involvedObject": _reference(about),
                "type": kind,
                "reason": reason,
                "message": message,
                "source": self._source,
                "count": 1,
                "firstTimestamp": timestamp(),
                "lastTimestamp": timestamp(),
            },
        )


def _reference(about: Obj) -> Obj:
    metadata = about["metadata"]
    keys = ("name", "namespace", "uid", "resourceVersion")
    return {"kind": "Pod", "apiVersion": "v1", **{key: metadata[key] for key in keys if key in metadata}}
