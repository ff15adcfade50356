"""Who may call a server of ours: by the client certificate of a connection, or by a bearer token.

A certificate is checked once a connection, by TLS; its name (the subject's common name) says what it opens. A token
is checked by the API server (`aliquot.kube.reviews`). Where neither is switched on everything is open, as on one's own
machine. Health questions are always open.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from aliquot.kube.api import Api
from aliquot.kube.reviews import AUDIENCE, GRANTED, Reviewer, Verdict, audiences_of

TOKEN_HEADER: Final = "Aliquot-Token"  # noqa: S105 - its name
"""For tokens that come through the API server's proxy of Services, which keeps the header Authorization to itself."""
_BEARER: Final = "bearer "


class Right(StrEnum):
    """What a call is for."""

    SCHEDULE = "schedule"
    """What changes the ledger: kube-scheduler's verbs and Volcano's. By certificate only."""
    ASK = "ask"
    """What changes nothing: why, defragment, dry runs."""
    METRICS = "metrics"


DEFAULT_NAMES: Final = ("aliquot-scheduler", "prometheus=metrics")


@dataclass(frozen=True)
class Guard:
    """Decides.

    Attributes:
        rights: What each certificate name may; None: certificates open nothing.
        reviewer: Checks tokens; None: tokens open nothing.
    """

    rights: Mapping[str, frozenset[Right]] | None = None
    reviewer: Reviewer | None = None

    @property
    def open(self) -> bool:
        """Whether nobody is asked who he is."""
        return self.rights is None and self.reviewer is None

    def shows(self, transport: asyncio.BaseTransport | None, right: Right) -> bool:
        """Whether a connection has shown a certificate that opens this; TLS has verified it."""
        if transport is None or self.rights is None:
            return False
        return any(right in self.rights.get(name, ()) for name in certificate_names(transport))

    async def judge(self, request: web.Request, right: Right) -> Verdict:
        """Whether a call may be answered."""
        if self.open or self.shows(request.transport, right):
            return GRANTED
        if right is Right.SCHEDULE:
            return GRANTED if self.rights is None else self._no_certificate(request, right)
        token, problem = token_of(request.headers)
        if self.reviewer is None or (not token and not problem):
            return self._no_certificate(request, right)
        if problem:
            return Verdict(HTTPStatus.UNAUTHORIZED, problem)
        return await self.reviewer.judge(token, request.path, request.method.lower())

    def _no_certificate(self, request: web.Request, right: Right) -> Verdict:
        names = certificate_names(request.transport) if request.transport else ()
        if names:
            text = (
                f"the certificate of {', '.join(sorted(names))} does not open {request.path} (--client-names)"
            )
            return Verdict(HTTPStatus.FORBIDDEN, text)
        ways = ["a client certificate (--client-ca)"] if self.rights is not None else []
        ways += ["a bearer token"] if self.reviewer is not None and right is not Right.SCHEDULE else []
        return Verdict(HTTPStatus.UNAUTHORIZED, f"{request.path} needs {' or '.join(ways)}")


OPEN: Final = Guard()


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """The common names of the subject that a connection has shown; none without a certificate."""
    shown = transport.get_extra_info("peercert") or {}
    return frozenset(
        value for part in shown.get("subject", ()) for kind, value in part if kind == "commonName"
    )


def token_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """The token of a call, and what is wrong with it; both empty where there is none."""
    ours = headers.get(TOKEN_HEADER, "")
    if ours:
        bound = AUDIENCE in audiences_of(ours)
        return (ours, "") if bound else ("", f"a token in {TOKEN_HEADER} must be for the audience {AUDIENCE}")
    given = headers.get("Authorization", "")
    if not given:
        return "", ""
    if not given.lower().startswith(_BEARER):
        return "", "the header Authorization must be a bearer token"
    return given[len(_BEARER) :].strip(), ""


def guarding(guard: Guard, right_of: Callable[[str], Right | None]) -> Middleware:
    """A middleware that refuses with 401 or 403 and a sentence; `right_of` a path, None: for everybody."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        right = right_of(request.path)
        verdict = GRANTED if right is None else await guard.judge(request, right)
        if verdict.granted:
            return await handler(request)
        return refusal(verdict.status, verdict.why)

    return guarded


def refusal(status: int, why: str) -> web.Response:
    """An answer without what was asked for; the connection ends with it, for its body has not been read."""
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    answer = web.Response(
        body=msgspec.json.encode({"error": why}),
        status=status,
        content_type="application/json",
        headers=headers,
    )
    answer.force_close()
    return answer


def only_metrics(path: str) -> Right | None:
    """The right that a path needs where metrics are all there is to guard."""
    return Right.METRICS if path == "/metrics" else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every server; without any of them everything is open."""
    group = parser.add_argument_group("who may call")
    group.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="CA of client certificates, read again when it changes; with it, who calls needs one of --client-names",
    )
    group.add_argument(
        "--client-names",
        nargs="+",
        default=list(DEFAULT_NAMES),
        metavar="NAME[=RIGHT,…]",
        help=f"common names of client certificates, and what each opens: {', '.join(Right)}; without =: all; "
        f"default: {' '.join(DEFAULT_NAMES)}",
    )
    group.add_argument(
        "--accept-tokens",
        action="store_true",
        help="metrics and questions are for who brings a bearer token that the API server lets at that path",
    )


def complaint(options: argparse.Namespace) -> str:
    """What does not fit together in the options of a server that may serve without TLS; empty where all does."""
    if options.client_ca and not options.tls_cert:
        return "--client-ca needs --tls-cert and --tls-key: certificates are shown in TLS"
    try:
        read_names(options.client_names)
    except ValueError as error:
        return str(error)
    return ""


def guard_of(options: argparse.Namespace, api: Api | None) -> Guard:
    """What the options say; `api` is where tokens are checked."""
    return make_guard(
        options.client_names if options.client_ca else None, api if options.accept_tokens else None
    )


def make_guard(names: Sequence[str] | None, api: Api | None) -> Guard:
    """A guard who knows these certificate names, and has tokens checked there; None: that way in does not exist.

    Raises:
        ValueError: a name or a right makes no sense.
    """
    return Guard(
        None if names is None else read_names(names),
        None if api is None else Reviewer(api),
    )


def read_names(entries: Sequence[str]) -> dict[str, frozenset[Right]]:
    """What each certificate name opens.

    Raises:
        ValueError: an entry names nobody, or a right that there is not.
    """
    read: dict[str, frozenset[Right]] = {}
    for entry in entries:
        name, says, words = entry.partition("=")
        unknown = {word for word in words.split(",") if says and word not in set(Right)}
        if not name or unknown:
            raise ValueError(f"--client-names: {entry!r} is no NAME or NAME={','.join(Right)}")
        read[name] = frozenset(map(Right, words.split(","))) if says else frozenset(Right)
    return read
