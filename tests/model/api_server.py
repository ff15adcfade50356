"""A stand-in for the API server: it keeps objects as JSON, numbers their versions, and tells watches of changes.

`VirtualApi` is the extender's own client with the network taken out: every request goes to the stand-in through a
`Line`, whose faults are what a history sets.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from aliquot.kube.access import Access
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api, WatchEvent
from aliquot.kube.fence import Fence, FenceClosedError
from aliquot.kube.objects import KubeObject
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aliquot.kube.resources import Resource

Obj = dict[str, Any]
T = TypeVar("T", bound=KubeObject)
TRIP_SECONDS: Final = 0.002
BOOKMARK_SECONDS: Final = 60.0
NAMESPACED: Final = frozenset(
    {"pods", "leases", "events", "podgroups", "poddisruptionbudgets", "resourcequotas"}
)


@dataclass(frozen=True)
class Change:
    """A change of an object. `before` is None for a new object, `after` is None for one that is gone."""

    version: int
    plural: str
    before: Obj | None
    after: Obj | None

    @property
    def kind(self) -> str:
        """The word of a watch for it."""
        return "DELETED" if self.after is None else "ADDED" if self.before is None else "MODIFIED"


class ApiServer:
    """All objects of the cluster, by plural and `namespace/name`."""

    def __init__(self) -> None:
        self.objects: defaultdict[str, dict[str, Obj]] = defaultdict(dict)
        self.version = 0
        self.log: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.listeners: list[Callable[[Change], None]] = []
        self.evictions: list[Callable[[Obj], None]] = []
        self.event_listeners: list[Callable[[Obj], None]] = []
        """Are told of each pod that the eviction API is about to delete."""
        self.told: set[asyncio.Event] = set()

    def pods(self) -> list[Obj]:
        """All pods."""
        return list(self.objects["pods"].values())

    def put(self, plural: str, obj: Obj) -> Obj:
        """Store a new or changed object, which belongs to the server from now on."""
        key = key_of(obj)
        before = self.objects[plural].get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        obj["metadata"].setdefault("uid", f"{plural}-{key}-{self.version}")
        self.objects[plural][key] = obj
        self._tell(Change(self.version, plural, before, obj))
        return obj

    def remove(self, plural: str, key: str) -> None:
        """An object is gone."""
        before = self.objects[plural].pop(key, None)
        if before is not None:
            self.version += 1
            gone = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
            self._tell(Change(self.version, plural, gone, None))

    def change(self, plural: str, key: str, how: Callable[[Obj], object]) -> None:
        """Change a copy of an object, and store it."""
        obj = copy.deepcopy(self.objects[plural][key])
        how(obj)
        self.put(plural, obj)

    def _tell(self, change: Change) -> None:
        seen = change.after or change.before
        line = json.dumps({"type": change.kind, "object": seen}).encode()
        self.log[change.plural].append((change.version, line))
        for listener in self.listeners:
            listener(change)
        for event in self.told:
            event.set()

    # ---- what requests do ----

    def handle(self, method: str, path: str, params: Mapping[str, str], body: Any) -> Any:
        """Answer one request; ApiError where it is refused."""
        plural, namespace, name, subresource = _read_path(path)
        key = f"{namespace}/{name}" if namespace else name
        if method == "GET":
            return self._get(plural, key) if name else self._list(plural, params)
        if subresource == "binding":
            return self._bind(key, body)
        if subresource == "eviction":
            return self._evict(key, body)
        if method == "POST":
            return self._create(plural, namespace, body)
        if method == "PATCH":
            return self._patch(plural, key, body)
        raise ApiError(405, "MethodNotAllowed", f"{method} {path}")

    def _get(self, plural: str, key: str) -> Obj:
        obj = self.objects[plural].get(key)
        if obj is None:
            raise ApiError(404, "NotFound", f"{plural} {key} not found")
        return obj

    def _list(self, plural: str, params: Mapping[str, str]) -> Obj:
        selector = [one.partition("=") for one in params.get("fieldSelector", "").split(",") if one]
        everything = self.objects[plural].values()
        items = [obj for obj in everything if all(_field(obj, path) == value for path, _, value in selector)]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    def _create(self, plural: str, namespace: str, body: Obj) -> Obj:
        if plural == "events":
            for listener in self.event_listeners:
                listener(body)
            return body
        obj = copy.deepcopy(body)
        if namespace:
            obj["metadata"]["namespace"] = namespace
        if key_of(obj) in self.objects[plural]:
            raise ApiError(409, "AlreadyExists", f"{plural} {key_of(obj)}")
        return self.put(plural, obj)

    def _patch(self, plural: str, key: str, body: Obj) -> Obj:
        old = self._get(plural, key)
        for field_name in ("uid", "resourceVersion"):
            asked = body.get("metadata", {}).get(field_name)
            if asked and asked != old["metadata"][field_name]:
                raise ApiError(
                    409, "Conflict", f"{plural} {key}: {field_name} is {old['metadata'][field_name]}"
                )
        new = merged(old, body)
        return old if new == old else self.put(plural, new)

    def _bind(self, key: str, body: Obj) -> Obj:
        pod = self._get("pods", key)
        meta = pod["metadata"]
        if (
            meta["uid"] != body["metadata"]["uid"]
            or pod["spec"].get("nodeName")
            or "deletionTimestamp" in meta
        ):
            raise ApiError(409, "Conflict", f"pod {key} is another, is bound, or is being deleted")
        annotations = body["metadata"].get("annotations") or {}
        given = {"metadata": {"annotations": annotations}, "spec": {"nodeName": body["target"]["name"]}}
        return self.put("pods", merged(merged(pod, given), {"status": {"nominatedNodeName": None}}))

    def _evict(self, key: str, body: Obj) -> Obj:
        pod = self._get("pods", key)
        if pod["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            raise ApiError(409, "Conflict", f"pod {key} is another")
        if "deletionTimestamp" not in pod["metadata"]:
            for listener in self.evictions:
                listener(pod)
            self.delete_pod(key)
        return {}

    def delete_pod(self, key: str) -> None:
        """Begin the end of a pod; its kubelet ends it. A pod without a node is gone at once."""
        pod = self.objects["pods"].get(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.remove("pods", key)
        else:
            by = CLOCK.stamp(CLOCK.now + pod["spec"].get("terminationGracePeriodSeconds", 1))
            self.put("pods", merged(pod, {"metadata": {"deletionTimestamp": by}}))


def key_of(obj: Obj) -> str:
    """`namespace/name`, or the name alone."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


def merged(old: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def _field(obj: Any, path: str) -> str:
    """A field as a selector names it; empty where there is none."""
    for name in path.split("."):
        obj = obj.get(name, "")
    return str(obj)


def _read_path(path: str) -> tuple[str, str, str, str]:
    """Plural, namespace, name and subresource."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return plural, namespace, name, subresource


@dataclass
class Line:
    """The network between one replica and the API server.

    Attributes:
        away_until: No request arrives before this time.
        lose: So many of the next writes arrive, and their answers do not.
        drop: So many of the next writes do not arrive.
        slow: So many of the next writes take a second longer.
        watch_from: Watches tell of nothing before this time.
    """

    away_until: float = 0.0
    lose: int = 0
    drop: int = 0
    slow: int = 0
    watch_from: float = 0.0
    moved: asyncio.Event = field(default_factory=asyncio.Event)


class VirtualApi(Api):
    """The extender's client of the stand-in."""

    def __init__(self, server: ApiServer, line: Line, fence: Fence | None = None) -> None:
        super().__init__(Access("http://model"))
        self._virtual_server = server
        self._line = line
        self._write_fence = fence

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",  # noqa: ARG002 - as the extender's client has it
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> bytes:
        """Send a request over the line."""
        if body is None or self._write_fence is None:
            return await self._send(method, path, params or {}, body)
        answered = False
        self._write_fence.begin()
        try:
            async with asyncio.timeout(self._write_fence.seconds):
                answer = await self._send(method, path, params or {}, body)
            answered = True
            return answer
        except ApiError as error:
            answered = not error.transient
            raise
        except TimeoutError as error:
            raise ApiError(0, "", "no answer in time") from error
        finally:
            self._write_fence.end(answered=answered)

    async def _send(self, method: str, path: str, params: Mapping[str, str], body: Any) -> bytes:
        line, writes = self._line, body is not None
        lost = slow = False
        if writes and line.slow:
            line.slow, slow = line.slow - 1, True
        if writes and line.drop:
            line.drop -= 1
            raise ApiError(0, "", "connection reset")
        if writes and line.lose:
            line.lose, lost = line.lose - 1, True
        await asyncio.sleep(TRIP_SECONDS)
        if CLOCK.now < line.away_until:
            raise ApiError(0, "", "no route to the API server")
        if writes and self._write_fence is not None:
            try:
                self._write_fence.check()
            except FenceClosedError as error:
                raise ApiError(0, "", str(error)) from error
        if slow:
            return await asyncio.shield(asyncio.ensure_future(self._later(method, path, params, body)))
        # The body is decoded from bytes, as a server would: no object is shared with the client.
        sent = msgspec.json.decode(msgspec.json.encode(body)) if writes else None
        answer = json.dumps(self._virtual_server.handle(method, path, params, sent)).encode()
        if lost:
            raise ApiError(0, "", "connection reset after the write")
        return answer

    async def _later(self, method: str, path: str, params: Mapping[str, str], body: Any) -> bytes:
        """A write that has left and takes its time; it arrives even if nothing waits for its answer any more."""
        sent = msgspec.json.decode(msgspec.json.encode(body))
        await asyncio.sleep(1.0)
        return json.dumps(self._virtual_server.handle(method, path, params, sent)).encode()

    async def watch(
        self,
        resource: Resource[T],
        resource_version: str,
        namespace: str = "",  # noqa: ARG002 - as the extender's client has it
        *,
        field_selector: str = "",  # noqa: ARG002
        label_selector: str = "",  # noqa: ARG002
        seconds: int = 300,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Tell of changes after a version, as late as the line has it."""
        await asyncio.sleep(TRIP_SECONDS)
        if CLOCK.now < self._line.away_until:
            raise ApiError(0, "", "no route to the API server")
        if on_open is not None:
            on_open()
        server, end, seen = self._virtual_server, CLOCK.now + seconds, int(resource_version)
        log = server.log[resource.plural]
        at = next((n for n, (version, _) in enumerate(log) if version > seen), len(log))
        told = asyncio.Event()
        server.told.add(told)
        try:
            while CLOCK.now < end:
                if CLOCK.now < self._line.watch_from:
                    await asyncio.sleep(self._line.watch_from - CLOCK.now)
                if CLOCK.now < self._line.away_until:
                    raise ApiError(0, "", "the watch broke")
                told.clear()
                while at < len(log) and CLOCK.now >= self._line.watch_from:
                    line = log[at][1]
                    at += 1
                    yield msgspec.json.decode(line, type=WatchEvent)
                if at == len(log):
                    bookmark = server.version
                    await _wait(told, min(BOOKMARK_SECONDS, end - CLOCK.now))
                    if not told.is_set() and at == len(log):
                        meta = {"metadata": {"resourceVersion": str(bookmark)}}
                        text = json.dumps({"type": "BOOKMARK", "object": meta}).encode()
                        yield msgspec.json.decode(text, type=WatchEvent)
                    await asyncio.sleep(TRIP_SECONDS)
        finally:
            server.told.discard(told)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0.001)):
            await event.wait()
    except TimeoutError:
        pass
