"""Watches: an endless JSON stream of changes, with bookmarks, resumption and 410 when history is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from aliquot.sandbox.cluster.apiserver import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.apiserver.resources import Resource
    from aliquot.sandbox.cluster.apiserver.selectors import Selector
    from aliquot.sandbox.cluster.apiserver.store import Change, Store
    from aliquot.sandbox.cluster.objects import Obj

INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class WatchOptions:
    """The parameters of a watch. Times in seconds; `version` None or 0: start with what is there."""

    version: int | None
    namespace: str
    name: str
    selector: Selector
    timeout: float
    bookmarks: bool
    initial_events: bool


class Watch:
    """One client's stream over one resource."""

    def __init__(
        self, store: Store, resource: Resource, options: WatchOptions, bookmark_period: float
    ) -> None:
        self._store = store
        self._resource = resource
        self._options = options
        self._period = bookmark_period
        self._seen = options.version or 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Stream until the client leaves, the timeout passes or the server stops."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            async with asyncio.timeout(self._options.timeout):
                await self._stream(response)
        except TimeoutError:
            await self._bookmark(response)
        except errors.StatusError as error:
            await response.write(_line("ERROR", error.body))
        except ConnectionError:
            return response
        return response

    async def _stream(self, response: web.StreamResponse) -> None:
        with self._store.subscribe(self._resource.key) as subscription:
            await response.write(b"".join(self._beginning()))
            while True:
                try:
                    async with asyncio.timeout(self._period):
                        change = await subscription.next()
                except TimeoutError:
                    await self._bookmark(response)
                    continue
                lines = [*self._lines(change)]
                for further in subscription.ready():
                    lines += self._lines(further)
                if lines:
                    await response.write(b"".join(lines))

    def _beginning(self) -> Iterator[bytes]:
        """What the client has missed, or (without a version) all there is."""
        if self._options.version and not self._options.initial_events:
            for change in self._store.since(self._resource.key, self._options.version):
                yield from self._lines(change)
            return
        self._seen = self._store.version
        for obj in self._store.list(self._resource.key, self._options.namespace):
            if self._matches(obj):
                yield _line("ADDED", obj)
        if self._options.initial_events:
            yield _line("BOOKMARK", self._mark({INITIAL_END: "true"}))

    def _lines(self, change: Change) -> Iterator[bytes]:
        """A change as this client sees it: entering its selection is ADDED, leaving it is DELETED."""
        if change.version <= self._seen:
            return
        self._seen = change.version
        before = self._matches(change.previous) and change.type != "ADDED"
        after = self._matches(change.object) and change.type != "DELETED"
        if after:
            yield _line("MODIFIED" if before else "ADDED", change.object)
        elif before:
            last = change.previous if change.type == "MODIFIED" else change.object
            metadata = {**(last or {})["metadata"], "resourceVersion": str(change.version)}
            yield _line("DELETED", {**(last or {}), "metadata": metadata})

    def _matches(self, obj: Obj | None) -> bool:
        if obj is None:
            return False
        metadata, options = obj["metadata"], self._options
        return (
            options.namespace in ("", metadata.get("namespace", ""))
            and options.name in ("", metadata["name"])
            and options.selector.matches(obj)
        )

    def _mark(self, annotations: Obj | None = None) -> Obj:
        """An empty object that says how far this client has seen."""
        self._seen = max(self._seen, self._store.version)
        metadata: Obj = {"resourceVersion": str(self._seen), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}

    async def _bookmark(self, response: web.StreamResponse) -> None:
        if self._options.bookmarks:
            await response.write(_line("BOOKMARK", self._mark()))


def _line(kind: str, obj: Obj) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
