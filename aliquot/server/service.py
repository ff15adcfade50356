"""What a service's process does around its work: answers calls until a signal says stop, or ends with a line of why.

Every server of ours is opened here, so that all of them have the same limits: so many connections, so much time for a
handshake, a head and a body, so large a body, and a guard who knows who may call.
"""

import argparse
import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from aiohttp import web

from aliquot.server import log
from aliquot.server.authn import OPEN, Guard, Right, guarding, only_metrics
from aliquot.server.body_limits import BodyLimits
from aliquot.server.connection_limits import ConnectionLimits, Door, doors
from aliquot.server.fast_http import FastHttp, Line

KEEP_ALIVE_SECONDS = 120.0
"""Longer than the 90 s for which Go clients keep an idle connection: never close one that they just use."""
PATIENCE_SECONDS = 60.0
HANDSHAKE_SECONDS = 10.0


class _Site(web.BaseSite):
    """Has a desk answer what it can, and aiohttp the rest."""

    def __init__(self, runner: web.AppRunner, door: Door, tls: ssl.SSLContext | None, desk: FastHttp) -> None:
        super().__init__(runner, ssl_context=tls)
        self._door = door
        self._desk = desk

    @property
    def name(self) -> str:
        """Where it listens."""
        scheme, (host, port, *_) = "https" if self._ssl_context else "http", self._door.getsockname()
        return f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        """Listen."""
        await super().start()
        aiohttp, desk = self._runner.server, self._desk
        assert aiohttp is not None  # noqa: S101 - the runner is set up
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Line(desk, aiohttp),
            sock=self._door,
            ssl=self._ssl_context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if self._ssl_context else None,
            backlog=self._backlog,
        )


def application(
    largest_body: int, guard: Guard = OPEN, right_of: Callable[[str], Right | None] = only_metrics
) -> web.Application:
    """A web application that answers only who may ask, and reads no more of a body than that, and not for long."""
    # Whether a body of exactly its limit is good depends on aiohttp's release.
    return web.Application(
        client_max_size=largest_body + 1,
        middlewares=[guarding(guard, right_of), BodyLimits(largest_body).middleware()],
    )


@asynccontextmanager
async def listening(
    app: web.Application,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None,
    *,
    patience: float = PATIENCE_SECONDS,
    desk: FastHttp | None = None,
    crowd: ConnectionLimits | None = None,
) -> AsyncIterator[web.AppRunner]:
    """Answers calls meanwhile.

    Calls under way at the end have `patience` seconds more. A call of which the end has not been read by then is lost
    on aiohttp, and waits for all of it. What a desk answers does not come to aiohttp.
    """
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=patience
    )
    await runner.setup()
    desk = FastHttp({}) if desk is None else desk
    try:
        for door in doors(host, port, crowd or ConnectionLimits()):
            await _Site(runner, door, tls, desk).start()
        yield runner
    finally:
        await asyncio.gather(desk.close(patience), runner.cleanup())


@asynccontextmanager
async def serving(
    app: web.Application,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None,
    *,
    patience: float = PATIENCE_SECONDS,
    desk: FastHttp | None = None,
) -> AsyncIterator[asyncio.Event]:
    """The same; what it gives is set by SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with listening(app, host, port, tls, patience=patience, desk=desk):
        yield stop


def run(
    name: str,
    options: argparse.Namespace,
    work: Coroutine[None, None, None],
    failures: tuple[type[Exception], ...] = (OSError, ValueError),
) -> int:
    """Logs as the options say, works, and returns the exit status: 1, and a line, for what an admin can mend."""
    log.configure(options.log_level, options.log_format)
    try:
        asyncio.run(work)
    except failures as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    return 0
