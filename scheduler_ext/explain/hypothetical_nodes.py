"""Nodes that are not there yet, as an autoscaler imagines them: which cards would they have?

A node that the cluster has never seen is understood in one of two ways:

    label or annotation aliquot.dev/cards-like: NODE      the cards that NODE has, empty
    labels nvidia.com/gpu.count, .product, .memory        what NVIDIA's feature discovery says, where the node has
                                                          aliquot.dev/gpu to allocate, too: that many slices in all

The labels' product has dashes for the spaces of the model. Where a node of the cluster has cards of that model, theirs
is the memory; feature discovery counts what the driver keeps to itself, too. Pools are for such nodes as for others,
by their labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from aliquot.api.names import CARDS_LIKE, DEFAULT_NAMES, ResourceNames
from aliquot.crds.gpu_node import HEALTHY, Card, GPUNode, GPUNodeStatus
from aliquot.crds.gpu_pool import GPUPool, PooledAs, pooled_as
from aliquot.kube.objects import Node
from aliquot.request.card_filter import plain_model
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.placement.placer import slices_of
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.units import QuantityError, parse_count

COUNT, PRODUCT, MEMORY = (f"nvidia.com/gpu.{name}" for name in ("count", "product", "memory"))
SHARED: Final = "-SHARED"
"""At the end of a product that NVIDIA's plugin shares by time."""
MIG: Final = "-MIG-"
"""Within a product of which each card is one kind of MIG instances."""
KEPT: Final = 0.05
"""What a driver keeps of a card's memory to itself, at most; with more between them they are different cards."""
MOST_CARDS: Final = 64
"""Of one node."""


@dataclass(frozen=True)
class KnownNodes:
    """The cluster as its objects say, by name; the maps change with it."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    gpu_nodes: Mapping[str, GPUNode] = field(default_factory=dict)
    pools: Mapping[str, GPUPool] = field(default_factory=dict)


class HypotheticalNodes:
    """Makes ledgers of nodes that are not there."""

    def __init__(self, known: KnownNodes, names: ResourceNames = DEFAULT_NAMES) -> None:
        """Know what such nodes may be like.

        Args:
            known: The cluster.
            names: The resources' names.
        """
        self._known = known
        self._names = names

    def ledger(self, nodes: Sequence[Node], request: PodRequest) -> Ledger:
        """A ledger of those nodes that the cluster does not have and whose cards can be told, all of them empty."""
        found = Ledger(lambda: 0.0)
        for node in nodes:
            name, labels = node.metadata.name, node.metadata.labels
            status = None if name in self._known.nodes else self._status(node, request)
            if status is not None:
                pools = {card.model: self._pool(labels, card.model) for card in status.cards}
                found.put_node(name, status, lambda model, pools=pools: pools[model].spec)  # type: ignore[misc]
                found.put_pools(name, {card.uuid: pools[card.model].name for card in status.cards})
        return found

    def _pool(self, labels: Mapping[str, str], model: str) -> PooledAs:
        return pooled_as(self._known.pools.values(), labels, model)

    def _status(self, node: Node, request: PodRequest) -> GPUNodeStatus | None:
        """What its agent would say."""
        meta = node.metadata
        like = meta.labels.get(CARDS_LIKE) or meta.annotations.get(CARDS_LIKE)
        if like:
            pattern = self._known.gpu_nodes.get(like)
            return self._copied(node, pattern.status) if pattern else None
        return self._discovered(node, request)

    def _copied(self, node: Node, status: GPUNodeStatus) -> GPUNodeStatus:
        """The same cards under names of their own, all of them healthy."""
        labels, cards = node.metadata.labels, []
        for n, card in enumerate(status.cards):
            reserve = max(card.reserve_mib, self._pool(labels, card.model).spec.reserve_mib)
            cards.append(
                msgspec.structs.replace(card, uuid=_uuid(node, n), health=HEALTHY, reserve_mib=reserve)
            )
        return msgspec.structs.replace(status, cards=tuple(cards))

    def _discovered(self, node: Node, request: PodRequest) -> GPUNodeStatus | None:
        """What feature discovery would say of it."""
        labels = node.metadata.labels
        count, memory = _number(labels.get(COUNT)), _number(labels.get(MEMORY))
        slices = _number(node.status.allocatable.get(self._names.gpu))
        if not 0 < count <= MOST_CARDS or not slices:
            return None
        card = self._card(labels.get(PRODUCT, ""), memory, labels, request)
        cards = [msgspec.structs.replace(card, uuid=_uuid(node, n), index=n) for n in range(count)]
        return GPUNodeStatus(slices_per_card=max(slices // count, 1), cards=tuple(cards))

    def _card(self, product: str, memory: int, labels: Mapping[str, str], request: PodRequest) -> Card:
        """One of its cards."""
        dashed, mig, _ = product.removesuffix(SHARED).partition(MIG)
        alike = (card for card in self._cards() if _same(card.model, dashed))
        known = next(
            (card for card in alike if not memory or 0 <= memory - card.memory_mib <= memory * KEPT), None
        )
        if known is not None:
            model, memory, reserve = known.model, known.memory_mib, known.reserve_mib
        else:
            asked = (
                model
                for wanted in slices_of(request)
                for model in (*wanted.only.models, *wanted.only.not_models)
            )
            model, reserve = next((m for m in sorted(asked) if _same(m, dashed)), dashed.replace("-", " ")), 0
        reserve = max(reserve, self._pool(labels, model).spec.reserve_mib)
        return Card(uuid="", model=model, memory_mib=memory, reserve_mib=reserve, mig_enabled=bool(mig))

    def _cards(self) -> Iterator[Card]:
        """The cards of the cluster, of each node one of each model."""
        for _, node in sorted(self._known.gpu_nodes.items()):
            yield from {card.model: card for card in node.status.cards}.values()


def _same(model: str, dashed: str) -> bool:
    """Whether a model is what a label calls by this name."""
    return plain_model(model).replace(" ", "-") == plain_model(dashed.replace("-", " ")).replace(" ", "-")


def _uuid(node: Node, index: int) -> str:
    return f"imagined-{node.metadata.name}-{index}"


def _number(text: object) -> int:
    """A label or quantity as a whole number; 0 where it is none."""
    try:
        return parse_count(text) if isinstance(text, str | int) else 0
    except QuantityError:
        return 0
