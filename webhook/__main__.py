"""Starts the webhook: `python -m aliquot.webhook --tls-cert FILE --tls-key FILE --port 8443`."""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry

from aliquot.api import resource_domain
from aliquot.dialects import load_dialects
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api
from aliquot.server import authn, log, service
from aliquot.server.certificate_metrics import CertificateCollector
from aliquot.server.tls import server_context
from aliquot.webhook.metrics import WebhookMetrics
from aliquot.webhook.mutate import Mutator
from aliquot.webhook.quota_feed import QuotaFeed
from aliquot.webhook.server import Webhook


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="aliquot-webhook", description=__doc__)
    parser.add_argument("--tls-cert", type=Path, required=True, help="certificate, reloaded when it changes")
    parser.add_argument("--tls-key", type=Path, required=True, help="key of the certificate")
    parser.add_argument("--host", help="address to listen on; default: all")
    parser.add_argument("--port", type=int, default=8443, help="default: %(default)s")
    parser.add_argument("--dialects", nargs="*", default=[], metavar="NAME", help="for example: hami")
    parser.add_argument(
        "--quotas", action="store_true", help="follow GPUQuotas: their defaults and what one pod may have"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        help="where to read quotas and check tokens; default: the pod's service account",
    )
    resource_domain.add_arguments(parser)
    authn.add_arguments(parser)
    log.add_arguments(parser)
    options = parser.parse_args(arguments)
    complaint = authn.complaint(options)
    if complaint:
        parser.error(complaint)
    return options


async def run(options: argparse.Namespace) -> None:
    """Serve until a signal says stop.

    Raises:
        AccessError: quotas are to be followed or tokens checked, and there is no way to the API server.
    """
    async with AsyncExitStack() as stack:
        api = feed = None
        if options.quotas or options.accept_tokens:
            api = Api.from_kubeconfig(options.kubeconfig, user_agent="aliquot-webhook")
            await stack.enter_async_context(api)
        if api and options.quotas:
            feed = QuotaFeed(api)
        tls = server_context(options.tls_cert, options.tls_key, options.client_ca)
        app = _app(options, feed, authn.guard_of(options, api))
        serving = service.serving(app, options.host, options.port, tls)
        await _follow(feed, await stack.enter_async_context(serving))


def _app(options: argparse.Namespace, feed: QuotaFeed | None, guards: authn.Guard) -> web.Application:
    names, dialects = options.names, load_dialects(options.dialects)
    metrics = WebhookMetrics(CollectorRegistry())
    metrics.registry.register(CertificateCollector(options.tls_cert, options.client_ca))
    if feed is None:
        return Webhook(Mutator(names, dialects), metrics, guard=guards).app()
    return Webhook(Mutator(names, dialects, feed.of), metrics, feed.missing, guards).app()


async def _follow(feed: QuotaFeed | None, stop: asyncio.Event) -> None:
    """Follow the quotas until told to stop; a feed that fails ends the process."""
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.run()) if feed else None
        await stop.wait()
        if following:
            following.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run the webhook; returns the exit status."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return service.run("aliquot-webhook", options, run(options), (AccessError, OSError, ValueError))


if __name__ == "__main__":
    sys.exit(main())
