"""Which single change to a pod would give it room now: less memory, less compute, fewer cards, another model.

Of each amount the least reduction is looked for, container by container; what is proposed has been tried, quotas
included, and nothing is reserved by it. A container's amount that would shrink to less than a tenth is no proposal.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aliquot.api.names import (
    CARD_MODEL_ANNOTATION,
    CARD_UUID_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
)
from aliquot.api.why import Change, ChangeKind
from aliquot.request.card_filter import ANY_CARD, CardFilter, plain_model
from aliquot.request.core_policy import NO_POLICY
from aliquot.request.pod_request import WHOLE, ContainerRequest, PodRequest, SliceRequest
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.placement.node_survey import roomy
from aliquot.units import MIB, format_bytes

LEAST_PART: Final = 10
"""What remains of an amount, at least, in percent."""
FILTERS: Final = (
    CARD_MODEL_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    CARD_UUID_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
)


@dataclass(frozen=True)
class Amount:
    """One amount of a slice that could be less.

    Attributes:
        kind: Which.
        now: How much it is.
        most: The most that is tried.
        least: The least that is tried.
        put: The slice with another amount.
        say: The change in words.
    """

    kind: ChangeKind
    now: int
    most: int
    least: int
    put: Callable[[int], SliceRequest]
    say: Callable[[int], str]


class Remedies:
    """Looks for changes."""

    def __init__(self, decide: Filter) -> None:
        """Look for nothing yet.

        Args:
            decide: Who would answer.
        """
        self._filter = decide

    async def find(self, request: PodRequest, nodes: Sequence[str]) -> list[Change]:
        """The changes that help, in no particular order; other work goes on between two tries.

        Args:
            request: What the pod asks for, which has no room.
            nodes: Where it may go, but for quotas.
        """
        found: dict[ChangeKind, Change] = {}
        for position, container in enumerate(request.containers):
            for amount in _amounts(container.slice) if container.slice else ():
                change = await self._less(request, position, amount, nodes)
                if change and (change.kind not in found or change.cost < found[change.kind].cost):
                    found[change.kind] = change
        model = await self._model(request, nodes)
        return [*found.values(), *([model] if model else [])]

    def _room(self, request: PodRequest, nodes: Sequence[str]) -> list[str]:
        """The nodes that would have room."""
        barred = self._filter.barred(request)
        return roomy(self._filter.ledger.table, request, [name for name in nodes if name not in barred])

    async def _less(
        self, request: PodRequest, position: int, amount: Amount, nodes: Sequence[str]
    ) -> Change | None:
        """The least reduction of one amount that helps."""

        def helps(value: int) -> list[str]:
            return self._room(with_slice(request, position, amount.put(value)), nodes)

        low, high = amount.least, amount.most
        if low > high or not helps(low):
            return None
        while low < high:
            await asyncio.sleep(0)
            middle = (low + high + 1) // 2
            low, high = (middle, high) if helps(middle) else (low, middle - 1)
        having, container = helps(low), request.containers[position]
        if not having:
            return None  # somebody else has taken it meanwhile
        where = f" in container {container.name}" if len(request.containers) > 1 else ""
        return Change(
            kind=amount.kind,
            text=amount.say(low) + where,
            nodes=len(having),
            container=container.name,
            limits=amount.put(low).limits(self._filter.names),
            cost=-(-(amount.now - low) * WHOLE // amount.now),
        )

    async def _model(self, request: PodRequest, nodes: Sequence[str]) -> Change | None:
        """Another card model, where the pod does not take all: the one that most nodes have room on."""
        if not any(c.slice and c.slice.only for c in request.containers):
            return None
        having: dict[str, int] = {}
        for model in self._models():
            await asyncio.sleep(0)
            count = len(self._room(of_model(request, model), nodes))
            having |= {model: count} if count else {}
        if not having:
            return None
        best = min(having, key=lambda model: (-having[model], model))
        others = ", ".join(f"{m} ({count_nodes(having[m])})" for m in sorted(having) if m != best)
        return Change(
            kind=ChangeKind.MODEL,
            text=f"take cards of model {best}" + (f"; or of {others}" if others else ""),
            nodes=having[best],
            annotations=_only_model(request, best),
        )

    def _models(self) -> list[str]:
        """All that the cluster has had, as their agents write them."""
        return [model for model in self._filter.ledger.table.models if model]


def count_nodes(count: int) -> str:
    """So many nodes, in words."""
    return "1 node" if count == 1 else f"{count} nodes"


def with_slice(request: PodRequest, position: int, wanted: SliceRequest) -> PodRequest:
    """The same pod, but that one container asks for something else."""
    containers = list(request.containers)
    containers[position] = replace(containers[position], slice=wanted)
    return replace(request, containers=tuple(containers))


def of_model(request: PodRequest, model: str) -> PodRequest:
    """The same pod, but that it takes any card of this model, and no other."""
    only = CardFilter(models=frozenset({plain_model(model)}))

    def of(container: ContainerRequest) -> ContainerRequest:
        return replace(container, slice=container.slice and replace(container.slice, only=only))

    return replace(request, containers=tuple(map(of, request.containers)))


def _only_model(request: PodRequest, model: str) -> dict[str, str | None]:
    """The annotations that say so: at the pod the model, and nothing else of the kind, at the pod or a container."""
    narrowed = [c.name for c in request.containers if c.slice and c.slice.only is not ANY_CARD]
    keys = [*FILTERS, *(f"{name}.{annotation}" for name in narrowed for annotation in FILTERS)]
    return dict.fromkeys(keys, None) | {CARD_MODEL_ANNOTATION: model}


def _amounts(wanted: SliceRequest) -> Iterator[Amount]:
    """What of a slice could be less."""
    yield _part(wanted) if wanted.exclusive else _memory(wanted)
    if wanted.cores and not wanted.exclusive:
        yield _amount(
            ChangeKind.CORES,
            wanted.cores,
            lambda v: replace(wanted, cores=v),
            lambda v: f"{v} % of a card's time in place of {wanted.cores} %",
        )
    if wanted.cards > 1:
        yield _amount(
            ChangeKind.CARDS,
            wanted.cards,
            lambda v: replace(wanted, cards=v),
            lambda v: f"{v} card{'' if v == 1 else 's'} in place of {wanted.cards}",
        )


def _memory(wanted: SliceRequest) -> Amount:
    mib, percent = wanted.memory_mib, wanted.memory_percent or 0
    if mib is not None:
        return _amount(
            ChangeKind.MEMORY,
            mib,
            lambda v: replace(wanted, memory_mib=v),
            lambda v: f"{format_bytes(v * MIB)} of memory in place of {format_bytes(mib * MIB)}",
        )
    return _amount(
        ChangeKind.MEMORY,
        percent,
        lambda v: replace(wanted, memory_percent=v),
        lambda v: f"{v} % of a card's memory in place of {percent} %",
    )


def _amount(
    kind: ChangeKind, now: int, put: Callable[[int], SliceRequest], say: Callable[[int], str]
) -> Amount:
    least = max(-(-now * LEAST_PART // WHOLE), 1)
    return Amount(kind, now, now - 1, least, put, lambda v: f"ask for {say(v)}")


def _part(wanted: SliceRequest) -> Amount:
    """A part of each card in place of all of it."""

    def put(percent: int) -> SliceRequest:
        return replace(
            wanted, memory_mib=None, memory_percent=percent, cores=0, exclusive=False, policy=NO_POLICY
        )

    return Amount(
        ChangeKind.PART,
        WHOLE,
        WHOLE,
        LEAST_PART,
        put,
        lambda v: f"ask for {v} % of a card's memory (gpu-mem-percent) in place of whole cards",
    )
