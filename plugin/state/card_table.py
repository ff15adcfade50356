"""The cards of this node as gate, ledger and kubelet count them: what each offers and which nodes open it."""

from collections.abc import Callable, Collection
from pathlib import Path

from aliquot.crds.gpu_node import MigInstance
from aliquot.crds.gpu_pool import NO_POOL, PoolSpec
from aliquot.plugin.devices.mig import capability_nodes, read_minors
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.state.context_costs import ContextCosts
from aliquot.plugin.state.node_ledger import Capacity
from aliquot.plugin.state.placement_check import Offer
from aliquot.plugin.util.errors import NotYetError
from aliquot.request.pod_request import WHOLE


class CardTable:
    """Every card by UUID."""

    def __init__(
        self, reserve_mib: int, proc_root: Path, pool_of: Callable[[str], PoolSpec] = lambda _: NO_POOL
    ) -> None:
        """Start without cards.

        Args:
            reserve_mib: Memory of each card that is never given away, at least; its pool may ask for more.
            proc_root: Where the driver lists its MIG capabilities.
            pool_of: The pool of a card model.
        """
        self._reserve_mib = reserve_mib
        self._pool_of = pool_of
        self._proc_root = proc_root
        self._cards: dict[str, Card] = {}
        self._costs = ContextCosts()

    def learn_context(self, uuid: str, namespace: str, cost_bytes: int) -> None:
        """A process of a pod of this namespace was seen to have this for its context."""
        if uuid in self._cards:
            self._costs.learn(self._cards[uuid].model, namespace, cost_bytes)

    def context_bytes(self, uuid: str, namespace: str) -> int:
        """What a process's first context is likely to cost a pod of this namespace; 0 while nothing is known."""
        return self._costs.of(self._cards[uuid].model, namespace) if uuid in self._cards else 0

    def pool(self, uuid: str) -> PoolSpec:
        """How a card is to be shared."""
        return self._pool_of(self._cards[uuid].model) if uuid in self._cards else NO_POOL

    def reserve_mib(self, uuid: str) -> int:
        """MiB of a card that are never given away."""
        return max(self._reserve_mib, self.pool(uuid).reserve_mib)

    def set(self, cards: Collection[Card]) -> None:
        """Takes over what was discovered."""
        self._cards = {card.uuid: card for card in cards}

    def offers(self) -> dict[str, Offer]:
        """What each card has for slices."""
        return {
            uuid: Offer(max(0, card.memory_mib - self.reserve_mib(uuid)))
            for uuid, card in self._cards.items()
        }

    def capacities(self) -> dict[str, Capacity]:
        """What each card has in the ledger."""
        offers = self.offers()
        return {
            uuid: _capacity(offers[uuid].usable_mib, card.mig_enabled, self.pool(uuid))
            for uuid, card in self._cards.items()
        }

    def node_of(self, uuid: str) -> str:
        """The device node of a card, as a name below /dev. Raises NotYetError if no such card is shared here."""
        if uuid not in self._cards:
            raise NotYetError(f"card {uuid} is not on this node")
        if self._cards[uuid].mig_enabled:
            raise NotYetError(f"card {uuid} is divided by MIG and offers no slices")
        return f"nvidia{self._cards[uuid].minor}"

    def instance(self, uuid: str) -> tuple[Card, MigInstance, tuple[str, ...]]:
        """A MIG instance, its card, and the device nodes that open it. Raises NotYetError or MigError."""
        for card in self._cards.values():
            for instance in card.mig:
                if instance.uuid == uuid:
                    nodes = capability_nodes(read_minors(self._proc_root), card.minor, instance)
                    return card, instance, (f"nvidia{card.minor}", *nodes)
        raise NotYetError(f"MIG instance {uuid} is not on this node")


def _capacity(usable_mib: int, divided: bool, pool: PoolSpec) -> Capacity:
    extra_mib = usable_mib * (pool.memory_percent - WHOLE) // WHOLE
    return Capacity(usable_mib, divided, pool.core_percent, extra_mib)
