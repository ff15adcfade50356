"""`aliquot why`: what keeps a pod of the cluster waiting, and which single change would help."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import aiohttp
import click
import msgspec

from aliquot.cli.options import Refusal
from aliquot.kube.access import AccessError
from aliquot.kube.api import Api, ApiError
from aliquot.kube.objects import UNREADABLE
from aliquot.kube.resources import PODS
from aliquot.units import MIB, format_bytes
from aliquot.why import Answer, CauseKind, Change, Move, State

SERVICE = "aliquot-system/aliquot-scheduler-ext:9443"
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Where:
    """Who is asked, as the command line says."""

    kubeconfig: Path | None
    service: str
    extender: str | None
    ca: Path | None


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
)
@click.option(
    "--service",
    default=SERVICE,
    metavar="NAMESPACE/NAME:PORT",
    help="The extender's Service, reached through the API server. Before NAME may stand http: for one without TLS.",
    show_default=True,
)
@click.option("--extender", metavar="URL", help="Ask the extender at this URL, past the API server.")
@click.option(
    "--ca", type=click.Path(path_type=Path), help="CA of the extender's certificate, with --extender."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.argument("pod", metavar="[NAMESPACE/]POD")
def why(
    *,
    kubeconfig: Path | None,
    service: str,
    extender: str | None,
    ca: Path | None,
    as_json: bool,
    pod: str,
) -> None:
    """Say why a pod waits, node by node, and what would help.

    Nothing is changed by asking. Pods that would have to move for it are named where you may list them.
    """
    namespace, _, name = pod.rpartition("/")
    question = {"namespace": namespace or "default", "pod": name}
    answer = asyncio.run(_ask(Where(kubeconfig, service, extender, ca), question))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)))
    else:
        click.echo("\n".join(_lines(answer)))
    if answer.state is State.ABSENT:
        raise SystemExit(1)


async def _ask(where: Where, question: Mapping[str, str]) -> Answer:
    """The extender's answer, with the names of pods that this user may list. Raises Refusal where there is none."""
    raw = await (
        _from_url(where.extender, where.ca, question) if where.extender else _from_service(where, question)
    )
    try:
        answer = msgspec.json.decode(raw, type=Answer)
    except UNREADABLE as error:
        raise Refusal(f"what answers is no extender of this version: {error}") from error
    return await _named(answer, where.kubeconfig)


async def _from_service(where: Where, question: Mapping[str, str]) -> bytes:
    """Ask through the API server's proxy."""
    namespace, _, service = where.service.partition("/")
    scheme = "" if service.startswith(("http:", "https:")) else "https:"
    path = f"/api/v1/namespaces/{quote(namespace)}/services/{scheme}{quote(service, safe=':')}/proxy/why"
    try:
        async with Api.from_kubeconfig(where.kubeconfig, timeout_seconds=ANSWER_SECONDS) as api:
            return await api.request("GET", path, params=question)
    except AccessError as error:
        raise Refusal(str(error)) from error
    except ApiError as error:
        raise Refusal(
            f"the extender's Service {where.service} does not answer: {error}; give --service, or --extender URL"
        ) from error


async def _from_url(url: str, ca: Path | None, question: Mapping[str, str]) -> bytes:
    """Ask the extender itself."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        tls = ssl.create_default_context(cafile=ca)
        connector = aiohttp.TCPConnector(ssl=tls)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/why", params=question) as answer,
        ):
            body = await answer.read()
            if answer.status != HTTPStatus.OK:
                raise Refusal(f"{url} answers HTTP {answer.status}: {body.decode(errors='replace').strip()}")
            return body
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Refusal(f"no answer from {url}: {error or type(error).__name__}") from error


async def _named(answer: Answer, kubeconfig: Path | None) -> Answer:
    """The same with the names of the pods that would move, as far as this user may list them."""
    nodes = {move.from_node for change in answer.changes for move in change.moves}
    names: dict[str, str] = {}
    if nodes:
        with suppress(AccessError, ApiError):
            async with Api.from_kubeconfig(kubeconfig) as api:
                for node in sorted(nodes):
                    found = await api.list(PODS, field_selector=f"spec.nodeName={node}")
                    names |= {pod.metadata.uid: pod.key for pod in found.items}

    def named(change: Change) -> Change:
        moves = (msgspec.structs.replace(move, pod=names.get(move.uid, "")) for move in change.moves)
        return msgspec.structs.replace(change, moves=tuple(moves))

    return msgspec.structs.replace(answer, changes=tuple(map(named, answer.changes)))


def _lines(answer: Answer) -> Iterator[str]:
    """What people read."""
    waits = " waits" if answer.state is State.WAITING else ""
    yield f"{answer.namespace}/{answer.pod}{waits}: {answer.summary}"
    if answer.causes:
        yield ""
        yield from (f"{cause.nodes:6}  {cause.text}" for cause in answer.causes)
    if answer.group and not _has_room(answer):
        yield ""
        yield f"It belongs to a group, which gets its places together: {answer.group}"
    if answer.state is State.WAITING and not answer.asked:
        yield ""
        yield "kube-scheduler has not asked for it yet; what it says itself:"
        yield f"  {answer.scheduler or 'nothing'}"
    if answer.changes:
        yield ""
        yield "Each of these would help by itself; the first costs least:"
        for number, change in enumerate(answer.changes, 1):
            yield f"{number:3}. {change.text}"
            yield from (f"       {line}" for line in _details(change))
    elif answer.causes and not _has_room(answer):
        yield ""
        yield "No single change of the pod, and no moving of others, makes room for it now."


def _has_room(answer: Answer) -> bool:
    return any(cause.kind is CauseKind.ROOM for cause in answer.causes)


def _details(change: Change) -> Iterator[str]:
    """What to write, or who goes where."""
    if change.limits:
        limits = ", ".join(f"{name}: {amount}" for name, amount in change.limits.items())
        yield f"container {change.container}: {{{limits}}}"
    yield from (f"{key}: {value}" for key, value in change.annotations.items() if value is not None)
    yield from map(_moved, change.moves)
    if not change.moves:
        yield f"room then on {change.nodes} node{'' if change.nodes == 1 else 's'}"


def _moved(move: Move) -> str:
    pod = move.pod or "a pod that you may not see"
    return f"{pod} ({format_bytes(move.memory_mib * MIB)}) to node {move.to_node}"
