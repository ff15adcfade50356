"""`aliquot certs`: certificates for our services, on a disk or kept in a cluster."""

import asyncio
import contextlib
import datetime as dt
import logging
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from aliquot.api.names import WEBHOOKS_NAME
from aliquot.cli.options import Refusal, refuse_os_errors
from aliquot.kube.access import AccessError
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.server import authn, log, service
from aliquot.server.cert_rotation import CertRotation, Terms, Wanted, usual
from aliquot.server.certs import write_pair
from aliquot.server.metrics import Metrics, add_routes
from aliquot.server.tls import server_context

LARGEST_BODY = 1 << 10
GLANCE_S = 2.0
"""How long a webhook that comes later waits for its CA."""

_log = logging.getLogger(__name__)


@click.group()
def certs() -> None:
    """Make certificates for the services, or keep them in a cluster."""


@certs.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option(
    "--days", type=click.IntRange(min=1), default=365, help="How long it is good.", show_default=True
)
def make(directory: Path, names: tuple[str, ...], days: int) -> None:
    """Write ca.crt, tls.crt and tls.key for a server of these host names or addresses.

    The CA of the directory is used again while it lasts, so that nobody has to be told of a renewed certificate.
    """
    with refuse_os_errors("write certificates"):
        pair = write_pair(directory, names, days=days)
    click.echo(f"{pair.cert} is good for {', '.join(names)} and {days} days; its CA is {pair.ca}")


def _wanted(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[Wanted, ...]:
    """`SECRET=NAME,NAME` as what is wanted."""
    for entry in given:
        if not all(entry.partition("=")):
            raise click.BadParameter(f"{entry!r} is no SECRET=NAME,NAME…")
    pairs = (entry.split("=", 1) for entry in given)
    return tuple(Wanted(secret, tuple(names.split(","))) for secret, names in pairs)


@certs.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
)
@click.option("--namespace", default="aliquot-system", help="Where the Secrets are.", show_default=True)
@click.option(
    "--configuration",
    default=WEBHOOKS_NAME,
    help="The MutatingWebhookConfiguration to tell.",
    show_default=True,
)
@click.option(
    "--leaf",
    "leaves",
    multiple=True,
    callback=_wanted,
    metavar="SECRET=NAME,…",
    help="A certificate to keep, and its host names; its common name is SECRET without -tls. May be repeated; "
    "default: those of webhook, scheduler and agent.",
)
@click.option(
    "--leaf-days", type=float, default=90, help="How long a certificate is good.", show_default=True
)
@click.option("--ca-days", type=float, default=3650, help="How long the CA is good.", show_default=True)
@click.option(
    "--overlap-days",
    type=float,
    default=30,
    help="How long a new CA is trusted before it signs, and the old one after that.",
    show_default=True,
)
@click.option("--every", type=float, default=60, help="Seconds between two looks.", show_default=True)
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option("--metrics-host", default="0.0.0.0", help="Address to serve metrics on.", show_default=True)  # noqa: S104
@click.option(
    "--metrics-port", type=int, default=9465, help="For /metrics, /healthz, /readyz.", show_default=True
)
@click.option(
    "--metrics-leaf",
    metavar="SECRET",
    help="Serve metrics over TLS with this certificate, one of those that are kept, to who shows a certificate of the "
    "same CA that opens metrics; the default is neither.",
)
@click.option(
    "--accept-tokens",
    is_flag=True,
    help="With --metrics-leaf: metrics are also for who brings a bearer token that the API server lets at that path.",
)
@click.option(
    "--client-names",
    multiple=True,
    default=authn.DEFAULT_NAMES,
    metavar="NAME[=RIGHT,…]",
    help="Common names of certificates that open metrics. May be repeated.",
    show_default=True,
)
@click.option("--log-format", type=click.Choice(["json", "plain"]), default="plain", show_default=True)
def keep(
    *,
    kubeconfig: Path | None,
    namespace: str,
    configuration: str,
    leaves: tuple[Wanted, ...],
    leaf_days: float,
    ca_days: float,
    overlap_days: float,
    every: float,
    once: bool,
    metrics_host: str,
    metrics_port: int,
    metrics_leaf: str | None,
    accept_tokens: bool,
    client_names: tuple[str, ...],
    log_format: str,
) -> None:
    """Keep the CA and the services' certificates as Secrets, and tell the webhooks' configuration of the CA.

    Certificates are renewed after two thirds of their lives. Several keepers may run, and be killed, at any time.
    """
    log.configure("info", log_format)
    terms = Terms(dt.timedelta(days=leaf_days), dt.timedelta(days=ca_days), dt.timedelta(days=overlap_days))
    wanted = leaves or usual(namespace)
    own = next((one for one in wanted if one.secret == metrics_leaf), None)
    _check_metrics(metrics_leaf, own, accept_tokens=accept_tokens)

    async def work() -> None:
        async with Api.from_kubeconfig(kubeconfig, user_agent="aliquot-certs") as api:
            keeper = CertRotation(api, namespace, wanted, configuration, terms)
            if once:
                await keeper.settle()
                return
            guards = authn.make_guard(client_names, api if accept_tokens else None) if own else authn.OPEN
            with tempfile.TemporaryDirectory() as directory:
                tls = _own_tls(keeper, own, Path(directory)) if own else None
                await _serve(keeper, every, (metrics_host, metrics_port), tls, guards)

    try:
        asyncio.run(work())
    except (AccessError, ApiError, OSError, ValueError) as error:
        raise Refusal(str(error)) from error


async def _wait(keeper: CertRotation, pause: float) -> None:
    """Until the next look is due, or a webhook wants it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + pause
    while (left := end - loop.time()) > 0:
        await asyncio.sleep(min(left, GLANCE_S))
        if await keeper.is_wanted():
            return


def _check_metrics(leaf: str | None, own: Wanted | None, *, accept_tokens: bool) -> None:
    """Refuse ways of guarding metrics that could not work."""
    if leaf and own is None:
        raise click.UsageError(f"--metrics-leaf: {leaf} is none of the certificates that are kept (--leaf)")
    if accept_tokens and own is None:
        raise click.UsageError("--accept-tokens needs --metrics-leaf: tokens are sent over TLS alone")


def _own_tls(keeper: CertRotation, own: Wanted, directory: Path) -> ssl.SSLContext:
    """A context that shows the newest of our own certificates that the keeper has seen; at first one without trust."""
    pair = write_pair(directory, own.names, days=1)

    def take_over(secret: str, data: Mapping[str, bytes]) -> None:
        if secret == own.secret:
            for name, content in data.items():
                (directory / name).write_bytes(content)

    keeper.seen = take_over
    return server_context(pair.cert, pair.key, pair.ca)


async def _serve(
    keeper: CertRotation,
    every: float,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    guards: authn.Guard,
) -> None:
    """Look again and again until a signal says stop; metrics tell when certificates end."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, "certs")
    looked = metrics.gauge("looked_timestamp_seconds", "When all was last found or made good.")
    renewed = metrics.counter("renewals", "Certificates made.", ("secret",))
    ends = metrics.gauge("expiry_timestamp_seconds", "When a Secret's certificate ends.", ("secret",))
    keeper.renewed = lambda secret: renewed.labels(secret).inc()
    app, good = service.application(LARGEST_BODY, guards), asyncio.Event()
    add_routes(app, registry, lambda: "" if good.is_set() else "not all has been found or made good yet")

    async def look() -> None:
        backoff = Backoff()
        while True:
            pause = every
            try:
                await keeper.settle()
                looked.set(time.time())
                backoff.reset()
                good.set()
            except ApiError as error:
                _log.warning("certificates are not looked after: %s", error)
                pause = min(every, backoff.next())
            for secret, end in keeper.expiries.items():
                ends.labels(secret).set(end.timestamp())
            await _wait(keeper, pause)

    async with contextlib.AsyncExitStack() as stack:
        stop = await stack.enter_async_context(service.serving(app, *address, tls))
        looking = asyncio.create_task(look())
        await stop.wait()
        looking.cancel()
