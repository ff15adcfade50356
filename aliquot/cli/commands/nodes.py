"""`aliquot nodes`: the free capacity of a cluster, node by node, as the node agents publish it."""

import asyncio
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path

import click
import msgspec

from aliquot.cli.options import Refusal
from aliquot.crds.gpu_node import GPUNode
from aliquot.crds.resources import GPU_NODES
from aliquot.kube.access import AccessError
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.units import MIB, QuantityError, format_bytes, parse_quantity

HEADINGS = ("NODE", "CARDS", "HEALTHY", "MEMORY", "PROMISED", "FREE", "LARGEST FREE SLICE", "MODEL")

GRANT = (
    "kubectl create clusterrole gpunodes-reader --verb=get,list,watch --resource=gpunodes.aliquot.dev && "
    "kubectl create clusterrolebinding gpunodes-reader --clusterrole=gpunodes-reader --user=USER"
)
"""The chart has no role for it that is made for people."""


class NodeReport(msgspec.Struct, frozen=True, rename="camel"):
    """A node's cards together; sizes in bytes, None where an older agent does not say it."""

    name: str
    models: tuple[str, ...]
    cards: int
    healthy_cards: int
    memory_bytes: int
    promised_bytes: int | None
    free_bytes: int | None
    largest_free_slice_bytes: int | None


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    nodes: tuple[NodeReport, ...]


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's account, or ~/.kube/config."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table; sizes in bytes."
)
def nodes(*, kubeconfig: Path | None, as_json: bool) -> None:
    """List the cluster's nodes with cards, and what is promised and free of them.

    It is what `kubectl get gpunodes` shows, with a last line for all nodes together. The numbers follow the pods
    within half a minute.
    """
    report = Report(tuple(sorted(map(describe, asyncio.run(_read(kubeconfig))), key=lambda node: node.name)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif report.nodes:
        click.echo("\n".join(_lines(report.nodes)))
    else:
        click.echo("no node shares its cards yet: see `aliquot doctor`")


async def _read(kubeconfig: Path | None) -> tuple[GPUNode, ...]:
    """All GPUNodes. Raises Refusal or UsageError where they cannot be read."""
    try:
        async with Api.from_kubeconfig(kubeconfig) as api:
            found = await api.list(GPU_NODES)
    except AccessError as error:
        raise click.UsageError(f"{error}; give --kubeconfig") from error
    except ApiError as error:
        raise Refusal(_why(error)) from error
    for unreadable in found.unreadable:
        click.echo(f"left out: {unreadable}", err=True)
    return found.items


def _why(error: ApiError) -> str:
    """Why there is no list, and what to do about it."""
    if error.status == HTTPStatus.FORBIDDEN:
        return f"you lack the right to list gpunodes.aliquot.dev, which an administrator gives with: {GRANT}"
    if error.not_found:
        return "the cluster has no GPUNodes: Aliquot is not installed there"
    return f"GPUNodes could not be listed: {error}"


def describe(node: GPUNode) -> NodeReport:
    """What a GPUNode says of its cards together."""
    cards, summary = node.status.cards, node.status.summary
    return NodeReport(
        name=node.metadata.name,
        models=tuple(sorted({card.model for card in cards})),
        cards=len(cards),
        healthy_cards=sum(card.healthy for card in cards),
        memory_bytes=sum(card.usable_mib for card in cards if not card.mig_enabled) * MIB,
        promised_bytes=_bytes(summary.promised) if summary else None,
        free_bytes=_bytes(summary.free) if summary else None,
        largest_free_slice_bytes=_bytes(summary.largest_free_slice) if summary else None,
    )


def _bytes(quantity: str) -> int | None:
    """A quantity that an agent has written; None where it is none."""
    try:
        return int(parse_quantity(quantity))
    except QuantityError:
        return None


def _lines(nodes: tuple[NodeReport, ...]) -> Iterator[str]:
    """A table; what is of no fixed width stands last."""
    rows = [HEADINGS, *map(_row, nodes)]
    if len(nodes) > 1:
        rows.append(_row(together(nodes)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()


def together(nodes: Iterable[NodeReport]) -> NodeReport:
    """All nodes as one; those whose agent does not say something add nothing to it."""
    every = tuple(nodes)
    return NodeReport(
        name=f"{len(every)} nodes",
        models=(),
        cards=sum(node.cards for node in every),
        healthy_cards=sum(node.healthy_cards for node in every),
        memory_bytes=sum(node.memory_bytes for node in every),
        promised_bytes=sum(node.promised_bytes or 0 for node in every),
        free_bytes=sum(node.free_bytes or 0 for node in every),
        largest_free_slice_bytes=max(node.largest_free_slice_bytes or 0 for node in every),
    )


def _row(node: NodeReport) -> tuple[str, ...]:
    amounts = (node.memory_bytes, node.promised_bytes, node.free_bytes, node.largest_free_slice_bytes)
    return (
        node.name,
        str(node.cards),
        f"{node.healthy_cards}/{node.cards}",
        *("-" if amount is None else format_bytes(amount) for amount in amounts),
        ", ".join(filter(None, node.models)),
    )
