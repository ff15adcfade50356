"""A small API server for tests: one collection of pods, its history of events, and ways to misbehave."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from aiohttp import web

Json = dict[str, Any]


def pod(name: str, version: int, uid: str = "", **status: Any) -> Json:
    """Build a pod as the API server sends it."""
    meta = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}


def status(code: int, reason: str) -> Json:
    """Build the Status that stands for an error."""
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"{reason} it is",
    }


@dataclass
class KubeServer:
    """Serves pods at /api/v1/pods; every list, watch and other request is recorded."""

    version: int = 1
    oldest: int = 0
    pods: dict[str, Json] = field(default_factory=dict)
    history: list[tuple[int, bytes]] = field(default_factory=list)
    lists: int = 0
    refused: int = 0
    delivered: int = 0
    opened: int = 0
    watches: list[dict[str, str]] = field(default_factory=list)
    requests: list[tuple[str, str, str, Any]] = field(default_factory=list)
    pages: list[tuple[str, str]] = field(default_factory=list)
    before_page: Callable[[str], None] = lambda _: None
    answer: Callable[[web.Request], web.Response | None] = lambda _: None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _open: list[web.Request] = field(default_factory=list)
    url: str = ""
    port: int = 0
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; a second start takes the port of the first."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Die: cut every connection and stop listening."""
        self.cut_watches()
        if self._runner:
            await self._runner.cleanup()

    async def until(self, condition: Callable[[], bool], seconds: float = 3) -> None:
        """Wait until something is true; fail after a deadline."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - a condition is anything, not an event
                await asyncio.sleep(0.005)

    def refuse(self, code: int, reason: str) -> None:
        """Answer everything with this error from now on; 0 ends it."""

        def answer(_: web.Request) -> web.Response | None:
            self.refused += 1
            return web.json_response(status(code, reason), status=code) if code else None

        self.answer = answer

    def put(self, name: str, uid: str = "", **status_fields: Any) -> None:
        """Create or change a pod."""
        kind = "MODIFIED" if name in self.pods else "ADDED"
        self.version += 1
        self.pods[name] = pod(name, self.version, uid, **status_fields)
        self.send(kind, self.pods[name])

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self.version += 1
        gone = self.pods.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.send("DELETED", gone)

    def send(self, kind: str, thing: Json) -> None:
        """Put an event into the history, whatever it says."""
        self.write(json.dumps({"type": kind, "object": thing}).encode() + b"\n")

    def write(self, raw: bytes) -> None:
        """Put bytes on every watch."""
        self.history.append((self.version, raw))
        self._wake()

    def forget(self) -> None:
        """Compact: no watch can start from before now."""
        self.oldest = self.version

    def restore(self, version: int, *names: str) -> None:
        """Go back in time, as from a backup of then, with these pods; watches from later than that are silent."""
        self.cut_watches()
        self.version, self.oldest, self.history = version, 0, []
        self.pods = {name: pod(name, version) for name in names}

    def cut_watches(self) -> None:
        """Break the connection of every watch, without a farewell."""
        for request in self._open:
            if request.transport:
                request.transport.abort()
        self._open = []
        self._wake()

    def end_watches(self) -> None:
        """End every watch in good order, as a server does after `timeoutSeconds`."""
        self._open = []
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        special = self.answer(request)
        if special is not None:
            return special
        if request.method != "GET" or request.path != "/api/v1/pods":
            body = await request.read()
            parsed = json.loads(body) if body else None
            self.requests.append((request.method, request.path, request.content_type, parsed))
            return web.json_response(pod("p", 1))
        if "watch" in request.query:
            return await self._watch(request)
        return self._list(request.query.get("limit", ""), request.query.get("continue", ""))

    def _list(self, limit: str, token: str) -> web.Response:
        """A page as of the version at which the list began, which is in the token; 410 once that is forgotten."""
        self.lists += not token and limit != "1"
        self.pages.append((limit, token))
        self.before_page(token)
        version, _, after = (token or f"{self.version}:").partition(":")
        if int(version) < self.oldest:
            return web.json_response(status(410, "Expired"), status=410)
        names = sorted(name for name in self.pods if name > after)
        shown = names[: int(limit)] if limit else names
        meta = {"resourceVersion": version}
        if len(shown) < len(names):
            meta["continue"] = f"{version}:{shown[-1]}"
        items = [self.pods[name] for name in shown]
        return web.json_response({"kind": "PodList", "metadata": meta, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches.append(dict(request.query))
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return web.json_response(status(410, "Expired"), status=410)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        self._open.append(request)
        self.opened += 1
        sent = sum(version <= since for version, _ in self.history)
        ahead = since > self.version
        with suppress(ConnectionError):
            while any(request is other for other in self._open):
                changed = self._changed
                for version, raw in self.history[sent:]:
                    if version > since or not ahead:
                        await response.write(raw)
                self.delivered = sent = len(self.history)
                await changed.wait()
        return response


@pytest.fixture
def kube() -> KubeServer:
    """Give a server that runs within `async with kube:`."""
    return KubeServer()
