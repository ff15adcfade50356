"""Among a steady stream of small pods the group that has waited longest saves up places, for a limited time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aliquot.scheduler_ext.gang.gang import Gang
from tests.unit.scheduler_ext.drill import NODES, Drill, pod_in
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.teams import quota

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod


def busy(drill: Drill) -> list[Pod]:
    """Small pods on all cards."""
    pods = [pod_in("") for _ in range(4)]
    assert all(drill.where(pod) for pod in pods)
    return pods


def leave_one_after_the_other(drill: Drill, pods: list[Pod]) -> list[bool]:
    """Each small pod is followed by another at once; whether that got its place."""
    got = []
    for pod in pods:
        drill.leave(pod)
        got.append(bool(drill.where(pod_in(""))))
        drill.pass_time(1.0)
    return got


def test_a_group_that_has_waited_long_saves_up_places():
    """Small pods come as soon as others go; before its patience has ended they have all, after it they have none."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(299.0)
    again = []
    for pod in small:
        drill.leave(pod)
        again.append(pod_in(""))
        assert drill.where(again[-1])
    drill.pass_time(1.0)
    assert leave_one_after_the_other(drill, again) == [False] * 4
    assert drill.holds(*members) == 4
    assert all(drill.would(member) for member in members)
    assert all(drill.where(member) for member in members)
    assert asyncio.run(drill.bind_all(*members)) == [""] * 4


def test_what_is_saved_is_not_bound_before_it_is_all():
    """A member that comes to bind holds no place of its own yet."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small[:3]) == [False] * 3
    assert not drill.where(members[3], ["n2", "n1", "n3"])
    assert drill.holds(*members) == 3
    assert drill.why(members[0]).endswith("3 of the 4 members that it needs fit at once")
    entries = [drill.ledger.entry(pod.metadata.uid) for pod in members]
    member, entry = next((p, e) for p, e in zip(members, entries, strict=True) if e)
    assert "holds no place" in asyncio.run(drill.bind(member, entry.node))


def test_saving_ends_and_others_have_their_turn():
    """What was saved in vain is free; nobody saves for as long, then another, and this one not for twice as long."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(1.0)
    other = drill.group("other", 4)
    assert not drill.where(other[0])
    drill.pass_time(299.0)
    drill.leave(small[0])
    drill.pass_time(299.0)
    assert drill.holds(*members) == 1
    drill.pass_time(1.0)
    assert drill.holds(*members, *other) == 0
    assert drill.where(pod_in(""))
    drill.pass_time(299.0)
    assert drill.gangs.saver is None
    for waited, saver in ((1.0, "other"), (299.0, "other"), (1.0, None), (299.0, None), (1.0, "train")):
        drill.pass_time(waited)
        assert name_of_saver(drill) == saver


def test_what_is_free_is_saved_at_once():
    """Nothing need change first: two cards have been free all the time."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    for pod in small[:2]:
        drill.leave(pod)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert drill.holds(*members) == 2


def test_only_one_group_saves_at_a_time_and_the_longest_first():
    """The other holds nothing meanwhile, so neither waits for the other's."""
    drill = Drill()
    small, first = busy(drill), drill.group("first", 4)
    assert not drill.where(first[0])
    drill.pass_time(1.0)
    second = drill.group("second", 4)
    assert not drill.where(second[0])
    drill.pass_time(300.0)
    for pod in small[:2]:
        drill.leave(pod)
        drill.pass_time(1.0)
        assert not drill.where(second[0])
    assert (drill.holds(*first), drill.holds(*second)) == (2, 0)


def test_a_group_that_lacks_members_saves_nothing():
    """What it has saved is free as soon as one is gone."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    drill.leave(small[0])
    drill.pass_time(1.0)
    assert drill.holds(*members) == 1
    drill.leave(members[3])
    drill.pass_time(1.0)
    assert drill.holds(*members) == 0


def test_saving_can_be_turned_off():
    """With `--group-saving-seconds 0` the small pods go on."""
    drill = Drill(saving=0.0)
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(3000.0)
    assert leave_one_after_the_other(drill, small) == [True] * 4


def test_only_room_is_waited_for():
    """While a member was missing the group was not short of room; its patience begins anew."""
    drill = Drill()
    _, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(200.0)
    drill.leave(members[3])
    assert drill.why(members[0]).endswith("3 of the 4 members that it needs exist")
    drill.create(pod_in("train"))
    assert not drill.where(members[0])
    drill.pass_time(299.0)
    assert drill.gangs.saver is None
    drill.pass_time(1.0)
    assert drill.gangs.saver is not None


def name_of_saver(drill: Drill) -> str | None:
    """The group whose turn it is."""
    return drill.gangs.saver.key.name if isinstance(drill.gangs.saver, Gang) else None


def test_a_group_that_could_never_fit_saves_nothing():
    """Five members on four cards: the others go on as if it were not there, and its members are told."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 5)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small) == [True] * 4
    assert name_of_saver(drill) is None
    assert drill.why(members[0], ["n1"]).endswith("and fewer than it needs would if no other pod were there")


def test_a_group_that_could_never_fit_takes_no_turn_from_others():
    """The one that has waited longer is too large; the other saves up as soon as its own patience has ended."""
    drill = Drill()
    _, large, other = busy(drill), drill.group("large", 5), drill.group("other", 4)
    assert not drill.where(large[0])
    assert not drill.where(other[0])
    drill.pass_time(300.0)
    drill.pass_time(1.0)
    assert name_of_saver(drill) == "other"


def test_a_group_for_which_there_are_cards_after_all_saves_up():
    """A node has come since it was found too large."""
    drill = Drill()
    _, members = busy(drill), drill.group("train", 5)
    everywhere = [*NODES, "n3"]
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    drill.ledger.put_node("n3", node(card("n3-0")))
    assert drill.where(pod_in(""), ["n3"])
    assert not any(drill.where(member, everywhere) for member in members)
    drill.pass_time(300.0)
    assert name_of_saver(drill) == "train"


@pytest.mark.parametrize(
    ("spec", "saves"),
    [
        ({"limit": (63, None, None)}, False),
        ({"limit": (64, None, None)}, True),
        ({"podMax": (15, None, None)}, False),
        ({"limit": (None, None, 3)}, False),
    ],
)
def test_a_group_beyond_its_quota_saves_nothing(spec: dict[str, tuple[int | None, ...]], saves: bool):
    """Whatever ends, four members of 16 GiB may not run at once."""
    drill = Drill()
    busy(drill)
    drill.quotas.put(quota("team", "default", **spec))
    members = drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert (name_of_saver(drill) == "train") is saves


def test_what_others_are_guaranteed_is_out_of_reach():
    """Of 64 GiB 16 are guaranteed to others, who may always have them back."""
    drill = Drill()
    busy(drill)
    drill.quotas.put(quota("team", "default", limit=(64, None, None)))
    drill.quotas.put(quota("others", "others", guaranteed=(16, None, None)))
    members = drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert name_of_saver(drill) is None


def test_what_is_saved_is_not_kept_from_a_pod_of_higher_priority():
    """It finds no other place; the group keeps the rest."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small[:2]) == [False] * 2
    assert not drill.where(pod_in("", priority=0))
    assert drill.where(pod_in("", priority=1000))
    assert drill.holds(*members) == 1
    drill.pass_time(1.0)
    assert drill.holds(*members) == 1


def test_a_pod_of_higher_priority_that_does_not_fit_takes_nothing():
    """What was set aside for it is the group's again, and nobody is told of a change."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small[:2]) == [False] * 2
    changes = drill.waiting.changes
    assert not drill.where(pod_in("", 20, priority=1000))
    assert (drill.holds(*members), drill.waiting.changes) == (2, changes)


def test_what_is_saved_is_not_kept_from_a_group_of_higher_priority():
    """It fits with what the other has saved, and only with that."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small[:2]) == [False] * 2
    equal, urgent = drill.group("equal", 2), drill.group("urgent", 2, priority=1000)
    assert not drill.where(equal[0])
    assert not drill.would(equal[0])
    assert drill.would(urgent[0])
    assert drill.where(urgent[0])
    assert (drill.holds(*members), drill.holds(*urgent)) == (0, 2)


def test_a_group_of_higher_priority_takes_the_turn():
    """Once it has waited for as long; what the other has saved is free."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(100.0)
    urgent = drill.group("urgent", 3, priority=1000)
    assert not drill.where(urgent[0])
    drill.pass_time(200.0)
    assert name_of_saver(drill) == "train"
    drill.leave(small[0])
    drill.pass_time(99.0)
    assert drill.holds(*members) == 1
    drill.pass_time(1.0)
    assert name_of_saver(drill) == "urgent"
    assert (drill.holds(*members), drill.holds(*urgent)) == (0, 1)


def test_of_groups_that_have_waited_long_enough_the_highest_priority_saves():
    """However much longer the other has waited."""
    drill = Drill()
    busy(drill)
    first = drill.group("first", 4)
    assert not drill.where(first[0])
    drill.needs("first", 6)
    drill.pass_time(1.0)
    urgent = drill.group("urgent", 4, priority=10)
    assert not drill.where(urgent[0])
    drill.needs("first", 4)
    drill.pass_time(300.0)
    assert name_of_saver(drill) == "urgent"


def test_a_group_of_higher_priority_that_does_not_fit_takes_nothing():
    """It would need a card more than there are with what the other has saved, and leaves that as it was."""
    drill = Drill()
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    assert leave_one_after_the_other(drill, small[:2]) == [False] * 2
    urgent = drill.group("urgent", 3, priority=1000)
    assert [drill.where(pod) for pod in urgent] == [""] * 3
    assert (drill.holds(*members), drill.holds(*urgent)) == (2, 0)
