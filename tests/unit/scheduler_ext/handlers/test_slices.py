"""Nobody is placed beyond the slices that a node's kubelet has, and who waits for some is woken when they come."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aliquot.kube.objects import Node, Pod
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import read_pod_request
from aliquot.scheduler_ext.controllers.late_placement import LatePlacements
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.handlers.test_bind import Bench
from tests.unit.scheduler_ext.neighbours import Neighbours, waiter
from tests.unit.scheduler_ext.world import World, WorldPod


def offer(here: Neighbours | Bench, name: str, slices: int) -> None:
    """A kubelet says how many slices it has."""
    here.ledger.hosts.put_node(name, HostShare(64000, 1 << 20, slices))


def ask(here: Neighbours, pod: Pod, *nodes: str) -> FilterResult:
    """What filter answers."""
    return here.filter.answer(FilterArgs(Pod=pod, NodeNames=nodes or here.nodes))


def test_of_two_nodes_the_one_with_slices_is_taken():
    """However much better the other's cards would suit."""
    here = Neighbours("n1", "n2")
    here.runs("a", "n1-a", 8)
    offer(here, "n1", 1)
    assert here.place_of(waiter(8)) == ["n2"]
    here.ends("a")
    offer(here, "n2", 0)
    assert here.place_of(waiter(8)) == ["n1"]


@pytest.mark.parametrize("uid", ["w", "other"])
def test_a_reservation_counts_once(uid: str):
    """It is replaced when its pod is filtered again, and in the way of every other."""
    here = Neighbours()
    offer(here, "n1", 1)
    first, second = (msgspec.structs.replace(waiter(1).metadata, uid=name) for name in ("w", uid))
    pod = waiter(1)
    assert here.place_of(msgspec.structs.replace(pod, metadata=first)) == ["n1"]
    assert here.place_of(msgspec.structs.replace(pod, metadata=second)) == (["n1"] if uid == "w" else [])


def test_evicting_helps_where_others_have_the_slices_and_not_where_the_kubelet_has_none():
    """kube-scheduler tries preemption on the first kind of nodes alone."""
    here = Neighbours("taken", "silent")
    here.runs("a", "taken-a", 1)
    offer(here, "taken", 1)
    offer(here, "silent", 0)
    two = waiter(1, **{"aliquot.dev/gpu": "2"})
    answer = ask(here, waiter(1))
    away = "the node's Aliquot agent is away, its kubelet offers no slice"
    assert answer.FailedNodes == {"taken": "no slice left on the node (agent.slicesPerCard bounds them)"}
    assert answer.FailedAndUnresolvableNodes == {"silent": away}
    assert ask(here, two).FailedAndUnresolvableNodes == {
        "taken": "node offers too few slices (agent.slicesPerCard bounds them)",
        "silent": away,
    }


def test_whoever_has_to_leave_for_slices_is_among_the_victims():
    """The one who goes most gladly, beside those who have the cards; nobody where all together have too few."""
    here = Neighbours()
    here.runs("big", "n1-a", 16)
    here.runs("young", "n1-b", 12, priority=1, second=9)
    here.runs("old", "n1-b", 1, priority=1)
    offer(here, "n1", 3)
    assert here.victims(waiter(2)) == {"n1": {"big"}}
    offer(here, "n1", 2)
    assert here.victims(waiter(2)) == {"n1": {"big", "young"}}
    assert here.victims(waiter(2), n1=["old"]) == {"n1": {"old", "big"}}
    offer(here, "n1", 0)
    assert here.victims(waiter(2)) == {}


def test_what_a_kubelet_has_lost_is_noticed_when_the_pod_is_bound():
    """It would fail the pod for good; when it has its slices again the same reservation does."""
    bench = Bench()
    pod = bench.pod("p")
    assert bench.filter(pod, "n1").NodeNames == ["n1"]
    offer(bench, "n1", 0)
    assert "no room on n1 any more" in bench.bind(pod, "n1")
    offer(bench, "n1", 1)
    assert bench.bind(pod, "n1") == ""


def test_pods_are_looked_at_again_when_a_kubelet_offers_other_slices():
    """And not at every heartbeat of a node."""
    here = Neighbours()
    offered = {"aliquot.dev/gpu": "0", "cpu": "8"}
    node = msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": offered}}, Node)
    here.feed._put_node(node)
    pod = waiter(8)
    assert ask(here, pod).FailedAndUnresolvableNodes
    here.waiting.changed.clear()
    here.feed._change_node(node, node)
    assert not here.waiting.changed.is_set()
    offered["aliquot.dev/gpu"] = "10"
    fresh = msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": offered}}, Node)
    here.feed._change_node(node, fresh)
    assert here.waiting.changed.is_set()
    assert here.filter.would_place(pod, read_pod_request(pod), ["n1"])


def test_a_pod_that_another_scheduler_has_bound_is_not_in_its_own_way():
    """It has the kubelet's last slice already, and is given its cards there."""
    here = Neighbours()
    offer(here, "n1", 1)
    pod = waiter(8)
    world = World()
    world.pods[pod.metadata.name] = WorldPod(pod, node="n1")
    late = LatePlacements(world, here.ledger, read_pod_request, ["volcano"])
    late.place_by(here.filter)
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"nodeName": "n1", "schedulerName": "volcano"}
    bound = msgspec.convert(body, PlacedPod)
    assert late.takes(bound, None)
    here.ledger.hosts.put_pod(pod.metadata.uid, "n1", bound.spec.host)
    assert asyncio.run(late.write())
    assert here.place_of(waiter(1)) == []
