"""Starts the extender: `python -m scheduler_ext --kubeconfig FILE --port 9443`."""

import argparse
import asyncio
import ssl
import sys
import time
from pathlib import Path
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot import log, service
from aliquot.certs import server_context
from aliquot.dialects import load_dialects
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.policy import DEFAULT, Policy, PolicyError, Preference, read_policy
from scheduler_ext.bind import Binder
from scheduler_ext.choose import Placer
from scheduler_ext.feed import Feed
from scheduler_ext.filter import Filter
from scheduler_ext.foreign import ForeignAgents
from scheduler_ext.keeper import RESERVATION_SECONDS, Keeper
from scheduler_ext.ledger import Ledger
from scheduler_ext.metrics import ExtenderMetrics
from scheduler_ext.quota_feed import QuotaFeed
from scheduler_ext.quota_metrics import QuotaCollector
from scheduler_ext.quota_status import QuotaReporter
from scheduler_ext.quotas import Quotas
from scheduler_ext.resize import Resizer
from scheduler_ext.server import Extender
from scheduler_ext.waiting import Waiting, Waker


class Worker(Protocol):
    """What works beside the server."""

    async def run(self) -> None:
        """Work until cancelled."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="aliquot-scheduler-ext", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: %(default)s")
    parser.add_argument("--port", type=int, default=9443, help="default: %(default)s")
    parser.add_argument("--tls-cert", type=Path, help="certificate, reloaded when it changes; default: HTTP")
    parser.add_argument("--tls-key", type=Path, help="key of the certificate")
    for what in ("node", "card"):
        parser.add_argument(
            f"--{what}-policy",
            type=_policy,
            metavar="POLICY",
            help=f"FragAware, Binpack or Spread, where neither pod nor pool says which {what}s to prefer; "
            "default: %(default)s",
            default=getattr(DEFAULT, what),
        )
    parser.add_argument(
        "--place-all-pods",
        action="store_true",
        help="place pods without slices, too; for a scheduler that is told of no managedResources",
    )
    parser.add_argument("--dialects", nargs="*", default=[], metavar="NAME", help="for example: hami")
    parser.add_argument(
        "--reservation-seconds",
        type=float,
        default=RESERVATION_SECONDS,
        help="how long a place waits for its bind; default: %(default)s",
    )
    log.add_arguments(parser)
    options = parser.parse_args(arguments)
    if bool(options.tls_cert) != bool(options.tls_key):
        parser.error("--tls-cert and --tls-key belong together")
    return options


def _policy(word: str) -> Policy:
    try:
        return read_policy(word)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


async def run(options: argparse.Namespace) -> None:
    """Serve until a signal says stop.

    Raises:
        AccessError: there is no way to the API server.
    """
    dialects = load_dialects(options.dialects)
    tls = server_context(options.tls_cert, options.tls_key) if options.tls_cert else None
    async with Api.from_kubeconfig(options.kubeconfig, user_agent="aliquot-scheduler-ext") as api:
        ledger, foreign, waiting = Ledger(time.monotonic), ForeignAgents(dialects), Waiting()
        quotas = Quotas(ledger.accounts, dialects=dialects)
        metrics = ExtenderMetrics(CollectorRegistry(), ledger)
        metrics.registry.register(QuotaCollector(quotas))
        resizer = Resizer(api, ledger, metrics.resizes, quotas)
        feed = Feed(api, ledger, foreign, resizer, waiting)
        quota_feed = QuotaFeed(api, quotas, feed.pools_known)
        placer = Placer(ledger.table, Preference(options.node_policy, options.card_policy))
        binder = Binder(api, ledger, placer, dialects=dialects, quotas=quotas)
        keeper = Keeper(ledger, binder, time.monotonic, reservation_seconds=options.reservation_seconds)
        decide = Filter(
            ledger,
            foreign,
            placer,
            dialects=dialects,
            quotas=quotas,
            waiting=waiting,
            all_pods=options.place_all_pods,
        )
        waker = Waker(api, waiting, decide, (feed, quota_feed), touched=metrics.touches.inc)
        ledger.on_change(waiting.something_changed)
        quotas.on_change(waiting.something_changed)
        extender = Extender(decide, binder, metrics, lambda: feed.missing() or quota_feed.missing())
        workers = (feed, quota_feed, QuotaReporter(api, quotas), keeper, resizer, waker)
        await serve(extender.app(), options.host, options.port, tls, *workers)


async def serve(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None, *workers: Worker
) -> None:
    """Answer calls while the workers work, until SIGTERM or SIGINT; a worker that fails ends the process."""
    async with service.serving(app, host, port, tls) as stop, asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker.run()) for worker in workers]
        await stop.wait()
        for task in tasks:
            task.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run the extender; returns the exit status."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return service.run("aliquot-scheduler-ext", options, run(options), (AccessError, OSError, ValueError))


if __name__ == "__main__":
    sys.exit(main())
