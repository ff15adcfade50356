"""Asks the extender of a cluster, through the API server's proxy or past it: for the commands that only ask."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import click

from aliquot.cli.options import Refusal
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api, ApiError

SERVICE = "aliquot-system/aliquot-scheduler-ext:9443"
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Where:
    """Who is asked, as the command line says."""

    kubeconfig: Path | None
    service: str
    extender: str | None
    ca: Path | None


_OPTIONS = (
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
    ),
    click.option(
        "--service",
        default=SERVICE,
        metavar="NAMESPACE/NAME:PORT",
        help="The extender's Service, reached through the API server. Before NAME may stand http: for one without TLS.",
        show_default=True,
    ),
    click.option("--extender", metavar="URL", help="Ask the extender at this URL, past the API server."),
    click.option(
        "--ca", type=click.Path(path_type=Path), help="CA of the extender's certificate, with --extender."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def extender_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say who is asked, and `--json`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


async def ask(where: Where, verb: str, question: Mapping[str, str]) -> bytes:
    """The extender's answer. Raises Refusal where there is none."""
    if where.extender:
        return await _from_url(where.extender, where.ca, verb, question)
    return await _from_service(where, verb, question)


async def _from_service(where: Where, verb: str, question: Mapping[str, str]) -> bytes:
    """Ask through the API server's proxy."""
    namespace, _, service = where.service.partition("/")
    scheme = "" if service.startswith(("http:", "https:")) else "https:"
    path = f"/api/v1/namespaces/{quote(namespace)}/services/{scheme}{quote(service, safe=':')}/proxy/{verb}"
    try:
        async with Api.from_kubeconfig(where.kubeconfig, timeout_seconds=ANSWER_SECONDS) as api:
            return await api.request("GET", path, params=question)
    except AccessError as error:
        raise Refusal(str(error)) from error
    except ApiError as error:
        raise Refusal(
            f"the extender's Service {where.service} does not answer: {error}; give --service, or --extender URL"
        ) from error


async def _from_url(url: str, ca: Path | None, verb: str, question: Mapping[str, str]) -> bytes:
    """Ask the extender itself."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        tls = ssl.create_default_context(cafile=ca)
        connector = aiohttp.TCPConnector(ssl=tls)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/{verb}", params=question) as answer,
        ):
            body = await answer.read()
            if answer.status != HTTPStatus.OK:
                raise Refusal(f"{url} answers HTTP {answer.status}: {body.decode(errors='replace').strip()}")
            return body
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Refusal(f"no answer from {url}: {error or type(error).__name__}") from error
