"""`python -m aliquot.sandbox.cluster.apiserver --dir D --port P`: serve until SIGTERM; state and kubeconfig in D."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from aiohttp import web

from aliquot.sandbox.cluster.apiserver.admission import Admission
from aliquot.sandbox.cluster.apiserver.identity import Identity
from aliquot.sandbox.cluster.apiserver.resources import Registry
from aliquot.sandbox.cluster.apiserver.rest import Rest
from aliquot.sandbox.cluster.apiserver.server import Server
from aliquot.sandbox.cluster.apiserver.store import Store


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="aliquot.sandbox.cluster.apiserver", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="state, certificates, kubeconfig")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument("--history", type=int, default=1000, help="changes a watch can resume from")
    parser.add_argument("--bookmark-period", type=float, default=10.0, help="seconds between bookmarks")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    identity = Identity(arguments.dir / "pki")
    store = Store(arguments.dir / "store", arguments.history)
    registry = Registry()
    admission = Admission(store)
    rest = Rest(store, registry, admission)
    server = Server(store, registry, rest, identity.token, arguments.bookmark_period)
    runner = web.AppRunner(server.application(), shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", arguments.port, ssl_context=identity.context()).start()
    identity.write_kubeconfig(arguments.dir / "kubeconfig", f"https://127.0.0.1:{arguments.port}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()
    await admission.close()
    store.close()


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
