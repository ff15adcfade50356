"""A plan stands on a node that takes pods and that kube-scheduler offers, or may not have offered again yet."""

import asyncio

import pytest

from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.controllers.evictor import OFFER_SECONDS
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from tests.unit.scheduler_ext.evicting import GRACE_SECONDS, Evicting
from tests.unit.scheduler_ext.neighbours import waiter


def closes(here: Evicting, name: str, *, closed: bool = True) -> None:
    """A node is cordoned, or its kubelet is not ready any more."""
    here.ledger.hosts.put_node(name, HostShare(0, 0, 20), closed=closed)


def test_nobody_leaves_a_node_that_takes_no_pods() -> None:
    """It was offered before it was cordoned: its pod would leave in vain."""
    here = Evicting("n1", "n2")
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16, priority=1 if where.startswith("n1") else 2)
    pod = waiter(16)
    assert here.wants(pod) == []
    closes(here, "n1")
    closes(here, "n2")
    assert here.look(3) == []
    closes(here, "n2", closed=False)
    (victim,) = here.look(3)
    assert victim.startswith("n2")
    assert here.held(pod) == "n2"


def test_a_plan_on_a_node_that_takes_no_pods_any_more_is_given_up() -> None:
    """Another node's pod leaves, and what was left of the plan does not."""
    here = Evicting("n1", "n2")
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, priority=1)
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 16, priority=2)
    pod = waiter(16)
    assert here.wants(pod) == []
    (first,) = here.look()
    assert first.startswith("n1")
    closes(here, "n1")
    evicted = here.look(4)
    assert [uid[:2] for uid in evicted] == ["n1", "n2"]
    assert here.held(pod) == "n2"


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("then", ["offered", "not offered", "not asked"])
def test_a_node_that_lacks_cpu_until_victims_end_need_not_be_offered_before(then: str, lags: bool) -> None:
    """kube-scheduler counts their CPU until they have gone, and offers the node no sooner."""
    here = Evicting("n1", "n2")
    here.watch_lags = lags
    for where in ("n1-a", "n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16, priority=500 if where != "n1-a" else 0)
    pod = waiter(16)
    here.wants(pod)
    assert here.look() == ["n1-a"]
    here.nodes = ("n2",)
    assert here.wants(pod) == []
    for _ in range(3):
        asyncio.run(here.evictor.look())
        assert here.held(pod) == "n1"
        here.now += 5
    here.ends("n1-a")
    asyncio.run(here.evictor.look())
    assert here.held(pod) == "n1"
    here.now += OFFER_SECONDS if then == "not asked" else 1
    here.nodes = ("n1", "n2") if then == "offered" else ("n2",)
    if then != "not asked":
        assert here.wants(pod) == (["n1"] if then == "offered" else [])
    asyncio.run(here.evictor.look())
    assert here.held(pod) == ""
    assert here.ledger.accounts.free("").memory_mib == (0 if then == "offered" else 16 * 1024)


def test_a_plan_whose_victim_does_not_end_is_not_waited_for_where_it_is_not_offered() -> None:
    """Though there is room on the cards by now: kube-scheduler knows what else the pod lacks there."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("third", "n1-a", 8, priority=500)
    here.runs("stuck", "n1-a", 8)
    pod = waiter(8)
    here.wants(pod)
    assert here.look() == ["stuck"]
    here.ends("third")
    here.nodes = ("n2",)
    here.wants(pod)
    asyncio.run(here.evictor.look())
    assert here.held(pod) == "n1"
    here.now += GRACE_SECONDS + OVERDUE_SECONDS
    asyncio.run(here.evictor.look())
    assert here.held(pod) == ""
