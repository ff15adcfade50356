"""Passes calls on to the replica that leads, over TLS, with one's own certificate shown.

A call goes one step at most: it carries a header then, and a replica that gets it and does not lead answers an error,
which makes kube-scheduler try the pod again. Calls from other machines need a certificate of the replicas' CA,
because bind acts with more rights than a caller may have; kube-scheduler calls from the same pod and needs none.

Where kube-scheduler has nobody else to ask, a call may be held instead of answered with an error (`hold_seconds`): it
is passed on again and again, until a replica answers, which may be this one by then. A leader that hangs is waited for
only until another replica leads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Protocol

import aiohttp
from aiohttp import web
from prometheus_client import Counter

from aliquot.scheduler_ext.kube_scheduler.health import PATH as KUBE_SCHEDULER_HEALTH
from aliquot.scheduler_ext.runtime.election import Election
from aliquot.scheduler_ext.runtime.leader import Leadership
from aliquot.server.authn import Right, refusal
from aliquot.server.connection_limits import is_local
from aliquot.server.tls import CertificatePair, client_context

FORWARDED_HEADER = "Aliquot-Forwarded-By"
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 8.0
"""Three requests to the API server at their slowest, and below the time for which kube-scheduler waits."""
CALLS = frozenset({"/filter", "/preempt", "/bind"})
VOLCANO_CALLS = "/volcano/"
HEALTH = frozenset({"/healthz", "/readyz", KUBE_SCHEDULER_HEALTH})
AGAIN_SECONDS = 0.1
"""Between two looks at who leads."""


class ForwardError(Exception):
    """Nobody has answered the call; the message is what kube-scheduler shows and retries on."""


class Asked(Protocol):
    """A call, as far as passing it on goes; a request of aiohttp's is one."""

    @property
    def method(self) -> str:
        """`POST` or `GET`."""

    @property
    def path_qs(self) -> str:
        """The path, and what follows a question mark."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in whatever case."""


class Forwarder:
    """Knows who answers."""

    def __init__(
        self,
        election: Election,
        leadership: Leadership,
        pair: CertificatePair,
        forwarded: Counter,
        server_name: str | None = None,
        *,
        hold_seconds: float = 0.0,
    ) -> None:
        """Forward nothing yet.

        Args:
            election: Who leads.
            leadership: Whether that is us, and open.
            pair: Shown to other replicas, and the CA that vouches for them; read for each call.
            forwarded: Counts calls, by `outcome`.
            server_name: The name in the others' certificates; None: the host of their URL.
            hold_seconds: How long kube-scheduler's calls are held while no replica answers.
        """
        self._election = election
        self._leadership = leadership
        self._pair = pair
        self._forwarded = forwarded
        self._server_name = server_name
        self._hold_seconds = hold_seconds

    def closed(self) -> str:
        """Why we cannot answer ourselves; an empty text where we can."""
        return self._leadership.closed()

    async def answer(self, request: Asked, body: bytes) -> bytes | None:
        """The leader's answer; None where we are to answer ourselves.

        Raises:
            ForwardError: nobody has answered.
        """
        end = time.monotonic() + (self._hold_seconds if request.path_qs in CALLS else 0.0)
        while self._leadership.closed():
            try:
                return await self._ask_leader(request, body)
            except ForwardError:
                passed_on = request.headers.get(FORWARDED_HEADER)
                if passed_on or self._election.resigned or time.monotonic() >= end:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)
        return None

    async def _ask_leader(self, request: Asked, body: bytes) -> bytes | None:
        """The leader's answer; None where we have come to lead meanwhile."""
        why = self._leadership.closed()
        by = request.headers.get(FORWARDED_HEADER)
        if by:
            raise ForwardError(f"{why}; the call was forwarded by {by} already; try again")
        url = self._election.leader_url
        if self._election.elected.is_set() or not url:
            raise ForwardError(f"{why}, and no other replica is known to lead; try again")
        with self._forwarded.labels("error").count_exceptions(ForwardError):
            answer = await self._while_it_leads(url, self._send(request.method, url + request.path_qs, body))
        if answer is not None:
            self._forwarded.labels("ok").inc()
        return answer

    async def _while_it_leads(self, url: str, call: Coroutine[None, None, bytes]) -> bytes | None:
        """What a call of the replica at this URL comes to; None where we lead before that."""
        sent = asyncio.ensure_future(call)
        try:
            while not (await asyncio.wait([sent], timeout=AGAIN_SECONDS))[0]:
                if not self._leadership.closed():
                    return None
                if self._election.leader_url != url:
                    raise ForwardError(f"the replica at {url} does not lead any more; try again")
            return sent.result()
        finally:
            sent.cancel()

    async def _send(self, method: str, url: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", FORWARDED_HEADER: self._election.identity}
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            connector = aiohttp.TCPConnector(ssl=client_context(self._pair))
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.request(
                    method, url, data=body or None, headers=headers, server_hostname=self._server_name
                ) as answer,
            ):
                if answer.status != HTTPStatus.OK:
                    raise ForwardError(f"the leader at {url} answered HTTP {answer.status}; try again")
                return await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise ForwardError(f"no answer from the leader at {url}: {why}; try again") from error


def right_of(path: str) -> Right | None:
    """What a call of this path needs; None: nothing."""
    if path in HEALTH:
        return None
    if path in CALLS or path.startswith(VOLCANO_CALLS):
        return Right.SCHEDULE
    return Right.METRICS if path == "/metrics" else Right.ASK


@web.middleware
async def only_peers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse calls from other machines that show no certificate; where a guard knows names, he is stricter."""
    guarded = right_of(request.path) is Right.SCHEDULE
    if guarded and not (request.transport and is_peer(request.transport)):
        why = "calls from other machines need a certificate of the replicas' CA"
        return refusal(HTTPStatus.FORBIDDEN, why)
    return await handler(request)


def is_peer(transport: asyncio.BaseTransport) -> bool:
    """Whether a call comes from this machine, or with a certificate; TLS has verified it, or there would be no call."""
    address = transport.get_extra_info("peername")
    return (address is not None and is_local(address[0])) or bool(transport.get_extra_info("peercert"))
