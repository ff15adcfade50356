"""What all parts of the extender have in common: a change of one wakes the pods that wait for it."""

import pytest

from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.cluster_state import ClusterState
from aliquot.scheduler_ext.options import parse_arguments
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota

HOST = HostShare(4000, 8000, 10)


@pytest.fixture(name="memory")
def compose() -> ClusterState:
    """As the process begins, with a node that is cordoned."""
    memory = ClusterState.of(parse_arguments(["--port", "0"]))
    memory.ledger.hosts.put_node("n1", HOST, closed=True)
    memory.ledger.put_node("n1", node(card("n1-a")))
    return memory


def wakes(memory: ClusterState, *, closed: bool) -> bool:
    """Whether pods are looked at again once the node takes pods, or takes none."""
    before = memory.waiting.changes
    memory.ledger.hosts.put_node("n1", HOST, closed=closed)
    return memory.waiting.changes > before


def test_a_node_that_takes_pods_again_wakes_those_that_a_guarantee_has_kept_out(memory: ClusterState) -> None:
    """What is free there may be lent now."""
    memory.quotas.put(quota("owner", "owner", guaranteed=(8, None, None)))
    assert wakes(memory, closed=False)


@pytest.mark.parametrize(("per_minute", "lent"), [("10", True), ("0", False)])
def test_what_reclaim_gives_back_is_lent_where_anybody_is_evicted(per_minute: str, lent: bool) -> None:
    """By the flag of the process."""
    memory = ClusterState.of(parse_arguments(["--port", "0", "--reclaims-per-minute", per_minute]))
    memory.quotas.put(quota("owner", "owner", guaranteed=(8, None, None), reclaim=True))
    assert [bound.lends for _, bound, _ in memory.quotas.ours()] == [lent]


def test_without_quotas_it_wakes_nobody(memory: ClusterState) -> None:
    """kube-scheduler, which sees the node too, asks for whom it kept away."""
    assert not wakes(memory, closed=False)


def test_cards_and_quotas_that_change_wake_those_that_wait(memory: ClusterState) -> None:
    """A card more, and a quota that says something else."""
    before = memory.waiting.changes
    memory.ledger.put_node("n1", node(card("n1-a"), card("n1-b")))
    between = memory.waiting.changes
    memory.quotas.put(quota("owner", "owner", limit=(8, None, None)))
    assert before < between < memory.waiting.changes
