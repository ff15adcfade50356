"""Traces of nodes and pods: CSV files in the columns of Alibaba's cluster-trace-gpu-v2023.

Nodes: `sn, cpu_milli, memory_mib, gpu, model`. Pods: `cpu_milli, memory_mib, num_gpu, gpu_milli` and, where pods
name card models, `gpu_spec` (several with a bar between them). Other columns are passed over.

`gpu_milli` is a part of any card, whatever its size. Every card therefore has 1,000 MiB here and a pod asks for as
many MiB as its `gpu_milli` says, so that nothing is rounded; it asks for no cores, as the trace says nothing of
them.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.request.card_filter import ANY_CARD, CardFilter, plain_model
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import MAX_CARDS, ContainerKind, ContainerRequest, PodRequest, SliceRequest

WHOLE_CARD: Final = 1000
"""MiB of every card."""
SLICES_PER_CARD: Final = 1000
"""As many as a GPUNode can offer: the trace knows no such limit."""


class TraceError(ValueError):
    """A file that is no such trace; the message names file, line and column."""


@dataclass(frozen=True)
class TraceNode:
    """One node."""

    name: str
    host: HostShare
    cards: int
    model: str

    def status(self, name: str) -> GPUNodeStatus:
        """What its agent would publish under this name."""
        cards = (
            Card(uuid=f"GPU-{name}-{n}", index=n, model=self.model, memory_mib=WHOLE_CARD)
            for n in range(self.cards)
        )
        return GPUNodeStatus(slices_per_card=SLICES_PER_CARD, cards=tuple(cards))


@dataclass(frozen=True)
class TracePod:
    """What one pod asks for; `models` is empty where any will do."""

    host: HostShare
    cards: int
    milli: int
    models: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Thousandths of a card, in all."""
        return self.cards * self.milli

    def request(self, uid: str) -> PodRequest:
        """The pod as the extender reads it."""
        if not self.cards:
            return PodRequest("default", uid, uid, host=self.host)
        only = CardFilter(models=self.models) if self.models else ANY_CARD
        part = SliceRequest(self.cards, self.milli, None, 0, only=only)
        container = ContainerRequest("main", ContainerKind.REGULAR, part)
        return PodRequest("default", uid, uid, (container,), self.host)


def read_nodes(path: Path) -> list[TraceNode]:
    """Read a list of nodes; those without cards are left out.

    Raises:
        TraceError: it is none.
        OSError: it cannot be read.
    """
    nodes = [
        TraceNode(row.text("sn"), row.host(), row.number("gpu", most=MAX_CARDS), row.text("model"))
        for row in _rows(path)
    ]
    if not any(node.cards for node in nodes):
        raise TraceError(f"{path}: no node has a card")
    return [node for node in nodes if node.cards]


def read_pods(path: Path) -> list[TracePod]:
    """Read a list of pods.

    Raises:
        TraceError: it is none.
        OSError: it cannot be read.
    """
    pods = [_pod(row) for row in _rows(path)]
    if not any(pod.size for pod in pods):
        raise TraceError(f"{path}: no pod asks for a card")
    return pods


def _pod(row: "_Row") -> TracePod:
    cards = row.number("num_gpu", most=MAX_CARDS)
    milli = row.number("gpu_milli", most=WHOLE_CARD) if cards else 0
    if cards and not milli:
        raise row.error("gpu_milli", "0 of a card; give at least 1")
    named = (row.fields.get("gpu_spec") or "").split("|")
    return TracePod(row.host(), cards, milli, frozenset(plain_model(name) for name in named if name.strip()))


@dataclass(frozen=True)
class _Row:
    """One line of a file."""

    path: Path
    line: int
    fields: Mapping[str, str | None]

    def text(self, column: str) -> str:
        value = self.fields.get(column)
        if not value:
            raise self.error(column, "missing")
        return value

    def number(self, column: str, most: int = 1 << 40) -> int:
        text = self.text(column)
        if not text.isdecimal() or int(text) > most:
            raise self.error(column, f"{text!r} is no whole number from 0 to {most}")
        return int(text)

    def host(self) -> HostShare:
        return HostShare(self.number("cpu_milli"), self.number("memory_mib"))

    def error(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self.path}:{self.line}: {column}: {problem}")


def _rows(path: Path) -> Iterator[_Row]:
    with path.open(newline="", encoding="utf-8") as file:
        try:
            for line, fields in enumerate(csv.DictReader(file), 2):
                yield _Row(path, line, fields)
        except (UnicodeDecodeError, csv.Error) as error:
            raise TraceError(f"{path}: {error}") from error
