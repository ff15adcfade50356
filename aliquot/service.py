"""What a service's process does around its work: answers calls until a signal says stop, or ends with a line of why."""

import argparse
import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from aiohttp import web

from aliquot import log
from aliquot.desk import Desk, Line

KEEP_ALIVE_SECONDS = 300.0
"""Longer than the 90 s for which Go clients keep an idle connection: never close one that they just use."""
PATIENCE_SECONDS = 60.0


class _Site(web.TCPSite):
    """Has a desk answer what it can, and aiohttp the rest."""

    def __init__(
        self, runner: web.AppRunner, host: str | None, port: int, tls: ssl.SSLContext | None, desk: Desk
    ) -> None:
        super().__init__(runner, host, port, ssl_context=tls)
        self._desk = desk

    async def start(self) -> None:
        """Listen."""
        await web.BaseSite.start(self)
        aiohttp, desk = self._runner.server, self._desk
        assert aiohttp is not None  # noqa: S101 - the runner is set up
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Line(desk, aiohttp),
            self._host,
            self._port,
            ssl=self._ssl_context,
            backlog=self._backlog,
        )


@asynccontextmanager
async def serving(
    app: web.Application,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None,
    *,
    patience: float = PATIENCE_SECONDS,
    desk: Desk | None = None,
) -> AsyncIterator[asyncio.Event]:
    """Answers calls meanwhile; what it gives is set by SIGTERM or SIGINT.

    Calls under way at the end have `patience` seconds more. A call of which the end has not been read by then is lost
    on aiohttp, and waits for all of it. What a desk answers does not come to aiohttp.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=patience
    )
    await runner.setup()
    desk = Desk({}) if desk is None else desk
    try:
        await _Site(runner, host, port, tls, desk).start()
        yield stop
    finally:
        await asyncio.gather(desk.close(patience), runner.cleanup())


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
