"""What may be promised of a card that is overcommitted: guaranteed memory never, all memory up to the pool's ratio."""

from dataclasses import replace

import pytest

from aliquot.crds.gpu_pool import PoolSpec
from aliquot.request.placement_policy import Policy
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.feasibility import Feasibility
from aliquot.scheduler_ext.cards.fit import fit
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import GIB, card, node, part, pod

POOL = PoolSpec(memory_percent=150, core_percent=200)


def ask(uid: str, gib: float, burst: bool, cores: int = 0) -> PodRequest:
    """A pod of one slice of this class."""
    return pod(replace(part(gib, cores), burst=burst), uid=uid)


def placed(ledger: Ledger, request: PodRequest) -> bool:
    """Whether a pod finds room, alone and among all nodes; it then has it."""
    placement = fit(request, "n1", ledger.table.cards("n1"), Policy.BINPACK)
    (container,) = request.containers
    assert container.slice is not None
    room = Feasibility(ledger.table, container.slice)
    assert bool(room.enough(room.fits).any()) is bool(placement), "vectors and search agree"
    if placement:
        ledger.reserve(request, placement)
    return bool(placement)


@pytest.fixture
def ledger() -> Ledger:
    """One card of 16 GiB, of which 24 may be promised."""
    made = Ledger(lambda: 0.0)
    made.put_node("n1", node(card("a")), lambda _: POOL)
    return made


def test_burst_goes_beyond_the_card_and_guaranteed_does_not(ledger: Ledger):
    """To the last MiB of both."""
    assert placed(ledger, ask("g1", 10, burst=False))
    assert not placed(ledger, ask("g2", 7, burst=False))
    assert placed(ledger, ask("b1", 12, burst=True))
    assert not placed(ledger, ask("b2", 2 + 1 / GIB, burst=True))
    assert placed(ledger, ask("b2", 2, burst=True))
    assert not placed(ledger, ask("g3", 1, burst=False)), "all that may be promised is"


def test_burst_leaves_guaranteed_its_own(ledger: Ledger):
    """A card full of burst pods still takes what it can guarantee, within the ratio."""
    assert placed(ledger, ask("b1", 16, burst=True))
    assert placed(ledger, ask("g1", 8, burst=False))
    assert not placed(ledger, ask("g2", 1, burst=False))


def test_burst_comes_to_a_card_that_is_held_for_another_while_pods_leave_it(ledger: Ledger):
    """More is guaranteed for a while than the card has; what the ratio leaves is open to burst pods all the same."""
    waiting = ask("waiting", 10, burst=False)
    placement = fit(waiting, "n1", ledger.table.cards("n1"), Policy.BINPACK)
    assert placement is not None
    assert placed(ledger, ask("leaving", 10, burst=False))
    ledger.hold(waiting, placement)
    assert not placed(ledger, ask("g", 1, burst=False))
    assert placed(ledger, ask("b1", 3, burst=True))
    assert not placed(ledger, ask("b2", 2, burst=True))


def test_no_burst_slice_is_larger_than_its_card(ledger: Ledger):
    """It could never be granted whole."""
    assert not placed(ledger, ask("b1", 17, burst=True))


def test_without_a_ratio_burst_is_like_any_other():
    """A pool that says nothing promises nothing twice."""
    ledger = Ledger(lambda: 0.0)
    ledger.put_node("n1", node(card("a")))
    assert placed(ledger, ask("b1", 10, burst=True))
    assert not placed(ledger, ask("g1", 7, burst=False))
    assert not placed(ledger, ask("b2", 7, burst=True))


def test_compute_time_follows_its_own_ratio(ledger: Ledger):
    """Twice the time of a card may be promised."""
    assert placed(ledger, ask("p1", 1, burst=False, cores=100))
    assert placed(ledger, ask("p2", 1, burst=False, cores=100))
    assert not placed(ledger, ask("p3", 1, burst=False, cores=1))


def test_what_goes_leaves_both_sums(ledger: Ledger):
    """Released burst memory is room for all."""
    assert placed(ledger, ask("b1", 16, burst=True))
    assert placed(ledger, ask("b2", 8, burst=True))
    ledger.release("b1")
    assert placed(ledger, ask("g1", 16, burst=False))
    (state,) = ledger.table.cards("n1")
    assert (state.used_mib, state.burst_mib) == (24 * GIB, 8 * GIB)
