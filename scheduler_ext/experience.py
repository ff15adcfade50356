"""What bound pods tell of demand, so that an extender that begins does not begin without experience.

What a pod asked for is read from the place that it was given: there a percentage has become the amount that it came
to, and nothing else that matters is lost.
"""

from aliquot.card_filter import ANY_CARD, CardFilter, CardFilterError, read_card_filter
from aliquot.placement import ContainerPlacement, Placement
from aliquot.request import ContainerRequest, PodRequest, SliceRequest
from scheduler_ext.demand import Demand
from scheduler_ext.pods import PlacedPod


def learn(demand: Demand, pod: PlacedPod, placement: Placement) -> None:
    """A bound pod is seen for the first time."""
    meta = pod.metadata
    containers = tuple(_asked(pod, container) for container in placement.containers)
    demand.note(PodRequest(meta.namespace, meta.name, meta.uid, containers, pod.spec.host))


def _asked(pod: PlacedPod, placed: ContainerPlacement) -> ContainerRequest:
    share = placed.cards[0]
    wanted = SliceRequest(
        cards=len(placed.cards),
        memory_mib=None if share.exclusive else share.memory_mib,
        memory_percent=100 if share.exclusive else None,
        cores=share.cores,
        exclusive=share.exclusive,
        only=_allowed(pod, placed.name),
    )
    return ContainerRequest(placed.name, placed.kind, wanted)


def _allowed(pod: PlacedPod, container: str) -> CardFilter:
    try:
        return read_card_filter(pod.metadata.annotations, container)
    except CardFilterError:  # written after it was placed
        return ANY_CARD
