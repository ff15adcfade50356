"""The cards of this node as gate, ledger and kubelet count them: what each offers and which nodes open it."""

from collections.abc import Collection
from pathlib import Path

from aliquot.inventory import MigInstance
from plugin.cards import Card
from plugin.cover import Offer
from plugin.errors import NotYetError
from plugin.ledger import Capacity
from plugin.mig import capability_nodes, read_minors


class CardTable:
    """Every card by UUID."""

    def __init__(self, reserve_mib: int, proc_root: Path) -> None:
        self._reserve_mib = reserve_mib
        self._proc_root = proc_root
        self._cards: dict[str, Card] = {}

    @property
    def reserve_mib(self) -> int:
        """MiB of each card that are never given away."""
        return self._reserve_mib

    def set(self, cards: Collection[Card]) -> None:
        """Takes over what was discovered."""
        self._cards = {card.uuid: card for card in cards}

    def offers(self) -> dict[str, Offer]:
        """What each card has for slices."""
        return {
            uuid: Offer(max(0, card.memory_mib - self._reserve_mib)) for uuid, card in self._cards.items()
        }

    def capacities(self) -> dict[str, Capacity]:
        """What each card has in the ledger."""
        offers = self.offers()
        return {
            uuid: Capacity(offers[uuid].usable_mib, card.mig_enabled) for uuid, card in self._cards.items()
        }

    def node_of(self, uuid: str) -> str:
        """The device node of a card, as a name below /dev. Raises NotYetError if there is no such card."""
        if uuid not in self._cards:
            raise NotYetError(f"card {uuid} is not on this node")
        return f"nvidia{self._cards[uuid].minor}"

    def instance(self, uuid: str) -> tuple[MigInstance, tuple[str, ...]]:
        """A MIG instance and the device nodes that open it. Raises NotYetError or MigError."""
        for card in self._cards.values():
            for instance in card.mig:
                if instance.uuid == uuid:
                    nodes = capability_nodes(read_minors(self._proc_root), card.minor, instance)
                    return instance, (f"nvidia{card.minor}", *nodes)
        raise NotYetError(f"MIG instance {uuid} is not on this node")
