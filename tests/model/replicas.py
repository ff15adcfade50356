"""The extender's replicas: its own composition, started, killed and deposed as processes are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aliquot.kube.tracker import RestoredError
from aliquot.scheduler_ext.app import App
from aliquot.scheduler_ext.http.forward import FORWARDED_HEADER, Forwarder, ForwardError
from aliquot.scheduler_ext.http.metrics import ReplicaMetrics
from aliquot.scheduler_ext.options import candidate, parse_arguments
from aliquot.scheduler_ext.runtime.election import DeposedError, Election
from aliquot.scheduler_ext.runtime.leader import Leadership
from aliquot.server.fast_http import Call, Reply
from aliquot.server.tls import CertificatePair
from tests.model.api_server import ApiServer, Line, VirtualApi

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from aliquot.scheduler_ext.http.server import Extender

CALL_SECONDS: Final = 10.0
"""`httpTimeout` of kube-scheduler's configuration."""


class CallError(Exception):
    """No usable answer came."""


@dataclass
class Question:
    """A request of a person, as the handlers read it."""

    path_qs: str
    query: Mapping[str, str]
    body: bytes = b""
    method: str = "POST"

    @property
    def headers(self) -> dict[str, str]:
        """None that matters."""
        return {}

    async def read(self) -> bytes:
        """The body."""
        return self.body


class _Network(Forwarder):
    """Calls between replicas, without sockets."""

    replicas: list[Replica]

    async def _send(self, method: str, url: str, body: bytes) -> bytes:  # noqa: ARG002 - as Forwarder has it
        name, _, path = url.removeprefix("https://").partition("/")
        replica = next((one for one in self.replicas if one.name == name), None)
        if replica is None or replica.extender is None:
            raise ForwardError(f"no answer from the leader at {url}")
        return await replica.call(f"/{path}", body, {FORWARDED_HEADER: self._election.identity})


class Replica:
    """One replica; while it is down `extender` is None."""

    def __init__(self, name: str, server: ApiServer, flags: list[str]) -> None:
        self.name = name
        self.line = Line()
        self.extender: Extender | None = None
        self.starts = 0
        self._server = server
        self._options = _options(name, flags)
        self._leadership: Leadership | None = None
        self._task: asyncio.Task[None] | None = None
        self.replicas: list[Replica] = []

    @property
    def leads(self) -> bool:
        """Whether it answers calls itself."""
        return self.extender is not None and self._leadership is not None and not self._leadership.closed()

    def start(self) -> None:
        """Start the process."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def kill(self) -> None:
        """End the process at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task, self.extender, self._leadership = None, None, None

    async def _run(self) -> None:
        """As `__main__.run_replica`: one that is deposed begins anew."""
        while True:
            await self._serve_once()

    async def _serve_once(self) -> None:
        own = VirtualApi(self._server, self.line)
        election = Election(own, candidate(self._options), lambda: not app.missing())
        app = App(VirtualApi(self._server, self.line, election.fence), self._options)
        leadership = Leadership(election, app.catch_up, app.workers)
        counted = ReplicaMetrics(
            app.registry, leads=lambda: not leadership.closed(), transitions=lambda: election.transitions
        )
        pair = CertificatePair(self._options.tls_ca, self._options.tls_cert, self._options.tls_key)
        network = _Network(election, leadership, pair, counted.forwarded)
        network.replicas = self.replicas
        self.extender, self._leadership = app.extender(network), leadership
        self.starts += 1
        try:
            async with asyncio.TaskGroup() as group:
                for worker in (*app.feeds, election, leadership):
                    group.create_task(worker.run())
        except* (DeposedError, RestoredError):
            election.resign()
        finally:
            self.extender = None

    async def call(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """One of kube-scheduler's calls; CallError where no usable answer comes."""
        if self.extender is None:
            raise CallError("connection refused")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = self.extender.answers[path](Call(path, headers or {}, body))
                reply = found if isinstance(found, Reply) else await found
        except TimeoutError as error:
            raise CallError("no answer in time") from error
        if reply.status != 200:
            raise CallError(f"status {reply.status}: {reply.body[:200]!r}")
        return reply.body

    async def ask(self, name: str, query: Mapping[str, str], body: bytes = b"") -> Any:
        """A question of a person, `why` or `dry_run`; CallError where no usable answer comes."""
        if self.extender is None or self.extender._queries is None:
            raise CallError("connection refused")
        asked: Any = Question(f"/{name}", query, body)
        response = await getattr(self.extender._queries, name)(asked)
        if response.status != 200:
            raise CallError(f"status {response.status}: {response.body!r}")
        return json.loads(response.body)


def _options(name: str, flags: list[str]) -> argparse.Namespace:
    """The command line of a replica; its certificates are never read, because there are no sockets."""
    where = ["--advertise-url", f"https://{name}", "--identity", name, "--leader-elect"]
    tls = ["--tls-cert", f"/model/{name}.crt", "--tls-key", f"/model/{name}.key", "--tls-ca", "/model/ca.crt"]
    return parse_arguments([*where, *tls, *flags])
