"""Asks the extender of a cluster, through the API server's proxy or past it: for the commands that only ask.

An extender that wants to know who asks gets a token that the API server makes for this alone: for our audience, and for
ten minutes. Credentials of a kubeconfig are shown to the API server and to nobody else.
"""

import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import click
import msgspec

from aliquot.cli.options import Refusal
from aliquot.doctor.facts.installation import NAMESPACE, installed_in
from aliquot.kube.access import AccessError
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE
from aliquot.kube.reviews import AUDIENCE
from aliquot.server.authn import TOKEN_HEADER

SERVICE = "aliquot-scheduler:9443"
"""The chart's, in its own namespace."""
ACCOUNT = "aliquot-asker"
"""The chart's service account for those who ask, in its own namespace."""
ASKING_ROLE = "aliquot-ask"
"""The chart's Role for users who may ask, in its own namespace."""
_SERVICE_OPTION = "--service NAMESPACE/NAME:PORT"
_PROXY_ERROR = "error trying to reach service"
"""What the API server's proxy answers without a reason where it cannot connect."""
ANSWER_SECONDS = 30.0
TOKEN_SECONDS = 600


@dataclass(frozen=True)
class Where:
    """Who is asked, and as whom, as the command line says."""

    kubeconfig: Path | None
    service: str | None
    account: str | None
    extender: str | None
    ca: Path | None
    cert: Path | None
    key: Path | None

    @property
    def namespace(self) -> str:
        """The Service's, which is that of Aliquot; the usual one where the command line names none."""
        return self.service.partition("/")[0] if self.service else NAMESPACE

    @property
    def asker(self) -> str:
        """The service account of which a token is asked for, as NAMESPACE/NAME."""
        return self.account or f"{self.namespace}/{ACCOUNT}"


class _Status(msgspec.Struct):
    token: str = ""


class _TokenRequest(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_OPTIONS = (
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
    ),
    click.option(
        "--service",
        metavar="NAMESPACE/NAME:PORT",
        help="The extender's Service, reached through the API server. Before NAME may stand http: for one without TLS."
        f"  [default: {SERVICE} of the namespace that the webhooks' configuration calls, {NAMESPACE} where you may not "
        "read that]",
    ),
    click.option(
        "--account",
        metavar="NAMESPACE/NAME",
        help="The service account of which a token is asked for, where you may have one.  [default: "
        f"{ACCOUNT} of the Service's namespace]",
    ),
    click.option("--extender", metavar="URL", help="Ask the extender at this URL, past the API server."),
    click.option(
        "--ca", type=click.Path(path_type=Path), help="CA of the extender's certificate, with --extender."
    ),
    click.option(
        "--cert",
        type=click.Path(path_type=Path),
        help="Client certificate in place of a token, with --extender.",
    ),
    click.option("--key", type=click.Path(path_type=Path), help="Key of --cert."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def extender_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say who is asked, as `where`, and `--json`."""

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        where = Where(**{field.name: options.pop(field.name) for field in fields(Where)})
        return command(where=where, **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


async def ask(where: Where, verb: str, question: Mapping[str, str]) -> bytes:
    """The extender's answer. Raises Refusal where there is none."""
    if where.extender:
        return await _from_url(where, where.extender, verb, question)
    return await _from_service(where, verb, question)


async def _from_service(where: Where, verb: str, question: Mapping[str, str]) -> bytes:
    """Ask through the API server's proxy."""
    token, why, usual = "", "", not where.service
    try:
        async with Api.from_kubeconfig(where.kubeconfig, timeout_seconds=ANSWER_SECONDS) as api:
            service = where.service or await _usual_service(api)
            where = replace(where, service=service)
            token, why = await _token(api, where.asker)
            headers = {TOKEN_HEADER: token} if token else {}
            return await api.request("GET", _proxy_path(service, verb), params=question, headers=headers)
    except AccessError as error:
        raise Refusal(str(error)) from error
    except ApiError as error:
        raise Refusal(_refused(where, error, why, usual=usual)) from error


async def _usual_service(api: Api) -> str:
    """Where the command line names none."""
    return f"{await installed_in(api)}/{SERVICE}"


def _proxy_path(service: str, verb: str) -> str:
    """Through the API server, by NAMESPACE/NAME:PORT."""
    namespace, _, name = service.partition("/")
    scheme = "" if name.startswith(("http:", "https:")) else "https:"
    return f"/api/v1/namespaces/{quote(namespace)}/services/{scheme}{quote(name, safe=':')}/proxy/{verb}"


def _refused(where: Where, error: ApiError, why: str, *, usual: bool) -> str:
    """Why there is no answer through the API server; `why` there was no token; whether the Service is the `usual` one.

    The API server gives a reason for each of its own errors, such as NotFound; errors of the extender have none.
    """
    if error.reason == "Forbidden":
        elsewhere = f"; if Aliquot is not in {where.namespace}, give {_SERVICE_OPTION}" if usual else ""
        return f"{_may_not_ask(where.namespace)}: {error.message}{elsewhere}"
    if error.reason == "NotFound" and usual:
        return f"nothing is installed in {where.namespace} ({error.message}); give {_SERVICE_OPTION}"
    if not _is_the_extenders(error):
        return f"the extender's Service {where.service} does not answer: {error}; give --service, or --extender URL"
    if error.status == HTTPStatus.UNAUTHORIZED and why:
        return f"{_may_not_ask(where.namespace)}: {why}; the extender answers: {error.message}"
    return f"the extender answers: {error.message}"


def _is_the_extenders(error: ApiError) -> bool:
    """Whether an error is the extender's own words, and not of the API server or its proxy."""
    return not (error.unreachable or error.reason or error.message.lower().startswith(_PROXY_ERROR))


def _may_not_ask(namespace: str) -> str:
    """Which Role this user lacks, and how an administrator gives it."""
    return (
        f"you may not ask the extender: your user needs the Role {ASKING_ROLE} of namespace {namespace}, which an "
        f"administrator binds with: kubectl -n {namespace} create rolebinding {ASKING_ROLE} --role={ASKING_ROLE} "
        "--user=USER"
    )


async def _token(api: Api, account: str) -> tuple[str, str]:
    """A token for the extender alone; without one, why there is none."""
    namespace, _, name = account.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts/{quote(name)}/token"
    spec = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    try:
        raw = await api.request("POST", path, body=body)
        return msgspec.json.decode(raw, type=_TokenRequest).status.token, ""
    except (ApiError, *UNREADABLE) as error:
        return "", f"no token of the service account {account}: {error}"


async def _token_past(where: Where) -> tuple[str, str]:
    """The same, for who goes past the API server and may have no access to one at all."""
    try:
        async with Api.from_kubeconfig(where.kubeconfig, timeout_seconds=ANSWER_SECONDS) as api:
            service = where.service or await _usual_service(api)
            return await _token(api, replace(where, service=service).asker)
    except AccessError as error:
        return "", str(error)


async def _from_url(where: Where, url: str, verb: str, question: Mapping[str, str]) -> bytes:
    """Ask the extender itself; a token goes only to a server whose certificate is verified."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    secure = url.startswith("https://")
    token, why = await _token_past(where) if secure and not where.cert else ("", "")
    try:
        tls = ssl.create_default_context(cafile=where.ca)
        if where.cert:
            tls.load_cert_chain(where.cert, where.key)
        connector = aiohttp.TCPConnector(ssl=tls)
        headers = {TOKEN_HEADER: token} if token else {}
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session,
            session.get(f"{url.rstrip('/')}/{verb}", params=question, allow_redirects=False) as answer,
        ):
            body = await answer.read()
            if answer.status != HTTPStatus.OK:
                text = body.decode(errors="replace").strip()
                account_namespace = where.asker.partition("/")[0]
                needs_role = answer.status == HTTPStatus.UNAUTHORIZED and why
                more = f"; {_may_not_ask(account_namespace)}: {why}" if needs_role else ""
                raise Refusal(f"{url} answers HTTP {answer.status}: {text}{more}")
            return body
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Refusal(f"no answer from {url}: {error or type(error).__name__}") from error
