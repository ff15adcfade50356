"""The proxy of services: `…/services/[https:]NAME:PORT/proxy/PATH` goes to an endpoint of that port.

As the real one: who may call is settled before, so the caller's credentials stay here; certificates of endpoints are
not verified; an endpoint that cannot be reached is 503.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from aliquot.sandbox.cluster.apiserver import errors
from aliquot.sandbox.cluster.apiserver.errors import StatusError

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

SECONDS = 30
_NOT_PASSED_ON = {
    "authorization",
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "accept-encoding",
}
"""What stays here: the caller's credentials, and what is of this connection alone."""
SERVICE_IN = 4
"""Where a path of a service has the word `services`."""


def is_proxied(path: list[str]) -> bool:
    """Whether a path leads beyond a service."""
    start = ["api", "v1", "namespaces"]
    return path[:3] == start and path[SERVICE_IN : SERVICE_IN + 1] == ["services"] and path[6:7] == ["proxy"]


async def pass_on(store: Store, request: web.Request, path: list[str]) -> web.Response:
    """The endpoint's answer. StatusError 404 where there is no such service or port, 503 without an endpoint."""
    namespace, service, rest = path[3], path[5], "/".join(path[7:])
    scheme, name, port = _parts(service)
    url = f"{scheme}://{_endpoint(store, namespace, name, port)}/{rest}"
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    kept = {key: value for key, value in request.headers.items() if key.lower() not in _NOT_PASSED_ON}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                request.method,
                url,
                params=request.query,
                data=await request.read() or None,
                headers=kept,
                ssl=False,
            ) as answer,
        ):
            body = await answer.read()
            return web.Response(body=body, status=answer.status, content_type=answer.content_type)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _unavailable(f"error trying to reach service: {error}") from error


def _parts(service: str) -> tuple[str, str, str]:
    """Scheme, name and port of `https:name:port`, of which only the name must be there."""
    parts = service.split(":")
    scheme = parts.pop(0) if parts[0] in ("http", "https") and len(parts) > 1 else "http"
    return scheme or "http", parts[0], parts[1] if len(parts) > 1 else ""


def _endpoint(store: Store, namespace: str, name: str, port: str) -> str:
    """Address and port of one of a service's endpoints."""
    service = store.get("services", namespace, name)
    if service is None:
        raise errors.not_found("services", name)
    ports: list[Obj] = service["spec"].get("ports") or []
    wanted = [p for p in ports if port in (str(p["port"]), p.get("name", ""))]
    if not wanted:
        raise _unavailable(f'no service port "{port}" found for service "{name}"')
    endpoints = store.get("endpoints", namespace, name) or {}
    for subset in endpoints.get("subsets") or []:
        for there in subset.get("ports") or []:
            if there.get("name", "") == wanted[0].get("name", "") and subset.get("addresses"):
                return f"{subset['addresses'][0]['ip']}:{there['port']}"
    raise _unavailable(f'no endpoints available for service "{name}"')


def _unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)
