"""What bound pods tell of demand, so that an extender that begins does not begin without experience.

What a pod asked for is read from the place that it was given: there a percentage has become the amount that it came
to, and nothing else that matters is lost. Of the pods that are there at the start only those are learned from that were
made last, as many as are remembered anyway.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from aliquot.api.names import DOMAIN, PLACEMENT_ANNOTATION
from aliquot.request.card_filter import ANY_CARD, CardFilter, CardFilterError, read_card_filter
from aliquot.request.host_resources import HostShare
from aliquot.request.placement import ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerRequest, PodRequest, SliceRequest
from aliquot.scheduler_ext.placement.workload_model import WINDOW, WorkloadModel
from aliquot.scheduler_ext.state.pods import PlacedPod, shared


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """What is to be learned from a pod."""

    uid: str
    placement: Placement
    host: HostShare
    annotations: Mapping[str, str]


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_Aged = tuple[str, int, _Seen]
"""When a pod was made, which one it is of those that were read, and what is to be learned from it."""


class WorkloadHistory:
    """Learns from bound pods at once; between `begin` and `end` it gathers those that were made last."""

    def __init__(self, demand: WorkloadModel) -> None:
        """Know nothing yet.

        Args:
            demand: Where it goes.
        """
        self._demand = demand
        self._gathered: list[_Aged] | None = None
        self._number = 0

    def note(self, pod: PlacedPod, placement: Placement) -> None:
        """A bound pod is seen for the first time."""
        if self._gathered is None:
            self._learn(_seen(pod, placement))
            return
        self._number += 1
        made = pod.metadata.creation_timestamp or ""
        self._gathered.append((made, self._number, _seen(pod, placement)))
        if len(self._gathered) >= 2 * WINDOW:
            self._gathered = _youngest(self._gathered)

    def begin(self) -> None:
        """All pods are about to be read."""
        self._gathered = []

    def end(self) -> None:
        """They have been; learn from those that were made last, in that order."""
        gathered, self._gathered = self._gathered or (), None
        for *_, seen in _youngest(gathered):
            self._learn(seen)

    def _learn(self, seen: _Seen) -> None:
        containers = tuple(_asked(seen, container) for container in seen.placement.containers)
        # Who asks makes no difference to what is typical.
        self._demand.note(PodRequest("", "", seen.uid, containers, seen.host))


def _youngest(gathered: Iterable[_Aged]) -> list[_Aged]:
    """Those that were made last, in that order."""
    return sorted(gathered)[-WINDOW:]


def _seen(pod: PlacedPod, placement: Placement) -> _Seen:
    said = {
        name: text
        for name, text in pod.metadata.annotations.items()
        if DOMAIN in name and name != PLACEMENT_ANNOTATION
    }
    return _Seen(pod.metadata.uid, placement, pod.spec.host, shared(said) if said else _NOTHING)


def _asked(seen: _Seen, placed: ContainerPlacement) -> ContainerRequest:
    share = placed.cards[0]
    mib = None if share.exclusive else share.memory_mib
    wanted = _wanted(len(placed.cards), mib, share.cores, _allowed(seen, placed.name))
    return ContainerRequest(placed.name, placed.kind, wanted)


@lru_cache(maxsize=1024)
def _wanted(cards: int, mib: int | None, cores: int, only: CardFilter) -> SliceRequest:
    """One object for all pods that asked for the same; cards of which no amount is named were held alone."""
    percent = 100 if mib is None else None
    return SliceRequest(cards, mib, percent, cores, exclusive=mib is None, only=only)


def _allowed(seen: _Seen, container: str) -> CardFilter:
    if not seen.annotations:
        return ANY_CARD
    try:
        return read_card_filter(seen.annotations, container)
    except CardFilterError:  # written after it was placed
        return ANY_CARD
