"""What kube-scheduler nominates: how long a place is held for it, and when the nomination is ended."""

import msgspec
import pytest

from aliquot.kube.objects import PodStatus
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from tests.unit.scheduler_ext.evicting import Evicting
from tests.unit.scheduler_ext.neighbours import waiter
from tests.unit.scheduler_ext.placing import node_object


@pytest.mark.parametrize("filters", [True, False])
def test_a_nomination_whose_card_has_failed_is_ended(*, filters: bool) -> None:
    """kube-scheduler keeps CPU of the node for the pod while it is nominated, and would nominate it for ever.

    Where every node lacks CPU it asks filter for none, and preempt alone.
    """
    here = Evicting()
    here.runs("a", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    pod = waiter(16)
    here.stored[pod.metadata.name] = pod
    if filters:
        here.wants(pod)
    assert here.victims(pod, n1=None) == {"n1": {"a"}}
    here.leaves("a")
    here.nominates(pod, "n1")
    here.look()
    here.ends("a")
    here.card_fails("n1-a")
    here.look(20)
    assert here.stored[pod.metadata.name].status.nominated_node_name == "n1", "the card may recover at once"
    here.look(20)
    assert here.stored[pod.metadata.name].status.nominated_node_name == ""


def test_room_on_a_node_that_takes_no_pods_is_awaited_for_a_while() -> None:
    """What others leave there is of no use to the pod, which has somebody evicted elsewhere then."""
    here = Evicting("n1", "n2")
    for name in here.nodes:
        here.runs(f"{name} firm", f"{name}-b", 16, priority=500)
    here.runs("first", "n1-a", 16)
    here.runs("second", "n2-a", 16)
    here.leaves("first")
    pod = waiter(16)
    here.wants(pod)
    assert (here.look(2), here.held(pod)) == ([], "n1")
    here.feed.put_host(node_object("n1", ready="Unknown"))
    here.ends("first")
    assert (here.look(2), here.held(pod)) == ([], "n1")
    here.now += OVERDUE_SECONDS
    here.wants(pod, "n2")
    assert (here.look(2), here.held(pod)) == (["second"], "n2")


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_nomination_for_a_node_that_takes_no_pods_keeps_nobody_waiting(*, elsewhere: bool) -> None:
    """Though its place there is free: the pod has somebody evicted elsewhere, or its nomination is ended."""
    here = Evicting("n1", "n2")
    for name in here.nodes:
        here.runs(f"{name} firm", f"{name}-b", 16, priority=500)
    here.runs("first", "n1-a", 16)
    here.runs("second", "n2-a", 16, priority=1 if elsewhere else 500)
    pod = waiter(16)
    here.wants(pod)
    assert here.victims(pod, n1=None) == {"n1": {"first"}}
    here.leaves("first")
    here.nominates(pod, "n1")
    here.feed.put_host(node_object("n1", cordoned=True))
    here.ends("first")
    assert (here.look(20), here.held(pod)) == ([], "n1")
    here.now += OVERDUE_SECONDS
    here.wants(pod, "n2")
    assert (here.look(3), here.held(pod)) == ((["second"], "n2") if elsewhere else ([], ""))
    assert here.stored[pod.metadata.name].status.nominated_node_name == ("n1" if elsewhere else "")


def test_a_nomination_that_is_newer_than_what_is_known_stands() -> None:
    """The watch may lag behind."""
    here = Evicting("n1", "n2")
    here.runs("a", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    pod = waiter(16)
    here.nodes = ("n1",)
    here.wants(pod)
    here.nominates(pod, "n1")
    here.card_fails("n1-a")
    here.now += OVERDUE_SECONDS
    here.watch_lags = True
    here.nominates(pod, "n2")
    here.look(3)
    assert here.stored[pod.metadata.name].status.nominated_node_name == "n2"


@pytest.mark.parametrize("ends", [True, False])
def test_a_nomination_that_the_watch_has_not_shown_yet_holds_the_place_for_a_while(ends: bool) -> None:
    """kube-scheduler asks with it; its victim has gone, which the watch has not shown, either."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("low", "n1-a", 16)
    pod, lower = waiter(16), waiter(16, priority=1)
    here.wants(pod)
    assert here.victims(pod, n1=None) == {"n1": {"low"}}
    nominated = msgspec.structs.replace(pod, status=PodStatus(nominated_node_name="n1"))
    assert here.wants(nominated) == []
    assert here.held(pod) == "n1"
    if ends:
        here.ends("low")
        assert here.wants(lower) == []
        assert here.wants(pod) == ["n1"]
    else:
        here.now += OVERDUE_SECONDS
        here.nominations.review()
        assert here.held(pod) == "", "it may have been outdated"


def test_a_nomination_that_the_watch_has_shown_holds_the_place_until_it_ends() -> None:
    """However often kube-scheduler has asked with it; nobody had been told to leave."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("low", "n1-a", 16)
    pod = waiter(16)
    here.wants(pod)
    here.victims(pod, n1=None)
    here.nominate(pod, "n1")
    assert here.wants(msgspec.structs.replace(pod, status=PodStatus(nominated_node_name="n1"))) == []
    assert here.held(pod) == "n1"
    here.nominate(pod, "")
    assert here.held(pod) == ""
