"""Starts the webhook: `python -m webhook --tls-cert FILE --tls-key FILE --port 8443`."""

import argparse
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from aliquot import log, service
from aliquot.certs import server_context
from aliquot.dialects import load_dialects
from aliquot.names import ResourceNames
from webhook.metrics import WebhookMetrics
from webhook.mutate import Mutator
from webhook.server import Webhook


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="aliquot-webhook", description=__doc__)
    parser.add_argument("--tls-cert", type=Path, required=True, help="certificate, reloaded when it changes")
    parser.add_argument("--tls-key", type=Path, required=True, help="key of the certificate")
    parser.add_argument("--host", help="address to listen on; default: all")
    parser.add_argument("--port", type=int, default=8443, help="default: %(default)s")
    parser.add_argument("--dialects", nargs="*", default=[], metavar="NAME", help="for example: hami")
    log.add_arguments(parser)
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace) -> None:
    """Serve until a signal says stop."""
    mutator = Mutator(ResourceNames(), load_dialects(options.dialects))
    app = Webhook(mutator, WebhookMetrics(CollectorRegistry())).app()
    tls = server_context(options.tls_cert, options.tls_key)
    async with service.serving(app, options.host, options.port, tls) as stop:
        await stop.wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the webhook; returns the exit status."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    return service.run("aliquot-webhook", options, run(options))


if __name__ == "__main__":
    sys.exit(main())
