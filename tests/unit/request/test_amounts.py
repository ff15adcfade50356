"""What quotas count of a pod: amounts times cards, and the most of all moments of its life."""

import pytest

from aliquot.request.amounts import Amounts, asked, placed
from aliquot.request.placement import CardShare, ContainerPlacement, Placement
from aliquot.request.pod_request import ContainerKind, ContainerRequest, PodRequest, SliceRequest

INIT, SIDECAR, REGULAR = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.REGULAR
GIB = 1024

Parts = list[tuple[ContainerKind, int, int, int]]
"""Of each container: when it runs, GiB and percent on each card, cards."""

PODS: dict[str, tuple[Parts, Amounts]] = {
    "a container counts on every card it has": ([(REGULAR, 8, 30, 2)], Amounts(16 * GIB, 60, 2)),
    "regular containers run together": ([(REGULAR, 8, 30, 1), (REGULAR, 4, 0, 1)], Amounts(12 * GIB, 30, 2)),
    "an init container runs before them": ([(INIT, 8, 30, 1), (REGULAR, 4, 50, 1)], Amounts(8 * GIB, 50, 1)),
    "init containers run one after the other": (
        [(INIT, 8, 0, 1), (INIT, 6, 0, 3), (REGULAR, 1, 0, 1)],
        Amounts(18 * GIB, 0, 3),
    ),
    "a sidecar runs beside what comes after it": (
        [(INIT, 9, 0, 1), (SIDECAR, 2, 10, 1), (INIT, 8, 0, 1), (REGULAR, 4, 50, 1)],
        Amounts(10 * GIB, 60, 2),
    ),
    "a pod without slices counts nothing": ([], Amounts()),
}


@pytest.mark.parametrize(("parts", "whole"), PODS.values(), ids=PODS.keys())
def test_a_pod_counts_as_kubernetes_counts(parts: Parts, whole: Amounts) -> None:
    """Asked or placed, wherever its cards are."""
    containers = tuple(
        ContainerRequest(f"c{n}", kind, SliceRequest(cards, gib * GIB, None, cores))
        for n, (kind, gib, cores, cards) in enumerate(parts)
    )
    shares = tuple(
        ContainerPlacement(
            f"c{n}", kind, tuple(CardShare(f"{n}-{i}", gib * GIB, cores) for i in range(cards))
        )
        for n, (kind, gib, cores, cards) in enumerate(parts)
    )
    assert asked(PodRequest("ns", "p", "uid", containers), 0) == whole
    assert placed(Placement("uid", "node", shares)) == whole


def test_a_percentage_is_one_of_the_card() -> None:
    """Rounded down to MiB on each card, as placement does."""
    half = ContainerRequest("c", REGULAR, SliceRequest(2, None, 33, 0))
    assert asked(PodRequest("ns", "p", "uid", (half,)), 1000) == Amounts(660, 0, 2)


def test_only_cards_that_count_are_counted() -> None:
    """The cards of a pool, for a quota of that pool."""
    shares = (CardShare("a", 100, 10), CardShare("b", 200, 20))
    placement = Placement("uid", "node", (ContainerPlacement("c", REGULAR, shares),))
    assert placed(placement, {"b"}.__contains__) == Amounts(200, 20, 1)
