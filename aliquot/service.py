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

KEEP_ALIVE_SECONDS = 300.0
"""Longer than the 90 s for which Go clients keep an idle connection: never close one that they just use."""
PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def serving(
    app: web.Application,
    host: str | None,
    port: int,
    tls: ssl.SSLContext | None,
    *,
    patience: float = PATIENCE_SECONDS,
) -> AsyncIterator[asyncio.Event]:
    """Answers calls meanwhile; what it gives is set by SIGTERM or SIGINT.

    Calls under way at the end have `patience` seconds more. A call of which the end has not been read by then is lost
    on aiohttp, and waits for all of it.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=patience
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield stop
    finally:
        await runner.cleanup()


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
