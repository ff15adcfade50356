"""The pocket cluster's own asynchronous client of its API server, for the kubelet and the scheduler.

Apart from `aliquot.kube` on purpose: the project's client is tested against these processes, not with itself.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import yaml

from aliquot.sandbox.cluster.objects import full_name, uid_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from aliquot.sandbox.cluster.objects import Obj

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
GONE = 410
WATCH_SECONDS = 300
RETRY_SECONDS = 0.3
LARGEST_LINE = 8 * 1024 * 1024


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code, 0 when the server could not be reached."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @classmethod
    def of_answer(cls, status: int, content: bytes) -> ApiError:
        """The error of an answer: a `Status`, or plain text where no group of that name is served (yet)."""
        try:
            body: Any = msgspec.json.decode(content)
        except msgspec.DecodeError:
            body = {}
        if not isinstance(body, dict):
            body = {}
        text = content[:200].decode(errors="replace").strip()
        return cls(status, body.get("reason", ""), body.get("message", text))


@dataclass(frozen=True)
class Credentials:
    """Where an API server is and how to prove who asks: by a token, or by a certificate and its key.

    Whoever may impersonate others can ask in their name: `as` and `as-groups` of a kubeconfig's user.
    """

    server: str
    authority: str  # PEM
    token: str = ""
    pair: tuple[str, str] | None = None  # files
    name: str = ""  # of another, in whose name is asked
    groups: tuple[str, ...] = ()

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Credentials:
        """Read the (only) cluster and user of a kubeconfig; a client's certificate is named by file."""
        document = yaml.safe_load(path.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        if "certificate-authority" in cluster:
            authority = Path(cluster["certificate-authority"]).read_text()
        else:
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        token, pair = user.get("token", ""), None
        if "client-certificate" in user:
            token, pair = "", (user["client-certificate"], user["client-key"])
        other = user.get("as", ""), tuple(user.get("as-groups", ()))
        return cls(cluster["server"], authority, token, pair, *other)

    def trust(self) -> ssl.SSLContext:
        """TLS that trusts this server alone, and shows it the certificate."""
        context = ssl.create_default_context(cadata=self.authority)
        if self.pair:
            context.load_cert_chain(*self.pair)
        return context

    def headers(self) -> list[tuple[str, str]]:
        """What every request carries."""
        known = [("Authorization", f"Bearer {self.token}")] if self.token else []
        other = [("Impersonate-User", self.name)] if self.name else []
        return [*known, *other, *(("Impersonate-Group", group) for group in self.groups)]


@dataclass(frozen=True)
class Notice:
    """What a follower sees: ADDED, MODIFIED or DELETED; SYNCED (no object) after the first list."""

    type: str
    object: Obj
    previous: Obj | None = None


class Client:
    """Requests and watches; use inside a running event loop and close at the end."""

    def __init__(self, credentials: Credentials) -> None:
        connector = aiohttp.TCPConnector(ssl=credentials.trust(), limit=0)
        self._session = aiohttp.ClientSession(
            credentials.server,
            connector=connector,
            headers=credentials.headers(),
            read_bufsize=LARGEST_LINE,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> Obj:
        """GET an object or a list."""
        return await self._request("GET", path, query=query)

    async def create(self, path: str, obj: Obj) -> Obj:
        """POST to a collection or subresource."""
        return await self._request("POST", path, obj)

    async def replace(self, path: str, obj: Obj) -> Obj:
        """PUT an object."""
        return await self._request("PUT", path, obj)

    async def patch(self, path: str, patch: Obj, media_type: str = STRATEGIC_PATCH) -> Obj:
        """PATCH an object."""
        return await self._request("PATCH", path, patch, media_type=media_type)

    async def delete(self, path: str, options: Obj | None = None) -> Obj:
        """DELETE an object."""
        return await self._request("DELETE", path, options)

    async def follow(self, path: str, **query: str) -> AsyncIterator[Notice]:
        """All objects of a collection and every change, for ever: survives restarts of the server and 410."""
        known: dict[str, Obj] = {}
        version, synced = "", False
        while True:
            try:
                if not version:
                    listed = await self.get(path, **query)
                    version = listed["metadata"]["resourceVersion"]
                    for notice in _differences(known, listed["items"]):
                        yield notice
                    if not synced:
                        synced = True
                        yield Notice("SYNCED", {})
                async for event in self._watch(path, version, query):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield _apply(known, event)
            except ApiError as error:
                version = "" if error.status == GONE else version
                await asyncio.sleep(RETRY_SECONDS)

    async def _watch(self, path: str, version: str, query: Mapping[str, str]) -> AsyncIterator[Obj]:
        query = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=WATCH_SECONDS)
        try:
            async with self._session.get(path, params=query, timeout=timeout) as reply:
                if reply.status >= 400:  # noqa: PLR2004
                    raise ApiError.of_answer(reply.status, await reply.read())
                async for line in reply.content:
                    yield msgspec.json.decode(line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiError(0, "Unreachable", str(error)) from error

    async def _request(
        self,
        method: str,
        path: str,
        body: Obj | None = None,
        *,
        query: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> Obj:
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": media_type}
        try:
            request = self._session.request(
                method,
                path,
                data=data,
                params=query,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=20),
            )
            async with request as reply:
                content = await reply.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(0, "Unreachable", str(error)) from error
        if reply.status >= 400:  # noqa: PLR2004
            raise ApiError.of_answer(reply.status, content)
        decoded: Obj = msgspec.json.decode(content)
        return decoded


def _differences(known: dict[str, Obj], items: list[Obj]) -> Iterator[Notice]:
    """What a fresh list changes in what was known; another UID under an old name is a new object."""
    listed = {full_name(obj): obj for obj in items}
    for name in [n for n, obj in known.items() if n not in listed or uid_of(listed[n]) != uid_of(obj)]:
        yield Notice("DELETED", known.pop(name))
    for name, obj in listed.items():
        old = known.get(name)
        known[name] = obj
        if old is None:
            yield Notice("ADDED", obj)
        elif old["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            yield Notice("MODIFIED", obj, old)


def _apply(known: dict[str, Obj], event: Obj) -> Notice:
    obj, name = event["object"], full_name(event["object"])
    if event["type"] == "DELETED":
        return Notice("DELETED", obj, known.pop(name, None))
    old = known.get(name)
    known[name] = obj
    return Notice("ADDED" if old is None else "MODIFIED", obj, old)
