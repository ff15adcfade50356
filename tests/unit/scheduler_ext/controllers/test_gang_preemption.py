"""Groups that wait have pods evicted for all members that have to start at once, or nobody."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aliquot.kube.objects import Pod
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.cards.card_table import PLENTY
from aliquot.scheduler_ext.controllers.gang_reasons import GangReclaim
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from tests.unit.scheduler_ext.contended import PATIENCE, Contended
from tests.unit.scheduler_ext.controllers.test_incomplete_gangs import names
from tests.unit.scheduler_ext.drill import NODES, pod_in
from tests.unit.scheduler_ext.neighbours import budget
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota


def test_as_many_leave_as_the_group_needs_and_it_starts_together():
    """While they leave nobody of the same priority gets what they leave, nor while some of them have left."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 3)
    assert field.rounds(PATIENCE - 1) == []
    assert len(field.rounds()) == 3
    gone = field.leaving(others)
    assert field.held(group) == 3
    for pod in gone[:2]:
        field.leave(pod)
        rival = pod_in("", priority=100)
        assert not field.where(rival)
        assert not any(field.where(member) for member in group)
        assert field.rounds() == []
        assert field.held(group) == 3
    field.leave(gone[2])
    assert not field.where(pod_in("", priority=100))
    assert all(field.where(pod) for pod in group)
    assert asyncio.run(field.bind_all(*group)) == [""] * 3
    assert field.rounds() == []


def test_a_member_takes_the_place_that_is_held_for_another():
    """It is asked for last and placed first; the group starts with it, and needs no more."""
    field = Contended()
    others = field.others(8, 0)
    group = field.group("train", 3, needs=2, priority=100)
    assert not any(field.where(pod) for pod in group[1:])
    assert len(field.rounds()) == 2
    assert field.held(group[1:]) == 2
    for pod in field.leaving(others):
        field.leave(pod)
    assert field.where(group[0])
    assert field.where(group[1])
    assert asyncio.run(field.bind_all(*group)) == ["", ""]


def test_a_group_gets_a_node_whose_slices_are_all_held_for_it():
    """kube-scheduler offers a node without a slice left to no other pod."""
    field = Contended()
    for name in NODES:
        field.ledger.hosts.put_node(name, HostShare(PLENTY, PLENTY, 4))
    others = field.others(8, 0)
    limits = {"gpu": "1", "gpu-mem": "16Gi"}
    group = [pod_in("train", priority=100, limits=limits) for _ in range(8)]
    field.needs("train", 8)
    field.create(*group)
    assert not any(field.where(pod) for pod in group)
    assert len(field.rounds()) == 8
    for pod in field.leaving(others):
        field.leave(pod)
    assert all(field.where(pod) for pod in group)


def test_nobody_leaves_for_a_part_of_a_group():
    """Four of five would fit."""
    field = Contended()
    field.others(4, 0)
    field.others(4, 100)
    field.waits("train", 5)
    assert field.rounds() == []
    field.waits("other", 4)
    assert len(field.rounds()) == 4


def test_a_group_that_nobody_could_help_is_looked_at_soon_after_a_change():
    """However long it has waited; while nothing changes it is not looked at."""
    field = Contended()
    equals = field.others(8, 100)
    field.waits("train", 2)
    for _ in range(20):
        assert field.rounds() == []
    for pod in equals[:2]:
        field.leave(pod)
        lower = pod_in("", priority=99)
        field.create(lower)
        assert asyncio.run(field.bind(lower, field.where(lower))) == ""
        field.show(lower)
    assert len(field.rounds()) == 2


def test_whoever_could_stay_stays():
    """Two cards are free, and of those in use the lowest priority's become free."""
    field = Contended()
    lowest = field.others(2, 1)
    field.others(4, 2)
    field.waits("train", 4)
    assert field.rounds() == names(lowest)


def test_pods_that_are_leaving_are_enough():
    """Their cards are held for the group, and nobody is evicted."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 2)
    for pod in others[:2]:
        field.show(pod, leaving=True)
    assert field.rounds() == []
    assert field.held(group) == 2
    for pod in others[:2]:
        field.leave(pod)
    assert all(field.where(pod) for pod in group)


def test_groups_go_whole_and_after_pods_that_go_alone():
    """A group of three is evicted for one that needs six, and not for one that needs five."""
    field = Contended()
    alone = field.others(5, 0)
    idle = field.run_group("idle", 3, minute=9)
    field.waits("train", 5)
    assert field.rounds() == names(alone)
    field = Contended()
    alone = field.others(5, 0)
    idle = field.run_group("idle", 3, minute=9)
    field.waits("train", 6)
    assert set(names(idle)) < set(field.rounds())


def test_of_the_same_priority_nobody_goes():
    """A group's priority is that of its lowest member."""
    field = Contended()
    field.others(8, 100)
    pods = [pod_in("train", priority=priority) for priority in (100, 1000)]
    field.needs("train", 2)
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    assert field.rounds() == []


def test_nobody_goes_for_a_group_with_a_member_that_never_preempts():
    """Whatever the watch and the calls say in between: the watch does not show the policy."""
    field = Contended()
    field.others(8, 0)
    body = msgspec.to_builtins(pod_in("train", priority=100))
    body["spec"]["preemptionPolicy"] = "Never"
    pods = [pod_in("train", priority=100), msgspec.convert(body, Pod)]
    field.needs("train", 2)
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    for pod in pods:
        field.see(pod)
    assert field.rounds() == []


def test_a_group_that_borrows_takes_no_quota_below_its_guarantee():
    """Its pod of four cards has borrowed one, and three are guaranteed: without it the owner would have none."""
    field = Contended()
    field.quotas.put(quota("default", "default", guaranteed=(None, None, 3), reclaim=True))
    large = pod_in("", limits={"gpu": "4", "gpu-mem": "16Gi"})
    field.create(large)
    assert asyncio.run(field.bind(large, field.where(large))) == ""
    field.show(large)
    pods = [pod_in("train", namespace="guest", priority=1000) for _ in range(5)]
    field.needs("train", 5, namespace="guest")
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    assert field.rounds() == []
    field.quotas.drop("default")
    assert field.rounds(2 * PATIENCE) == [large.metadata.name]


def test_those_leave_without_whom_more_is_free_where_others_would_open_a_guarantee():
    """Owners' cards are on a node without CPU: with all of them gone less could be borrowed than beside them."""
    field = Contended()
    for namespace, priority, where in (("owner", 0, "n1"), ("guest", 1, "n2")):
        for _ in range(4):
            pod = pod_in("", namespace=namespace, priority=priority)
            field.create(pod)
            assert asyncio.run(field.bind(pod, field.where(pod, [where]))) == ""
            field.show(pod)
    field.ledger.hosts.put_node("n1", HostShare(1, PLENTY, 10))
    field.quotas.put(quota("owner", "owner", guaranteed=(48, None, None)))
    group = [pod_in("train", namespace="guest", priority=100) for _ in range(2)]
    field.needs("train", 2, namespace="guest")
    field.create(*group)
    assert not any(field.where(pod, ["n2"]) for pod in group)
    assert len(field.rounds()) == 2
    assert field.held(group) == 2


def test_disruption_budgets_hold_for_all_together():
    """The budget lets one of its two pods go; another goes in place of the second."""
    field = Contended()
    field.others(5, 1)
    kept = [pod_in("", labels={"app": "kept"}) for _ in range(2)]
    for pod in kept:
        field.create(pod)
        assert asyncio.run(field.bind(pod, field.where(pod))) == ""
        field.show(pod)
    field.others(1, 1)
    field.budgets.put(budget("default", 1, app="kept"))
    field.waits("train", 2)
    gone = field.rounds()
    assert len(gone) == 2
    assert len(set(gone) & set(names(kept))) == 1


def test_where_one_may_not_go_after_all_nothing_is_held():
    """The API server knows of a budget that is younger; after a pause others are tried."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 2)
    field.world.kept.update(names(others))
    assert field.rounds() == []
    assert field.held(group) == 0
    field.world.kept.clear()
    assert field.rounds(PATIENCE / 2) == []
    assert len(field.rounds()) == 2


def test_the_next_leader_evicts_nobody_besides():
    """It knows of nothing but the pods that are leaving, and holds the places anew."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 3)
    assert len(field.rounds()) == 3
    gone = field.leaving(others)
    for pod in group:
        field.nominations.revoke(pod.metadata.uid)
    field.worker = field.leader()
    assert field.held(group) == 0
    assert field.rounds() == []
    assert field.held(group) == 3
    for pod in gone:
        field.leave(pod)
    assert all(field.where(pod) for pod in group)


def test_others_go_where_a_card_fails_that_was_held():
    """After a pause, and none of those that have gone already in vain."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 2)
    first = field.rounds()
    for pod in field.leaving(others):
        field.lose_card(pod)
    assert field.rounds(1.0) == []
    second = field.rounds(2 * PATIENCE)
    assert len(second) == 2
    assert not set(first) & set(second)
    assert field.held(group) == 2


def test_nothing_is_held_for_a_group_of_whose_places_some_are_on_a_node_that_takes_no_pods():
    """For longer than a while: others may have the rest, and waited for as long as the node did not come back."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 5)
    assert len(field.rounds()) == 5
    for pod in field.leaving(others):
        field.leave(pod)
    for closed, seconds, held in (
        (True, 1.0, 5),
        (True, OVERDUE_SECONDS - 1.0, 5),
        (False, 1.0, 5),
        (True, 1.0, 5),
    ):
        field.ledger.hosts.put_node("n1", HostShare(PLENTY, PLENTY, 10), closed=closed)
        assert field.rounds(seconds) == []
        assert field.held(group) == held
    assert field.rounds(OVERDUE_SECONDS) == []
    assert field.held(group) == 0


def test_what_leaves_for_a_group_is_held_for_it_again_within_its_pause():
    """A card of its places failed and is well again; nobody else is evicted, nor has anybody else the room."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 2)
    gone = field.leaving(others) if field.rounds() else []
    assert len(gone) == 2
    entry = field.ledger.entry(gone[0].metadata.uid)
    assert entry is not None
    cards = field.ledger.table.cards(entry.node)
    (sick,) = entry.charges
    for healthy, held in ((False, 0), (True, 2)):
        status = node(*(card(one.uuid, healthy=healthy or one.uuid != sick) for one in cards))
        field.ledger.put_node(entry.node, status)
        assert field.rounds(1.0) == []
        assert field.held(group) == held


def test_a_pod_that_does_not_end_when_it_should_is_not_evicted_again():
    """Its kubelet does not answer."""
    field = Contended()
    others = field.others(8, 0)
    for pod in others:
        field.show(pod, leaving=True)
    field.pass_time(1000.0)
    field.waits("train", 2)
    assert field.rounds() == []


@pytest.mark.parametrize("guaranteed", [3, 2])
def test_a_group_gets_back_what_is_guaranteed_to_its_namespace(guaranteed: int):
    """Whatever the priorities; all of it or nothing: a group of three beyond a guarantee of two gets nothing."""
    field = Contended()
    field.others(8, 1000)
    field.quotas.put(quota("own", "own", guaranteed=(None, None, guaranteed), reclaim=True))
    pods = [pod_in("train", namespace="own") for _ in range(3)]
    field.needs("train", 3, namespace="own")
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    assert len(field.rounds()) == (3 if guaranteed == 3 else 0)


def test_a_group_that_borrows_evicts_nobody_within_its_guarantee():
    """However high its priority."""
    field = Contended()
    field.others(8, 0)
    field.quotas.put(quota("default", "default", guaranteed=(None, None, 8)))
    pods = [pod_in("train", namespace="guest", priority=1000) for _ in range(2)]
    field.needs("train", 2, namespace="guest")
    field.create(*pods)
    assert not any(field.where(pod) for pod in pods)
    assert field.rounds() == []
    field.quotas.drop("default")
    assert len(field.rounds(2 * PATIENCE)) == 2


def test_what_is_free_on_a_cordoned_node_is_of_no_use():
    """Four pods would leave the other node for a group of five in vain."""
    field = Contended()
    others = field.others(8, 0)
    (name,) = {field.node_of(others[0])}
    field.leave(others[0])
    field.ledger.hosts.put_node(name, HostShare(PLENTY, PLENTY, 10), closed=True)
    field.waits("train", 5)
    assert field.rounds() == []


def test_a_place_on_a_cordoned_node_does_not_keep_the_others_from_theirs():
    """A group of five needs four, for whom pods leave the node that is open; on the other one a card is free."""
    field = Contended()
    others = field.others(8, 0)
    name = field.node_of(others[0])
    field.leave(others[0])
    field.ledger.hosts.put_node(name, HostShare(PLENTY, PLENTY, 10), closed=True)
    group = field.group("train", 5, needs=4, priority=100)
    assert not any(field.where(pod) for pod in group)
    assert len(field.rounds()) == 4
    assert name not in {field.node_of(pod) for pod in field.leaving(others)}
    assert field.held(group) == 4


def test_for_the_groups_quota_pods_of_it_leave_nodes_that_the_group_may_not_have():
    """The limit has room for the group without five of eight pods, four of which are where the group is to go."""
    field = Contended()
    others = field.others(8, 0)
    where = field.node_of(others[0])
    field.quotas.put(quota("default", "default", limit=(80, None, None)))
    group = [pod_in("train", priority=100) for _ in range(2)]
    field.needs("train", 2)
    field.create(*group)
    assert not any(field.where(pod, [where]) for pod in group)
    assert len(field.rounds()) == 5
    assert sum(field.node_of(pod) == where for pod in field.leaving(others)) >= 2


def test_room_that_is_held_for_a_pod_of_lower_priority_is_the_groups():
    """Two pods are leaving, and another one waits for what they leave."""
    field = Contended()
    others = field.others(8, 0)
    for pod in others[:2]:
        field.show(pod, leaving=True)
    single = pod_in("", priority=50)
    field.create(single)
    assert not field.where(single)
    field.nominations.expect(single.metadata.uid, field.node_of(others[0]))
    assert field.held([single]) == 1
    group = field.waits("train", 2)
    assert field.rounds() == []
    assert field.held(group) == 2


def test_pods_are_left_alone_for_their_minimum_run_time():
    """All have just started."""
    field = Contended()
    field.others(8, 0)
    field.candidates.min_run_seconds = 1e12
    field.waits("train", 2)
    assert field.rounds() == []


def test_no_more_are_reclaimed_in_a_minute_than_is_allowed():
    """Two groups of two; three pods a minute."""
    field = Contended()
    field.others(8, 1000)
    field.quotas.put(quota("own", "own", guaranteed=(None, None, 8), reclaim=True))
    field.worker = field.leader(GangReclaim(3))
    for name in ("one", "two"):
        pods = [pod_in(name, namespace="own") for _ in range(2)]
        field.needs(name, 2, namespace="own")
        field.create(*pods)
        assert not any(field.where(pod) for pod in pods)
    assert len(field.rounds()) == 2
    assert field.rounds() == []
    assert len(field.rounds(60)) == 2


def test_places_are_held_while_the_evictions_are_under_way():
    """Other work looks at all holds between two of them; the victims have a higher priority."""
    field = Contended()
    field.others(8, 1000)
    field.quotas.put(quota("own", "own", guaranteed=(None, None, 8), reclaim=True))
    group = [pod_in("train", namespace="own") for _ in range(3)]
    field.needs("train", 3, namespace="own")
    field.create(*group)
    assert not any(field.where(pod) for pod in group)
    field.world.evicting = field.nominations.review
    assert len(field.rounds()) == 3
    assert field.held(group) == 3


def test_nothing_is_held_for_a_group_that_lacks_a_member():
    """The others could not start."""
    field = Contended()
    others = field.others(8, 0)
    group = field.waits("train", 3)
    assert len(field.rounds()) == 3
    field.leaving(others)
    field.leave(group[0])
    assert field.rounds() == []
    assert field.held(group) == 0


def test_the_pause_is_longer_each_time_that_places_are_lost():
    """Cards fail again and again."""
    field = Contended()
    stay = field.others(8, 0)
    field.waits("train", 2)
    assert len(field.rounds()) == 2
    for pause in (PATIENCE, 2 * PATIENCE):
        gone = field.leaving(stay)
        stay = [pod for pod in stay if pod not in gone]
        for pod in gone:
            field.lose_card(pod)
        assert field.rounds(pause - 1) == []
        assert len(field.rounds(1)) == 2


def test_a_group_does_not_start_before_all_have_been_told_to_leave_for_it():
    """Room on its own nodes is free from the beginning: what others are guaranteed keeps it out until they leave."""
    field = Contended()
    others = field.others(4, 0)
    (free,) = set(NODES) - {field.node_of(pod) for pod in others}
    field.quotas.put(quota("owner", "owner", guaranteed=(64, None, None)))
    group = [pod_in("train", priority=100) for _ in range(2)]
    field.needs("train", 2)
    field.create(*group)
    assert not any(field.where(pod, [free]) for pod in group)
    places: list[list[str]] = []
    field.world.evicting = lambda: places.append([field.where(pod, [free]) for pod in group])
    assert len(field.rounds()) == 2
    assert places == [["", ""]] * 2
    for pod in field.leaving(others):
        field.leave(pod)
    assert all(field.where(pod, [free]) for pod in group)
