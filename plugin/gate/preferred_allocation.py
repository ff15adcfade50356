"""Which free ids to suggest to the kubelet: on the scheduler's cards if they can be guessed.

The kubelet does not say for whom it asks, so the guess is the pod that has been placed here longest and
has not started. A wrong guess costs nothing: ids are tokens, and the placement decides which card a
container gets.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.kube.objects import Pod
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.state.node_ledger import NodeLedger
from aliquot.request.placement import PlacementError, read_placement

SEPARATOR = "::"


def slice_id(uuid: str, number: int) -> str:
    """The id of a card's n-th slice."""
    return f"{uuid}{SEPARATOR}{number}"


def card_of(slice_name: str) -> str:
    """The card in a slice's id."""
    return slice_name.partition(SEPARATOR)[0]


class SlicePreference:
    """Suggests slices."""

    def __init__(self, pods: Pods, ledger: NodeLedger) -> None:
        self._pods = pods
        self._ledger = ledger

    def __call__(self, available: Sequence[str], must: Sequence[str], size: int) -> Sequence[str]:
        """At most `size` ids of `available`, those of `must` first."""
        wanted = next(self._waiting(size), ())
        return choose(available, must, size, wanted)

    def _waiting(self, size: int) -> Iterator[tuple[str, ...]]:
        """The cards of containers that wait for this many, oldest pod first."""
        for pod in sorted(self._pods.placed(), key=lambda one: one.metadata.creation_timestamp or ""):
            if pod.metadata.uid not in self._ledger:
                yield from cards_of(pod, size)


def cards_of(pod: Pod, size: int) -> Iterator[tuple[str, ...]]:
    """The cards of each container of a pod that has this many."""
    try:
        placement = read_placement(pod.metadata.annotations, PLACEMENT_ANNOTATION, pod.metadata.uid)
    except PlacementError:
        return
    for container in placement.containers if placement else ():
        if len(container.cards) == size:
            yield tuple(share.uuid for share in container.cards)


def choose(available: Sequence[str], must: Sequence[str], size: int, wanted: Sequence[str]) -> list[str]:
    """`must`, then cards not taken yet: wanted ones first, then those with most free ids, then by name."""
    free: dict[str, list[str]] = defaultdict(list)
    for one in sorted(set(available) - set(must), reverse=True):
        free[card_of(one)].append(one)
    chosen = list(must)[:size]
    while len(chosen) < size and any(free.values()):
        taken = [card_of(one) for one in chosen]
        card = min(
            (uuid for uuid, ids in free.items() if ids),
            key=lambda uuid: (taken.count(uuid), uuid not in wanted, -len(free[uuid]), uuid),
        )
        chosen.append(free[card].pop())
    return chosen


def choose_any(available: Sequence[str], must: Sequence[str], size: int) -> Sequence[str]:
    """For MIG instances, which are all alike: `must`, then the first by name."""
    return [*must, *sorted(set(available) - set(must))][:size]
