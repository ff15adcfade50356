"""Places that are held for pods that wait: with the CPU that they need, for no longer than they can be had."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from aliquot.dialects.hami import HamiDialect
from aliquot.kube.objects import Node, Pod
from aliquot.request.host_resources import HostShare
from aliquot.request.placement_policy import Policy
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun, DryRunArgs
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes, KnownNodes
from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from tests.unit.scheduler_ext.evicting import GRACE_SECONDS, Evicting, dry_run
from tests.unit.scheduler_ext.neighbours import budget, waiter
from tests.unit.scheduler_ext.teams import quota
from tests.unit.scheduler_ext.world import World, WorldPod


@pytest.mark.parametrize("lowest", ["n1", "n2"])
def test_where_a_victim_of_kube_scheduler_does_not_end_another_leaves(lowest: str) -> None:
    """kube-scheduler evicts nobody again while a pod is leaving the node; the place is held until there is a better."""
    here = Evicting("n1", "n2")
    here.runs("stuck", "n1-a", 8)
    here.runs("on-n1", "n1-a", 8, priority=1 if lowest == "n1" else 3)
    here.runs("on-n2", "n2-a", 16, priority=2)
    for firm in ("n1-b", "n2-b"):
        here.runs(firm, firm, 16, priority=500)
    pod = waiter(8)
    here.wants(pod)
    assert "n1" in here.victims(pod, n1=None)
    here.leaves("stuck")
    here.nominate(pod, "n1")
    assert here.look(GRACE_SECONDS + int(OVERDUE_SECONDS)) == []
    assert here.held(pod) == "n1"
    assert here.look(20) == [f"on-{lowest}"]
    assert here.held(pod) == lowest
    here.ends(f"on-{lowest}")
    assert here.wants(pod) == [lowest]


@pytest.mark.parametrize(("guaranteed", "allowed"), [(8, 1), (0, 0), (0, 1)])
def test_no_place_is_held_that_only_a_pod_could_leave_that_nobody_evicts(
    guaranteed: int, allowed: int
) -> None:
    """One within its guarantee, for one that borrows, or one with a budget: the place would be held for ever."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(guaranteed, None, None)))
    here.budgets.put(budget("owner", allowed))
    here.runs("stuck", "n1-a", 4)
    here.runs("owned", "n1-a", 8, namespace="owner", priority=1)
    for firm, gib in {"n1-b": 16, "n2-a": 12, "n2-b": 12}.items():
        here.runs(firm, firm, gib, priority=500)
    pod = waiter(8)
    here.wants(pod)
    assert here.victims(pod, n1=None) == {"n1": {"stuck"}}
    here.leaves("stuck")
    here.nominate(pod, "n1")
    assert here.look() == []
    assert here.held(pod) == "n1"
    here.now += GRACE_SECONDS + OVERDUE_SECONDS
    may_go = allowed and not guaranteed
    assert here.look(20) == (["owned"] if may_go else [])
    assert here.held(pod) == ("n1" if may_go else "")


def with_cpu(cores: int) -> tuple[Evicting, Pod]:
    """A node of so many cores, of which two are kept for a pod that another leaves a card for."""
    here = Evicting("n1", "n2")
    for card in ("n2-a", "n2-b"):
        here.runs(card, card, 16, priority=500)
    here.ledger.hosts.put_node("n1", HostShare(1000 * cores, 64 * 1024, 20))
    here.runs("low", "n1-a", 16)
    here.runs("other", "n1-b", 8, priority=50)
    first = waiter(16, cpu="2")
    here.wants(first)
    assert here.look() == ["low"]
    assert here.held(first) == "n1"
    return here, first


@pytest.mark.parametrize("ends", ["the pod that leaves", "the pod that waits"])
def test_cpu_is_kept_for_whom_others_leave_a_card(ends: str) -> None:
    """kube-scheduler knows nothing of it; without CPU the card would be of no use, and the eviction in vain."""
    here, first = with_cpu(cores=2)
    second = waiter(8, cpu="1")
    assert here.wants(second) == []
    assert here.filter.reason_against(second, here.filter.request_of(second), ["n1"]) == "host_kept"
    assert not here.filter.would_place(second, here.filter.request_of(second), ["n1"])
    told = DryRun(here.filter, HypotheticalNodes(KnownNodes())).answer(
        DryRunArgs(Pod=second, NodeNames=("n1",))
    )
    assert (told.NodeNames, "CPU or memory" in str(told.FailedAndUnresolvableNodes)) == ([], True)
    if ends == "the pod that waits":
        here.ends(first.metadata.uid)
        assert here.wants(second) == ["n1"]
    else:
        assert here.wants(waiter(8)) == ["n1"], "which needs no CPU"
        here.ends("low")
        assert here.wants(first) == ["n1"]


def test_cpu_is_kept_for_a_pod_until_kube_scheduler_has_heard_of_its_place() -> None:
    """The answer may be lost: to kube-scheduler that CPU is free, and whoever got it would keep the pod out."""
    here, first = with_cpu(cores=2)
    here.ends("low")
    assert here.wants(first) == ["n1"]
    assert here.wants(waiter(8, cpu="1")) == []
    assert here.wants(waiter(8)) == ["n1"], "which needs no CPU"
    assert here.wants(first) == ["n1"]


def test_what_a_higher_pod_has_taken_is_awaited_no_longer() -> None:
    """One was leaving, and nobody had to for the pod that waited; another leaves for it now."""
    here = Evicting()
    here.runs("low", "n1-a", 16)
    here.runs("other", "n1-b", 16)
    here.leaves("low")
    pod = waiter(10, priority=10)
    here.wants(pod)
    assert here.look() == []
    assert here.held(pod) == "n1"
    here.ends("low")
    assert here.wants(waiter(16, priority=200)) == ["n1"]
    here.wants(pod)
    assert here.look(8) == ["other"]
    here.ends("other")
    assert here.wants(pod) == ["n1"]


def test_cpu_is_kept_from_nobody_of_a_higher_priority() -> None:
    """As with cards."""
    here, first = with_cpu(cores=2)
    assert here.wants(waiter(8, priority=200, cpu="1")) == ["n1"]
    here.ends("low")
    here.nominations.review()
    assert here.held(first) == "", "what is left of the CPU is not enough for it"


def test_cpu_that_is_kept_for_a_lower_pod_stops_no_preemption() -> None:
    """A pod of higher priority finds no other place, and gets the lower one's."""
    here, first = with_cpu(cores=2)
    here.runs("more", "n1-b", 8, priority=60)
    urgent = waiter(16, priority=200, cpu="1")
    assert here.wants(urgent) == []
    refused = here.filter.answer(FilterArgs(Pod=urgent, NodeNames=("n1",)))
    assert list(refused.FailedNodes or ()) == ["n1"], "kube-scheduler preempts nowhere else"
    here.look(2)
    assert here.held(urgent) == "n1"
    assert here.held(first) == ""


@pytest.mark.parametrize("cores", [3, 4])
def test_nobody_is_evicted_where_cpu_is_kept_for_others(cores: int) -> None:
    """The pod could not start beside the first one."""
    here, _ = with_cpu(cores)
    here.wants(waiter(12, cpu="2"))
    assert here.look(20) == (["low"] if cores == 3 else ["low", "other"])


def test_what_is_held_for_a_pod_that_waits_makes_no_borrower_of_one_that_runs() -> None:
    """The namespace is beyond its guarantee only once its other pod has started; then one of both may go."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("guest", "guest", guaranteed=(8, None, None)))
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    here.runs("within", "n1-a", 8, namespace="guest")
    for where in ("n1-b", "n2-a", "n2-b"):
        here.runs(where, where, 16, namespace="owner" if where == "n1-b" else "default", priority=1)
    more = waiter(16, namespace="guest")
    here.nominations.claim(more, here.filter.request_of(more), {"n2": ("n2-a",)})
    here.nominations.grant(more.metadata.uid, "n2")
    assert here.held(more) == "n2"
    here.wants(waiter(16, priority=0, namespace="owner"))
    assert "within" not in here.look(3)
    assert here.evictions


def two_on_a_card() -> tuple[Evicting, Pod, Pod]:
    """A card that one pod has left for the first, and that another has been told to leave for the second."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("stuck", "n1-a", 6)
    here.runs("low", "n1-a", 10)
    first, second = waiter(9), waiter(6)
    here.wants(first)
    assert here.look() == ["low"]
    here.wants(second)
    assert here.look() == ["low", "stuck"]
    here.ends("low")
    return here, first, second


def bind(here: Evicting, pod: Pod) -> None:
    """kube-scheduler has its pod bound to the node that it was named; BindError where that cannot be."""
    meta, world = pod.metadata, World()
    world.pods[meta.name] = WorldPod(pod)
    binder = Binder(world, here.ledger, Placer(here.ledger.table), quotas=here.quotas)
    asyncio.run(
        binder.bind(BindArgs(PodName=meta.name, PodNamespace=meta.namespace, PodUID=meta.uid, Node="n1"))
    )


def test_a_pod_has_its_place_at_once_when_those_have_gone_that_were_to_leave_it() -> None:
    """Others for whom somebody else has still to leave the same card wait for that one, and do not take it."""
    here, first, second = two_on_a_card()
    assert here.wants(second) == [], "it would be the first one's"
    assert dry_run(here, second) == []
    assert here.filter.would_place(first, here.filter.request_of(first), ["n1"])
    assert dry_run(here, first) == ["n1"]
    assert here.wants(first) == ["n1"]
    bind(here, first)
    assert here.held(second) == "n1"
    here.ends("stuck")
    assert here.wants(second) == ["n1"]
    bind(here, second)


@pytest.mark.parametrize("loss", ["a card", "slices"])
def test_a_place_that_is_none_any_more_is_nobodys(loss: str) -> None:
    """Whether it is lost before filter, or between filter and binding."""
    for asked in (False, True):
        here, first, _ = two_on_a_card()
        if asked:
            assert here.wants(first) == ["n1"]
        if loss == "a card":
            here.card_fails("n1-a")
        else:
            here.ledger.hosts.put_node("n1", HostShare(0, 0, 1))
        if not asked:
            assert not here.filter.would_place(first, here.filter.request_of(first), ["n1"])
            assert dry_run(here, first) == here.wants(first) == []
        else:
            with pytest.raises(BindError, match="no room on n1"):
                bind(here, first)


def test_a_place_on_a_node_that_serves_the_pods_own_words_itself_is_not_taken() -> None:
    """The other device plugin has come since the place is held."""
    here = Evicting()
    here.runs("low", "n1-a", 16)
    here.runs("firm", "n1-b", 16, priority=500)
    pod = waiter(16, **{"nvidia.com/gpu": "1"})
    here.wants(pod)
    assert here.look() == ["low"]
    here.ends("low")
    agents = ForeignPlugins((HamiDialect(),))
    after = replace(here.filter, foreign=agents)
    request = here.filter.request_of(pod)
    assert after.own_place(pod, request, ["n1"]) is not None
    meta, told = {"name": "n1"}, {"allocatable": {"nvidia.com/gpu": "8"}}
    agents.put_node(msgspec.convert({"metadata": meta, "status": told}, Node))
    assert after.own_place(pod, request, ["n1"]) is None


@pytest.mark.parametrize("own", [True, False])
def test_for_ones_own_place_it_is_nobodys_turn(own: bool) -> None:
    """Others have left for it: a pod whose namespace has less does not go first there, as it does elsewhere."""
    here, first, _ = two_on_a_card()
    here.ends("stays")
    there = waiter(1, namespace="poor")
    here.waiting.refused(there, here.filter.request_of(there), ("n1",), "memory")
    pod = first if own else waiter(4)
    assert here.filter.would_place(pod, here.filter.request_of(pod), ["n1"]) is own
    assert here.wants(pod) == (["n1"] if own else [])


def test_the_place_is_held_that_the_plans_victims_leave() -> None:
    """Rather than one that others would have to leave, though a pod of lower priority loses its own by it."""
    here = Evicting()
    here.runs("leaving", "n1-a", 8)
    here.runs("low", "n1-a", 8)
    here.runs("higher", "n1-b", 16, priority=5)
    here.leaves("leaving")
    lower, urgent = waiter(8, priority=4), waiter(16)
    here.wants(lower)
    here.look()
    assert here.held(lower) == "n1"
    here.wants(urgent)
    assert here.look() == ["low"]
    entry = here.ledger.entry(urgent.metadata.uid)
    assert entry is not None
    assert set(entry.charges) == {"n1-a"}
    assert here.held(lower) == ""
    here.ends("low")
    here.ends("leaving")
    assert here.wants(urgent) == ["n1"]


def test_a_place_that_is_held_is_not_bound_while_its_victim_is_there() -> None:
    """kube-scheduler may bind by what filter said before: what is held has not been found free yet."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("low", "n1-a", 16)
    pod = waiter(16)
    here.wants(pod)
    assert here.look() == ["low"]
    with pytest.raises(BindError, match="no room on n1"):
        bind(here, pod)
    assert all(card.used_mib <= 16 * 1024 for card in here.ledger.table.cards("n1"))


@pytest.mark.parametrize("priority", [100, 200])
def test_who_comes_later_waits_for_those_that_have_to_leave_but_for_a_higher_one(priority: int) -> None:
    """What was evicted for the higher one is not for the lower one to take, however early it was there."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("firm", "n1-a", 4, priority=500)
    here.runs("slow", "n1-a", 4)
    here.runs("quick", "n1-a", 8, priority=1)
    first, second = waiter(4), waiter(8, priority=priority)
    here.wants(first)
    assert here.look() == ["slow"]
    here.wants(second)
    assert here.look() == ["slow", "quick"]
    here.ends("quick")
    assert here.wants(first) == (["n1"] if priority == 100 else [])
    assert here.wants(second) == (["n1"] if priority == 200 else [])


def test_who_is_to_have_what_nobody_has_been_told_to_leave_does_not_take_what_others_leave() -> None:
    """kube-scheduler has nominated it, and its victim may not have been evicted at all: that place is not its own."""
    here = Evicting()
    here.runs("stays", "n1-b", 16, priority=500)
    here.runs("low", "n1-a", 8)
    here.runs("leaving", "n1-a", 8)
    here.leaves("leaving")
    expects, nominated = waiter(8), waiter(8)
    here.wants(expects)
    here.look()
    here.wants(nominated)
    here.nominate(nominated, "n1")
    assert (here.held(expects), here.held(nominated)) == ("n1", "n1")
    assert here.nominations.kept_on(nominated.metadata.uid) == ""
    here.ends("leaving")
    assert here.wants(nominated) == []
    assert here.wants(expects) == ["n1"]


def test_cpu_is_counted_once_for_a_nominated_pod_whose_place_is_held() -> None:
    """The ledger has it already."""
    here, first = with_cpu(cores=4)
    here.nominate(first, "n1")
    assert here.held(first) == "n1"
    assert here.filter.offered_to(waiter(8), ["n1"], HostShare(2000, 0, 1)) == ["n1"]
    assert here.filter.offered_to(waiter(8), ["n1"], HostShare(2001, 0, 1)) == []


def test_a_higher_pod_that_gets_nothing_changes_nothing() -> None:
    """What is held for others is where it was, and still their own."""
    here = Evicting()
    here.candidates.card_policy = Policy.SPREAD
    here.runs("firm", "n1-b", 6, priority=500)
    here.runs("small", "n1-a", 16)
    here.runs("large", "n1-b", 10, priority=1)
    lower, higher = waiter(8, priority=150, namespace="b"), waiter(16, priority=160, namespace="a")
    for pod, victim in ((lower, "large"), (higher, "small")):
        here.wants(pod)
        here.nominations.claim(pod, here.filter.request_of(pod), {"n1": (victim,)})
        here.nominations.grant(pod.metadata.uid, "n1")
        here.leaves(victim)
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None)))
    here.nominations.review()
    before = [here.ledger.entry(pod.metadata.uid) for pod in (lower, higher)]
    assert all(before)
    assert here.wants(waiter(16, priority=170)) == []
    after = [here.ledger.entry(pod.metadata.uid) for pod in (lower, higher)]
    assert [entry and entry.placement for entry in after] == [entry and entry.placement for entry in before]
    assert all(here.nominations.kept_on(pod.metadata.uid) == "n1" for pod in (lower, higher))
