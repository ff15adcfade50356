"""Reservations that kube-scheduler has forgotten, by a lost answer or a new start: nobody waits for them."""

from aliquot.api.pod_groups import PLUGINS, GroupKey
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.gang.pod_groups import Terms
from tests.unit.scheduler_ext.drill import placed, pod_in
from tests.unit.scheduler_ext.evicting import Evicting
from tests.unit.scheduler_ext.explain.test_held_places import with_cpu
from tests.unit.scheduler_ext.neighbours import Neighbours, waiter


def test_cpu_of_a_reservation_that_kube_scheduler_has_forgotten_stops_no_preemption() -> None:
    """It counts the CPU of those that it is binding itself, and of this one no more."""
    here = Neighbours()
    here.ledger.hosts.put_node("n1", HostShare(4000, 64 * 1024, 20))
    here.runs("low", "n1-a", 16)
    here.ledger.hosts.put_pod("low", "n1", HostShare(1000, 0, 1))
    assert here.place_of(waiter(8, cpu="3")) == ["n1"]
    assert here.victims(waiter(16, priority=100, cpu="2"), n1=["low"]) == {"n1": {"low"}}


def test_where_one_is_forgotten_the_place_is_held_for_whom_others_leave() -> None:
    """Without it nobody would be sure of the place, and a second set would leave another node."""
    here = Evicting("n1", "n2")
    for name, cores in {"n1": 4, "n2": 64}.items():
        here.ledger.hosts.put_node(name, HostShare(1000 * cores, 64 * 1024, 20))
    here.runs("low", "n1-a", 16)
    here.ledger.hosts.put_pod("low", "n1", HostShare(1000, 0, 1))
    here.runs("stays", "n1-b", 8, priority=500)
    here.runs("other", "n2-a", 16)
    here.runs("there", "n2-b", 16, priority=500)
    assert here.place_of(waiter(8, cpu="3"), "n1") == ["n1"]
    urgent = waiter(16, cpu="2")
    assert here.wants(urgent) == []
    assert here.victims(urgent, n1=["low"]) == {"n1": {"low"}}
    here.leaves("low")
    here.nominate(urgent, "n1")
    assert here.look(3) == []
    assert here.held(urgent) == "n1"


def test_what_a_group_has_reserved_is_not_forgotten() -> None:
    """kube-scheduler has not asked for the member yet, and will not find the CPU that another was evicted for."""
    here = Neighbours("n1", "n2")
    for name in here.nodes:
        here.ledger.hosts.put_node(name, HostShare(4000, 64 * 1024, 20))
        here.runs(f"low-{name}", f"{name}-a", 16)
        here.ledger.hosts.put_pod(f"low-{name}", name, HostShare(1000, 0, 1))
    group = [pod_in("train", limits={"gpu": "1", "gpu-mem": "12Gi"}) for _ in range(2)]
    for pod in group:
        pod.spec.containers[0].resources.limits["cpu"] = "3"
    here.gangs.put_terms(GroupKey("default", "train", PLUGINS), Terms(2, None))
    for pod in group:
        here.gangs.see(placed(pod))
    assert here.place_of(group[0])
    entry = here.ledger.entry(group[1].metadata.uid)
    assert entry is not None
    assert here.victims(waiter(16, cpu="2"), **{entry.node: [f"low-{entry.node}"]}) == {}


def test_one_for_which_others_have_left_is_not_given_up() -> None:
    """Its CPU is kept for it, whether kube-scheduler has heard of that or not."""
    here, first = with_cpu(cores=3)
    here.ends("low")
    assert here.wants(first) == ["n1"]
    urgent = waiter(8, priority=200, cpu="2")
    assert here.victims(urgent, n1=["other"]) == {}
    entry = here.ledger.entry(first.metadata.uid)
    assert entry is not None


def test_one_that_is_not_in_the_way_stays() -> None:
    """Without it the pod would not have CPU either, so kube-scheduler must count something else."""
    here = Neighbours()
    here.ledger.hosts.put_node("n1", HostShare(4000, 64 * 1024, 20))
    here.runs("low", "n1-a", 16)
    here.ledger.hosts.put_pod("web", "n1", HostShare(3000, 0, 0))
    reserved = waiter(8, cpu="1")
    assert here.place_of(reserved) == ["n1"]
    assert here.victims(waiter(16, cpu="2"), n1=["low"]) == {}
    assert here.ledger.entry(reserved.metadata.uid) is not None


def test_one_of_a_lower_priority_keeps_nobody_out() -> None:
    """Others have left for it; a pod of a higher priority would have its place, too."""
    here, first = with_cpu(cores=2)
    here.ends("low")
    assert here.wants(first) == ["n1"]
    assert here.wants(waiter(8, priority=(first.spec.priority or 0) + 1, cpu="1")) == ["n1"]


def test_a_strangers_is_no_reason_to_keep_others_from_a_node() -> None:
    """The pod that others have left for asks for no CPU at all."""
    here = Evicting("n1")
    here.ledger.hosts.put_node("n1", HostShare(4000, 64 * 1024, 20))
    here.runs("a", "n1-a", 16)
    here.runs("b", "n1-b", 8, priority=500)
    pod = waiter(16)
    here.wants(pod)
    assert here.look() == ["a"]
    here.ends("a")
    assert here.wants(pod) == ["n1"]
    assert here.wants(waiter(2, cpu="3")) == ["n1"]
    assert here.wants(waiter(2, cpu="2")) == ["n1"]
