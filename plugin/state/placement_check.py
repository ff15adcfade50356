"""Does the placement give each container what its manifest asks for: no less, no more, no other.

The amounts of a resized container are no longer those of its manifest: the scheduler and the ledger answer for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.api.names import ResourceNames
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import WHOLE, ContainerRequest, MemoryClass, PodRequest, SliceRequest
from aliquot.units import MIB, format_bytes


class PlacementMismatchError(Exception):
    """Placement and request contradict each other; names pod, container, resource and both values."""


@dataclass(frozen=True)
class Offer:
    """What this node knows of a card: MiB that slices may take together."""

    usable_mib: int


def check_cover(
    request: PodRequest, placement: Placement, node: str, offers: Mapping[str, Offer], names: ResourceNames
) -> None:
    """Checks every container of a pod.

    Raises:
        PlacementMismatchError: a container asks for one thing and was placed with another.
    """
    pod = f"pod {request.namespace}/{request.name}"
    if placement.node != node:
        raise PlacementMismatchError(f"{pod}: placed on node {placement.node}, started on {node}")
    placed = {container.name: container for container in placement.containers}
    for container in request.containers:
        if container.slice:
            PlacementCheck(f"{pod}, container {container.name}", names, offers).check(
                container, placed.get(container.name)
            )


@dataclass(frozen=True)
class PlacementCheck:
    """The checks of one container; `where` begins every message."""

    where: str
    names: ResourceNames
    offers: Mapping[str, Offer]

    def check(self, request: ContainerRequest, placed: ContainerPlacement | None) -> None:
        """Compares cards, memory, compute and exclusivity."""
        wanted = request.slice
        if wanted is None:
            return
        if placed is None:
            raise self._error(self.names.gpu, f"asks for {wanted.cards} card(s), the placement leaves it out")
        if len(placed.cards) != wanted.cards:
            raise self._error(
                self.names.gpu, f"asks for {wanted.cards} card(s), the placement gives {len(placed.cards)}"
            )
        if placed.kind is not request.kind:
            raise self._error(self.names.gpu, f"is {request.kind}, the placement takes it for {placed.kind}")
        if placed.burst is not wanted.burst:
            raise self._error(
                self.names.memory,
                f"asks for {_class(wanted.burst)} memory, the placement gives {_class(placed.burst)}",
            )
        for share in placed.cards:
            offer = self.offers.get(share.uuid)
            if offer is None:
                raise self._error(self.names.gpu, f"placed on card {share.uuid}, which is not on this node")
            if not placed.resized:
                self._check_amounts(wanted, share, offer)
            self._check_exclusivity(wanted, share)

    def _check_amounts(self, wanted: SliceRequest, share: CardShare, offer: Offer) -> None:
        self._check_memory(wanted, share, offer)
        if share.cores != wanted.cores:
            raise self._error(
                self.names.core,
                f"asks for {wanted.cores}, the placement gives {share.cores} on card {share.uuid}",
            )

    def _check_exclusivity(self, wanted: SliceRequest, share: CardShare) -> None:
        if wanted.exclusive and not share.exclusive:
            raise self._error(self.names.gpu, "asks for a card held alone, the placement shares it")
        # Who takes all of a card's time may be said by a dialect to hold it alone. Nobody else may: that lifts the cap.
        if share.exclusive and not wanted.exclusive and wanted.cores != WHOLE:
            problem = f"asks for {wanted.cores} % of a card, the placement holds it alone"
            raise self._error(self.names.core, problem)

    def _check_memory(self, wanted: SliceRequest, share: CardShare, offer: Offer) -> None:
        if wanted.memory_mib is not None:
            resource, mib = self.names.memory, wanted.memory_mib
        else:
            resource = self.names.memory_percent
            mib = offer.usable_mib * (wanted.memory_percent or WHOLE) // WHOLE
        if share.memory_mib != mib:
            asked, given = format_bytes(mib * MIB), format_bytes(share.memory_mib * MIB)
            raise self._error(resource, f"asks for {asked}, the placement gives {given} on card {share.uuid}")

    def _error(self, resource: str, problem: str) -> PlacementMismatchError:
        return PlacementMismatchError(f"{self.where}, {resource}: {problem}")


def _class(burst: bool) -> str:
    return str(MemoryClass.BURST if burst else MemoryClass.GUARANTEED)
