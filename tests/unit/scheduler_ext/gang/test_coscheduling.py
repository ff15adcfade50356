"""Groups of pods get their places all or nothing, for a limited time, and are bound together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.controllers.ledger_cleanup import LedgerCleanup
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.drill import NODES, Drill, placed, pod_in
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod


def gated_by(pod: Pod, gate: str) -> PlacedPod:
    """A pod that may not be scheduled yet, as the watch shows it."""
    body = msgspec.to_builtins(placed(pod))
    body["spec"]["schedulingGates"] = [{"name": gate}]
    return msgspec.convert(body, PlacedPod)


def test_the_first_call_takes_the_places_of_all():
    """A pod that comes between two members finds what they left."""
    drill = Drill()
    members = drill.group("train", 3)
    assert drill.where(members[0]) in NODES
    assert drill.holds(*members) == 3
    stranger, another = pod_in(""), pod_in("")
    assert drill.where(stranger)
    assert not drill.where(another)
    assert all(drill.where(member) for member in members)
    assert drill.holds(*members) == 3


def test_a_group_that_does_not_fit_takes_nothing():
    """It says how many would, and others have the room."""
    drill = Drill()
    members = drill.group("train", 5)
    text = "group default/train: 4 of the 5 members that it needs fit at once"
    assert [drill.why(member) for member in members] == [text] * 5
    assert (drill.holds(*members), drill.gangs.states()) == (0, {"waiting": 1})
    assert drill.gangs.why(members[0].metadata.uid) == text
    assert drill.where(pod_in(""))


def test_a_group_waits_for_its_members_to_exist():
    """And takes its places when the last one comes."""
    drill = Drill()
    drill.needs("train", 3)
    members = [pod_in("train") for _ in range(3)]
    drill.create(*members[:2])
    text = "group default/train: 2 of the 3 members that it needs exist"
    assert [drill.why(member) for member in members[:2]] == [text] * 2
    assert drill.where(members[2])
    assert drill.holds(*members) == 3


def test_a_group_of_which_nobody_says_how_many_it_needs_waits():
    """A label alone is no order to place pods one by one."""
    drill = Drill()
    pod = pod_in("train")
    drill.create(pod)
    expected = "group default/train: no PodGroup and no annotation says how many members it needs"
    assert drill.why(pod) == expected
    drill.needs("train", 1)
    assert drill.where(pod)


def test_pods_say_themselves_how_many_they_need():
    """Where there is no PodGroup: the largest number that a member says."""
    drill = Drill()
    says = [{"aliquot.dev/group-min-members": text} for text in ("2", "5", "many")]
    members = [pod_in("train", annotations=note) for note in says]
    drill.create(*members)
    assert drill.why(members[0]).endswith("3 of the 5 members that it needs exist")


def test_members_beyond_those_needed_take_what_there_is():
    """Four of six fit, three are needed."""
    drill = Drill()
    members = drill.group("train", 6, needs=3)
    assert [bool(drill.where(member)) for member in members] == [True] * 4 + [False] * 2


def test_members_without_slices_count_as_there_and_gated_ones_do_not():
    """The one needs no card; the other may not be scheduled."""
    drill = Drill()
    drill.needs("train", 3)
    launcher, worker, gated = pod_in("train", 0), pod_in("train"), pod_in("train")
    drill.create(launcher, worker)
    drill.gangs.see(gated_by(gated, "kueue"))
    assert drill.why(worker).endswith("2 of the 3 members that it needs exist")
    drill.create(gated)
    assert drill.where(worker)
    assert drill.holds(worker, gated) == 2


def test_a_gated_member_without_slices_does_not_count():
    """Three workers fit, three are needed; that the launcher waits for something makes it no two."""
    drill = Drill()
    drill.needs("train", 3)
    launcher, *workers = pod_in("train", 0), *(pod_in("train") for _ in range(3))
    drill.create(*workers)
    drill.gangs.see(gated_by(launcher, "kueue"))
    stranger, another = pod_in(""), pod_in("")
    assert drill.where(stranger)
    assert drill.where(another)
    assert drill.why(workers[0]).endswith("2 of the 3 members that it needs fit at once")


def test_places_are_given_back_when_time_is_up():
    """All of them; the group rests as long as it held them, and twice as long the next time."""
    drill = Drill()
    members = drill.group("train", 2)
    for rest in (60.0, 120.0):
        assert drill.where(members[0])
        drill.pass_time(59.0)
        assert (drill.holds(*members), drill.gangs.states()) == (2, {"holding": 1})
        drill.pass_time(1.0)
        assert (drill.holds(*members), drill.gangs.states()) == (0, {"resting": 1})
        assert "after 60 s 0 of its 2 places had been come for" in drill.why(members[1])
        drill.pass_time(rest - 1.0)
        assert drill.why(members[0]).endswith("others have their turn before it tries again")
        drill.waiting.changed.clear()
        drill.pass_time(1.0)
        assert drill.waiting.changed.is_set()


def test_the_group_says_how_long_its_places_wait():
    """The object's word comes before the flag's."""
    drill = Drill()
    members = drill.group("train", 2)
    drill.needs("train", 2, 5.0)
    assert drill.where(members[0])
    drill.pass_time(5.0)
    assert drill.holds(*members) == 0


def test_a_member_that_goes_takes_the_others_places_with_it():
    """Unless there are enough without it."""
    drill = Drill()
    members = drill.group("train", 3, needs=2)
    assert drill.where(members[0])
    drill.leave(members[0])
    assert drill.holds(*members) == 2
    drill.leave(members[1])
    assert drill.holds(*members) == 0


def test_nobody_is_bound_before_enough_have_come():
    """The last one to come lets all through."""
    drill = Drill()
    members = drill.group("train", 3)
    places = {pod.metadata.uid: drill.where(pod) for pod in members}

    async def come() -> None:
        early = [asyncio.create_task(drill.bind(pod, places[pod.metadata.uid])) for pod in members[:2]]
        await asyncio.sleep(0)
        assert drill.bound(*members) == 0
        assert await drill.bind(members[2], places[members[2].metadata.uid]) == ""
        assert await asyncio.gather(*early) == ["", ""]

    asyncio.run(come())
    assert drill.bound(*members) == 3


def test_a_lost_place_takes_the_others_with_it():
    """A reservation has ended by itself."""
    drill = Drill()
    members = drill.group("train", 3)
    drill.where(members[0])
    drill.ledger.release(members[1].metadata.uid)
    drill.pass_time(1.0)
    assert drill.holds(*members) == 0


def test_a_place_that_comes_back_after_the_others_have_gone_goes_too():
    """The answer to its write was lost, another member has left, and then the write proves not to have landed."""
    drill = Drill()
    members = drill.group("train", 2)
    places = {pod.metadata.uid: drill.where(pod) for pod in members}

    async def come() -> None:
        first = asyncio.create_task(drill.bind(members[0], places[members[0].metadata.uid]))
        await asyncio.sleep(0)
        drill.world.line = "lost before"
        await drill.bind(members[1], places[members[1].metadata.uid])
        await first
        drill.world.line = "good"
        drill.leave(members[0])
        (entry,) = drill.ledger.unconfirmed()
        await drill.binder.settle(entry)

    asyncio.run(come())
    assert drill.holds(*members) == 1
    drill.pass_time(1.0)
    assert drill.holds(*members) == 0


@pytest.mark.parametrize(("line", "bound"), [("lost before", 0), ("lost after", 1)])
def test_a_write_without_an_answer_is_not_repeated_once_another_has_no_place(line: str, bound: int):
    """It is asked what became of it instead: nobody is bound now who was not then."""
    drill = Drill()
    members = drill.group("train", 3)
    places = [drill.where(pod) for pod in members]
    drill.world.line = line
    assert all("could not be bound" in error for error in asyncio.run(drill.bind_all(*members)))
    drill.world.line = "good"
    drill.leave(members[2])
    heir = pod_in("train")
    drill.create(heir)
    error = asyncio.run(drill.bind(members[0], places[0]))
    assert ("holds no place" in error) is not bool(bound)
    assert drill.bound(members[0]) == bound


def test_the_place_of_one_beyond_those_needed_is_held_for_the_others_once_one_is_missing():
    """Enough were bound without it; one of those has gone, and with it there are enough again."""
    drill = Drill()
    members = drill.group("train", 3, needs=2)
    places = [drill.where(pod) for pod in members]
    assert asyncio.run(drill.bind_all(*members[:2])) == ["", ""]
    drill.pass_time(60.0)
    drill.leave(members[0])
    assert asyncio.run(drill.bind(members[2], places[2])) == ""


def test_the_time_limit_is_for_those_that_are_needed():
    """Two of three are, and run; the third's volume may take its time."""
    drill = Drill()
    members = drill.group("train", 3, needs=2)
    assert all(drill.where(member) for member in members)
    assert asyncio.run(drill.bind_all(*members[:2])) == ["", ""]
    drill.pass_time(60.0)
    assert drill.holds(members[2]) == 1


def test_a_group_whose_writes_have_failed_need_not_rest():
    """All had come, and held nothing up; they are tried again at once."""
    drill = Drill()
    members = drill.group("train", 2)
    drill.where(members[0])
    drill.world.line = "conflict"
    assert all("could not be bound" in error for error in asyncio.run(drill.bind_all(*members)))
    drill.pass_time(60.0)
    assert drill.holds(*members) == 0
    assert drill.where(members[0])


def test_a_bind_that_has_waited_in_vain_keeps_its_place():
    """It is told how many have come; kube-scheduler's next try gets the same node, and counts."""
    drill = Drill(patience=0.01)
    first, second = drill.group("train", 2)
    where = drill.where(first)
    error = asyncio.run(drill.bind(first, where))
    assert "1 of the 2 members that it needs have come to bind; this pod's place is kept" in error
    assert (drill.where(first), drill.bound(first)) == (where, 0)
    assert asyncio.run(drill.bind(second, drill.where(second))) == ""
    assert asyncio.run(drill.bind(first, drill.where(first))) == ""


def test_a_place_that_was_of_no_use_is_looked_for_elsewhere():
    """A pod that is asked for again, and has not come to bind, goes to another node; the others stay."""
    drill = Drill()
    members = drill.group("train", 2, gib=4)
    where = drill.where(members[0])
    assert drill.where(members[0]) != where
    assert drill.holds(*members) == 2


def test_a_replaced_member_goes_alone():
    """The others are bound already, and are left where they are."""
    drill = Drill()
    members = drill.group("train", 3)
    drill.where(members[0])
    assert asyncio.run(drill.bind_all(*members)) == [""] * 3
    drill.leave(members[1])
    assert drill.gangs.states() == {"waiting": 1}
    heir = pod_in("train")
    drill.create(heir)
    where = drill.where(heir)
    assert asyncio.run(drill.bind(heir, where)) == ""
    assert drill.bound(members[0], members[2], heir) == 3
    assert drill.gangs.states() == {"running": 1}


def test_a_bind_after_a_restart_waits_until_its_group_has_places():
    """A fresh extender holds none, and places no member alone."""
    old, new = Drill(), Drill()
    members = old.group("train", 3)
    where = old.where(members[0])
    new.needs("train", 3)
    new.create(*members)
    assert "holds no place" in asyncio.run(new.bind(members[0], where))
    new.where(members[0])
    assert asyncio.run(new.bind_all(*members)) == [""] * 3


def test_a_quota_is_for_all_or_none():
    """Two of three would stay below the limit."""
    drill = Drill()
    drill.quotas.put(quota("team", "default", limit=(40, None, None)))
    members = drill.group("train", 3)
    text = "2 of the 3 members that it needs fit at once; GPUQuota team keeps the others from every node"
    assert drill.why(members[0]).endswith(text)
    assert drill.holds(*members) == 0
    drill.quotas.put(quota("team", "default", limit=(48, None, None)))
    assert drill.where(members[0])


def test_nodes_that_a_member_was_not_offered_are_respected():
    """What was thought for it before it was asked for is thought again."""
    drill = Drill()
    first, second = drill.group("train", 2, gib=10)
    where = drill.where(first, ["n1", "n2"])
    other = next(name for name in NODES if name != where)
    assert drill.where(second, [other]) == other
    assert drill.holds(first, second) == 2


def test_what_all_were_offered_is_remembered():
    """Each may go to one node only; the group fits once both have been asked for."""
    drill = Drill(cards=1)
    first, second = drill.group("train", 2)
    assert drill.why(first, ["n1"]).endswith("1 of the 2 members that it needs fit at once")
    assert drill.where(second, ["n2"]) == "n2"
    assert drill.where(first, ["n1"]) == "n1"


def test_nobody_is_bound_when_the_cards_of_another_have_failed():
    """The first has come to bind; before the second comes its node has lost a card, and the group has no places."""
    drill = Drill(cards=1)
    first, second = drill.group("train", 2)
    where, other = drill.where(first), drill.where(second)
    assert "1 of the 2" in asyncio.run(drill.bind(first, where))
    drill.ledger.put_node(where, node(card(f"{where}-0", healthy=False)))
    assert "holds no place" in asyncio.run(drill.bind(second, other))
    assert drill.holds(first, second) == 0


def test_a_place_whose_card_has_failed_is_looked_for_elsewhere():
    """The other members' places stay."""
    drill = Drill()
    first, second = drill.group("train", 2, gib=4)
    where = drill.where(first)
    drill.ledger.put_node(where, node(*(card(f"{where}-{n}", healthy=False) for n in range(2))))
    assert drill.where(second) == drill.where(first) != where


def test_places_that_are_in_the_way_are_moved():
    """The second may go to the first one's node only, and the first has not come to bind yet."""
    drill = Drill(cards=1)
    first, second = drill.group("train", 2)
    where = drill.where(first)
    other = next(name for name in NODES if name != where)
    assert drill.where(second, [where]) == where
    assert "holds no place" in asyncio.run(drill.bind(first, where))
    assert drill.where(first) == other
    assert asyncio.run(drill.bind_all(first, second)) == ["", ""]


def test_places_are_where_cpu_is_left_for_all():
    """kube-scheduler counts it pod by pod; the others' turn is yet to come."""
    drill = Drill()
    for name in NODES:
        drill.ledger.hosts.put_node(name, HostShare(4000, 8000, 10))
    members = []
    for _ in range(2):
        body = msgspec.to_builtins(pod_in("train", 4))
        body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
        members.append(msgspec.convert(body, type(pod_in("train"))))
    drill.needs("train", 2)
    drill.create(*members)
    assert {drill.where(member) for member in members} == set(NODES)


def test_two_groups_never_hold_half_each():
    """Whoever is asked for first has all; the other nothing until the first has gone."""
    drill = Drill()
    one, two = drill.group("one", 3), drill.group("two", 3)
    assert drill.where(one[0])
    assert [drill.where(pod) for pod in two] == [""] * 3
    assert (drill.holds(*one), drill.holds(*two)) == (3, 0)
    for pod in one:
        drill.leave(pod)
    assert drill.where(two[1])
    assert drill.holds(*two) == 3


@pytest.mark.parametrize("hold_seconds", [0.0])
def test_groups_can_be_left_alone(hold_seconds: float):
    """With `--group-seconds 0` each pod goes as it comes."""
    drill = Drill(hold_seconds=hold_seconds)
    members = drill.group("train", 5)
    assert [bool(drill.where(member)) for member in members] == [True] * 4 + [False]


def test_members_that_have_succeeded_count():
    """One worker's work is done; the one that was restarted needs no others."""
    drill = Drill()
    members = drill.group("train", 2)
    drill.where(members[0])
    asyncio.run(drill.bind_all(*members))
    drill.ledger.depart(members[0].metadata.uid)
    drill.gangs.see(placed(members[0], "n1", "Succeeded"))
    drill.leave(members[1])
    heir = pod_in("train")
    drill.create(heir)
    assert drill.where(heir)


@pytest.mark.parametrize("seconds", [600.0, 3600.0])
def test_places_are_held_for_as_long_as_the_group_says(seconds: float):
    """Also where that is longer than a reservation of a pod without a group lives."""
    drill = Drill()
    keeper = LedgerCleanup(drill.ledger, drill.binder, lambda: drill.now, keeps=drill.gangs.keeps)
    members = drill.group("train", 2)
    drill.needs("train", 2, seconds)
    assert drill.where(members[0])
    while drill.now < seconds - 1.0:
        drill.pass_time(min(100.0, seconds - 1.0 - drill.now))
        asyncio.run(keeper.tidy())
    assert drill.holds(*members) == 2
    drill.pass_time(1.0)
    assert drill.holds(*members) == 0


def test_a_mixed_group_is_placed_where_its_largest_memory_first_does_not_fit():
    """By memory the two of 8 GiB come first, both beside others' cores; the two that need all cores have none left."""
    drill = Drill(cards=1)
    wide = {"gpu-mem": "2Gi", "gpu-core": "60"}
    deep = {"gpu-mem": "8Gi", "gpu-core": "40"}
    members = [pod_in("train", limits=one) for one in (deep, deep, wide, wide)]
    drill.needs("train", 4)
    drill.create(*members)
    assert all(drill.where(member) for member in members)
