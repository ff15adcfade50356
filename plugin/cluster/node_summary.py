"""What is promised of this node's cards, in the few words that people read in the GPUNode.

The ledger has the pods that were let in, also those of which the API server knows nothing any more. A pod that is bound
and still pulls its image is not in it yet, but its placement is a promise all the same: the scheduler counts it. What
the scheduler has reserved for pods that are not bound is its own knowledge and is not in the summary.
"""

from collections.abc import Iterable, Iterator

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.crds.gpu_node import Card, GPUNodeStatus, Summary
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.state.node_ledger import Charges, NodeLedger, total
from aliquot.request.placement import Charge, PlacementError, read_placement
from aliquot.units import MIB, format_bytes

LOOK_EVERY_S = 60.0
"""Capacities and pods tell of their changes; this is for what they should have told."""


class NodeSummary:
    """Adds up what pods and ledger know. Lives in one event loop."""

    def __init__(self, pods: Pods, ledger: NodeLedger) -> None:
        self._pods = pods
        self._ledger = ledger

    def of(self, status: GPUNodeStatus) -> Summary:
        """The summary of these cards at this moment."""
        waiting = tuple(self._not_let_in())
        taken = {card.uuid: self._taken(card.uuid, waiting) for card in status.cards}
        free = [self._free_mib(card, taken[card.uuid], status.slices_per_card) for card in status.cards]
        usable = (
            self._ledger.capacity(card.uuid).usable_mib for card in status.cards if not card.mig_enabled
        )
        return Summary(
            cards=len(status.cards),
            healthy=f"{sum(card.healthy for card in status.cards)}/{len(status.cards)}",
            memory=_quantity(sum(usable)),
            promised=_quantity(sum(charge.memory_mib for charge in taken.values())),
            free=_quantity(sum(free)),
            largest_free_slice=_quantity(max(free, default=0)),
        )

    async def other_than(self, published: GPUNodeStatus) -> None:
        """Returns when the cards published have another summary."""
        while self.of(published) == published.summary:
            await self._pods.wait(LOOK_EVERY_S)

    def _not_let_in(self) -> Iterator[Charges]:
        """What pods take that are bound to this node and have not come to its gate yet."""
        for pod in self._pods.placed():
            if pod.metadata.uid in self._ledger:
                continue
            try:
                placement = read_placement(pod.metadata.annotations, PLACEMENT_ANNOTATION, pod.metadata.uid)
            except PlacementError:  # the gate refuses the pod and says why
                continue
            if placement is not None:
                yield placement.charges()

    def _taken(self, uuid: str, waiting: Iterable[Charges]) -> Charge:
        return self._ledger.promised(uuid) + total(charges[uuid] for charges in waiting if uuid in charges)

    def _free_mib(self, card: Card, taken: Charge, slices: int) -> int:
        """The largest guaranteed slice that fits the card now."""
        if not card.healthy or taken.slots >= slices:
            return 0
        return self._ledger.capacity(card.uuid).free_mib(taken)


def _quantity(mib: int) -> str:
    return format_bytes(mib * MIB)
