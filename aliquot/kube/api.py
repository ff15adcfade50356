"""A thin asynchronous client of the Kubernetes API.

It reads into our own structs and writes plain JSON. Nothing is retried here: what may be repeated, and for
how long, only the caller knows; `ApiError.transient` tells it what is worth repeating.

A proxy that the environment names is looked up once, as client-go does. aiohttp itself would ask environment and .netrc
anew for each request, in threads, which costs more than the rest of a small one; credentials are in the kubeconfig.
"""

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from aliquot.kube.access import Access, AccessError
from aliquot.kube.answers import ApiError, error_from_status, no_answer, read_answer
from aliquot.kube.fence import Fence, FencedBody
from aliquot.kube.kubeconfig import load_access
from aliquot.kube.listing import PAGE, Listing, read_page, whole
from aliquot.kube.objects import UNREADABLE, KubeObject, KubeStruct
from aliquot.kube.resources import PODS, Resource

T = TypeVar("T", bound=KubeObject)

_REQUEST_SECONDS: Final = 15.0
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class PatchType(StrEnum):
    """How the body of a patch is meant."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


class WatchEvent(KubeStruct, frozen=True, kw_only=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object unread."""

    type: str
    object: msgspec.Raw


class Api:
    """One API server. Use it as `async with Api(access) as api`, or close it."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str = "aliquot",
        timeout_seconds: float = _REQUEST_SECONDS,
        fence: Fence | None = None,
    ) -> None:
        """Connect at the first request.

        Args:
            access: Where the server is and how to be let in.
            user_agent: As whom to appear in its log.
            timeout_seconds: How long an answer is waited for.
            fence: What every request with a body has to pass.
        """
        self._access = access
        self._fence = fence
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._proxy = access.proxy or _proxy_of_environment(access.server)

    @classmethod
    def from_kubeconfig(
        cls,
        kubeconfig: Path | str | None = None,
        *,
        user_agent: str = "aliquot",
        timeout_seconds: float = _REQUEST_SECONDS,
        fence: Fence | None = None,
    ) -> Self:
        """Connect as a kubeconfig says; without one, as the pod we run in.

        Raises:
            AccessError: there is no usable configuration.
        """
        access = load_access(kubeconfig)
        return cls(access, user_agent=user_agent, timeout_seconds=timeout_seconds, fence=fence)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._access.server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Read one object.

        Raises:
            ApiError: there is none, or the server did not answer.
        """
        return read_answer(await self.request("GET", resource.path(name, namespace)), resource.type)

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> Listing[T]:
        """Read all objects of a kind, as of now.

        Raises:
            ApiError: the server refused or did not answer.
        """
        pages = self.pages(resource, namespace, field_selector=field_selector, label_selector=label_selector)
        try:
            return whole([page async for page in pages])
        except ApiError as error:
            if not error.gone:
                raise
        # The server has forgotten the list between two pages; a whole one cannot be forgotten.
        pages = self.pages(
            resource, namespace, field_selector=field_selector, label_selector=label_selector, size=0
        )
        return whole([page async for page in pages])

    async def pages(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        size: int = PAGE,
    ) -> AsyncIterator[Listing[T]]:
        """Read all objects of a kind, so many at a time (0: all at once), all as of the same moment.

        Raises:
            ApiError: the server refused or did not answer; `gone` where it has forgotten the list before its end:
                what was read until then is worth nothing.
        """
        params = _given(fieldSelector=field_selector, labelSelector=label_selector)
        params |= {"limit": str(size)} if size else {}
        token = ""
        while True:
            asked = {**params, **_given(**{"continue": token})}
            answer = await self.request("GET", resource.path(namespace=namespace), params=asked)
            try:
                page, token = read_page(answer, resource.type)
            except UNREADABLE as error:
                raise no_answer("list", error) from error
            yield page
            if not token:
                return

    async def version(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        cached: bool = False,
    ) -> str:
        """The resource version that a list of these objects would have now; one of them at most is read for it.

        A list for which no version is asked is consistent: nothing that was written before has a later one. One
        that may be `cached` costs the server less, reads all that are selected, and may lag behind.

        Raises:
            ApiError: the server refused or did not answer.
        """
        params = _given(fieldSelector=field_selector, labelSelector=label_selector)
        params |= {"resourceVersion": "0"} if cached else {"limit": "1"}
        answer = await self.request("GET", resource.path(namespace=namespace), params=params)
        return read_answer(answer, KubeObject).metadata.resource_version

    async def create(self, resource: Resource[T], body: Mapping[str, Any], namespace: str = "") -> T:
        """Make an object.

        Raises:
            ApiError: it exists (`conflict`), is invalid, or the server did not answer.
        """
        return read_answer(
            await self.request("POST", resource.path(namespace=namespace), body=body), resource.type
        )

    async def replace(
        self, resource: Resource[T], name: str, body: Mapping[str, Any], namespace: str = ""
    ) -> T:
        """Put a whole object in another's place; its `resourceVersion`, where given, must be the current one.

        Raises:
            ApiError: it changed meanwhile (`conflict`), is gone, or the server did not answer.
        """
        return read_answer(
            await self.request("PUT", resource.path(name, namespace), body=body), resource.type
        )

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        how: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> T:
        """Change parts of an object.

        Raises:
            ApiError: the server refused or did not answer.
        """
        path = resource.path(name, namespace, subresource)
        return read_answer(await self.request("PATCH", path, body=body, content_type=how), resource.type)

    async def patch_status(self, resource: Resource[T], name: str, status: Any, namespace: str = "") -> T:
        """Change parts of an object's status; lists are replaced whole.

        Raises:
            ApiError: the server refused or did not answer.
        """
        body = {"status": msgspec.to_builtins(status)}
        return await self.patch(resource, name, body, namespace, subresource="status")

    async def delete(self, resource: Resource[T], name: str, namespace: str = "", *, uid: str = "") -> None:
        """Delete an object; with a UID, only if it is still that one.

        Raises:
            ApiError: there is none, it is another one (`conflict`), or the server did not answer.
        """
        body = {"preconditions": {"uid": uid}} if uid else None
        await self.request("DELETE", resource.path(name, namespace), body=body)

    async def bind_pod(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Give a pod its node and these annotations, in one write, if it is still the pod of this UID.

        Raises:
            ApiError: the pod is gone, another, or bound already (`conflict`), or the server did not answer.
        """
        metadata = {"namespace": namespace, "name": name, "uid": uid, "annotations": dict(annotations)}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.request("POST", PODS.path(name, namespace, "binding"), body=body)

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Have a pod deleted if its disruption budget allows that, and if it is still the pod of this UID.

        Raises:
            ApiError: the budget allows none now (`too_many`), the pod is gone or another (`conflict`), or the server
                did not answer.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self.request("POST", PODS.path(name, namespace, "eviction"), body=body)

    async def watch(
        self,
        resource: Resource[T],
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        seconds: int = 300,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Follow changes after a resource version, until the server ends the watch after about `seconds`.

        `on_open` is called once the server has agreed, which may be long before the first event.

        Raises:
            ApiError: the server refused (`gone`: list again), sent a line that is no event (500), or the
                connection broke, even within a line.
        """
        params = _given(fieldSelector=field_selector, labelSelector=label_selector)
        params |= {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        # TCP keepalive notices a server that is gone without a word, sock_read one that forgets to end.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout.total, sock_read=seconds + 30)
        async with self._response(
            "GET", resource.path(namespace=namespace), params, timeout=timeout
        ) as answer:
            _keep_alive(answer)
            if on_open is not None:
                on_open()
            async for line in _lines(answer.content):
                yield read_answer(line, WatchEvent, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send any request and return the body of its answer; `headers` come beside the usual ones.

        Raises:
            ApiError: the server refused or did not answer.
        """
        data = None if body is None else msgspec.json.encode(body)
        fence = None if data is None else self._fence
        sent = FencedBody(data, fence) if data is not None and fence is not None else data
        timeout = aiohttp.ClientTimeout(total=fence.seconds) if fence is not None else None
        with _told(fence):
            async with self._response(
                method, path, params, data=sent, content_type=content_type, timeout=timeout, headers=headers
            ) as answer:
                return await answer.read()

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        data: bytes | FencedBody | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's own kind of timeout
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an answer whose status is good; everything that goes wrong becomes an ApiError."""
        url = URL(self._access.server + path, encoded=True)
        url = url.update_query(params) if params else url
        try:
            sent = {"Content-Type": content_type, "Accept": "application/json", **(headers or {})}
            sent |= await self._access.headers()
            async with self._open().request(
                method,
                url,
                data=data,
                headers=sent,
                timeout=timeout or self._timeout,
                proxy=self._proxy,
                server_hostname=self._access.server_name,
            ) as answer:
                await self._refuse_bad(answer)
                yield answer
        except (aiohttp.ClientError, OSError, TimeoutError, AccessError) as error:
            why = str(error) or type(error).__name__
            raise ApiError(0, "", f"no answer from {self._access.server}: {why}") from error

    async def _refuse_bad(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status < HTTPStatus.BAD_REQUEST:
            return
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self._access.forget_token()
        raise error_from_status(await answer.read(), answer.status)

    def _open(self) -> aiohttp.ClientSession:
        """Return the session, made at first use because it belongs to the running loop."""
        if self._session is None:
            tls = self._access.tls if self._access.tls is not None else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._user_agent},
            )
        return self._session


def _proxy_of_environment(server: str) -> str | None:
    """The proxy through which the environment has a server reached; none for those that it excepts."""
    url = URL(server)
    if url.host is None or proxy_bypass(url.host):
        return None
    return getproxies().get(url.scheme)


@contextmanager
def _told(fence: Fence | None) -> Iterator[None]:
    """Tell a fence of a write, and whether the server has said what became of it."""
    if fence is None:
        yield
        return
    answered = False
    fence.begin()
    try:
        yield
        answered = True
    except ApiError as error:
        answered = not error.transient
        raise
    finally:
        fence.end(answered=answered)


def _given(**params: str) -> dict[str, str]:
    """Keep the parameters that say something."""
    return {name: value for name, value in params.items() if value}


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length (the reader's own limit is shorter than some pods)."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        rest += chunk
        if b"\n" in chunk:
            *lines, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in lines:
                if line.strip():
                    yield line
    if rest.strip():
        raise ApiError(0, "", "the watch broke off within a line")


def _keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Let the kernel find out within a minute that the other machine is gone."""
    transport = answer.connection.transport if answer.connection else None
    sock = transport.get_extra_info("socket") if transport else None
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
