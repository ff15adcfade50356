"""Among a steady stream of small pods the group that has waited longest saves up places, for a limited time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.unit.scheduler_ext.drill import Drill, pod_in

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
        assert (drill.gangs.saver.key.name if drill.gangs.saver else None) == saver


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
