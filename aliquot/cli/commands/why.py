"""`aliquot why`: what keeps a pod of the cluster waiting, and which single change would help."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from aliquot.api.why import Answer, CauseKind, Change, Move, State
from aliquot.cli.commands.extender import Where, ask, extender_options
from aliquot.cli.options import Refusal
from aliquot.kube.access import AccessError
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.kubeconfig import load_access
from aliquot.kube.objects import UNREADABLE
from aliquot.kube.resources import PODS
from aliquot.units import MIB, format_bytes


@click.command()
@extender_options
@click.option("-n", "--namespace", help="The pod's namespace.  [default: the kubeconfig's]")
@click.argument("pod", metavar="[NAMESPACE/]POD")
def why(
    *,
    where: Where,
    as_json: bool,
    namespace: str | None,
    pod: str,
) -> None:
    """Say why a pod waits, node by node, and what would help.

    Nothing is changed by asking. Pods that would have to move for it are named where you may list them.
    """
    written, slash, name = pod.rpartition("/")
    if not name or "/" in written or (slash and not written):
        raise click.UsageError(f"{pod!r} names no pod; write POD or NAMESPACE/POD")
    if namespace and written and namespace != written:
        raise click.UsageError(
            f"--namespace {namespace} and {pod} name two namespaces; leave one of them out"
        )
    question = {"namespace": namespace or written or _own_namespace(where), "pod": name}
    answer = asyncio.run(_ask(where, question))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)))
    else:
        click.echo("\n".join(_lines(answer)))
    if answer.state is State.ABSENT:
        raise SystemExit(1)


def _own_namespace(where: Where) -> str:
    """What kubectl would take; who asks an extender by its URL may have no kubeconfig."""
    try:
        return load_access(where.kubeconfig).namespace
    except AccessError:
        return "default"


async def _ask(where: Where, question: Mapping[str, str]) -> Answer:
    """The extender's answer, with the names of pods that this user may list. Raises Refusal where there is none."""
    raw = await ask(where, "why", question)
    try:
        answer = msgspec.json.decode(raw, type=Answer)
    except UNREADABLE as error:
        raise Refusal(f"what answers is no extender of this version: {error}") from error
    return await _named(answer, where.kubeconfig)


async def _named(answer: Answer, kubeconfig: Path | None) -> Answer:
    """The same with the names of the pods that would move, as far as this user may list them."""
    nodes = {move.from_node for change in answer.changes for move in change.moves}
    names = await names_of(nodes, kubeconfig)

    def named(change: Change) -> Change:
        moves = (msgspec.structs.replace(move, pod=names.get(move.uid, "")) for move in change.moves)
        return msgspec.structs.replace(change, moves=tuple(moves))

    return msgspec.structs.replace(answer, changes=tuple(map(named, answer.changes)))


async def names_of(nodes: Collection[str], kubeconfig: Path | None) -> dict[str, str]:
    """The pods on these nodes by UID, as NAMESPACE/NAME, as far as this user may list them."""
    names: dict[str, str] = {}
    if nodes:
        with suppress(AccessError, ApiError):
            async with Api.from_kubeconfig(kubeconfig) as api:
                for node in sorted(nodes):
                    found = await api.list(PODS, field_selector=f"spec.nodeName={node}")
                    names |= {pod.metadata.uid: pod.key for pod in found.items}
    return names


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
        yield from _not_asked(answer.scheduler)
    if answer.changes:
        yield ""
        yield "Each of these would help by itself; the first costs least:"
        for number, change in enumerate(answer.changes, 1):
            yield f"{number:3}. {change.text}"
            yield from (f"       {line}" for line in _details(change))
    elif answer.causes and not _has_room(answer):
        yield ""
        yield "No single change of the pod, and no moving of others, makes room for it now."


def _not_asked(words: str) -> Iterator[str]:
    """Of a pod for which the extender was never asked: whether kube-scheduler has tried it, and what it says of it."""
    if not words:
        yield "kube-scheduler has not tried it yet."
        return
    yield "kube-scheduler has tried it, and has not asked this extender for it; what kube-scheduler says itself:"
    yield f"  {words}"


def _has_room(answer: Answer) -> bool:
    """Whether the pod has room, be it that others go first."""
    return any(cause.kind in (CauseKind.ROOM, CauseKind.TURN) for cause in answer.causes)


def _details(change: Change) -> Iterator[str]:
    """What to write, or who goes where."""
    if change.limits:
        limits = ", ".join(f"{name}: {amount}" for name, amount in change.limits.items())
        yield f"container {change.container}: {{{limits}}}"
    yield from (f"{key}: {value}" for key, value in change.annotations.items() if value is not None)
    yield from map(moved, change.moves)
    if not change.moves:
        yield f"room then on {change.nodes} node{'' if change.nodes == 1 else 's'}"


def moved(move: Move) -> str:
    """Who goes where, for people."""
    pod = move.pod or "a pod that you may not see"
    return f"{pod} ({format_bytes(move.memory_mib * MIB)}) to node {move.to_node}"
