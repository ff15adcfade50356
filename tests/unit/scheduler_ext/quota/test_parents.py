"""Quotas below a parent: held to both, first served among each other, and one quota to everybody else."""

import pytest

from aliquot.scheduler_ext.controllers.quota_status import statuses
from aliquot.scheduler_ext.state.namespace_usage import ALL
from tests.unit.scheduler_ext.evicting import Evicting
from tests.unit.scheduler_ext.neighbours import waiter
from tests.unit.scheduler_ext.teams import Teams, quota


@pytest.fixture
def teams() -> Teams:
    """Four cards of 16 GiB: a lab of two groups, which has 32 of them, and others."""
    made = Teams()
    made.quotas.put(quota("lab", guaranteed=(32, None, None), limit=(48, None, None)))
    made.quotas.put(quota("one", "one", guaranteed=(8, None, None), parent="lab"))
    made.quotas.put(quota("two", "two", guaranteed=(8, None, None), parent="lab"))
    return made


def test_a_parents_limit_holds_for_its_children_together(teams: Teams):
    """Whoever of them has it; the words name the parent."""
    assert [teams.gets("one", 16), teams.gets("two", 16), teams.gets("one", 12)] == [True, True, True]
    assert teams.refusal("two", {"gpu-mem": "8Gi"}) == (
        "GPUQuota lab: namespace two asks for 8Gi of GPU memory, and 44Gi of its limit of 48Gi are in use; "
        "wait for pods to end, ask for less, or have the limit raised"
    )


def test_what_a_parent_guarantees_beyond_its_children_is_for_whoever_of_them_comes(teams: Teams):
    """Others leave it. A sibling leaves what the other is guaranteed."""
    assert [teams.gets("other", 16), teams.gets("other", 16), teams.gets("other", 1)] == [True, True, False]
    assert [teams.gets("one", 16), teams.gets("one", 8), teams.gets("one", 1)] == [True, True, False]
    assert teams.gets("two", 8)


def test_what_a_child_is_guaranteed_is_kept_when_its_sibling_has_all_of_the_parents(teams: Teams):
    """Beyond the parent's guarantee the sibling borrowed like anybody else, and had to leave it."""
    assert [teams.gets("one", 16), teams.gets("one", 16), teams.gets("one", 8)] == [True, True, True]
    assert "8Gi are guaranteed to others" in teams.refusal("other", {"gpu-mem": "17Gi"})
    assert teams.gets("other", 16)
    assert [teams.gets("other", 1), teams.gets("two", 8)] == [False, True]


def test_a_parent_guarantees_no_less_than_its_children_do():
    """Whatever it says itself."""
    teams = Teams()
    teams.quotas.put(quota("lab"))
    teams.quotas.put(quota("one", "one", guaranteed=(32, None, None), parent="lab"))
    assert [teams.gets("other", 16), teams.gets("other", 16), teams.gets("other", 1)] == [True, True, False]
    assert teams.gets("one", 16)
    told = {quota.metadata.name: status for quota, status in statuses(teams.quotas)}
    assert told["lab"].borrowed.memory_mib == 0


def test_a_parents_own_namespaces_are_guaranteed_what_is_left_of_it():
    """They count below its limit, and leave its children what these are guaranteed."""
    teams = Teams()
    teams.quotas.put(quota("lab", "head", guaranteed=(32, None, None), limit=(48, None, None)))
    teams.quotas.put(quota("one", "one", guaranteed=(16, None, None), parent="lab"))
    assert [teams.gets("other", 16), teams.gets("other", 16)] == [True, True]
    assert [teams.gets("head", 16), teams.gets("head", 1), teams.gets("one", 16)] == [True, False, True]


@pytest.mark.parametrize(
    ("parent", "more", "why"),
    [
        ("gone", {}, "there is no GPUQuota gone of the same pool"),
        ("one", {}, "GPUQuota one names itself as its parent"),
        ("big", {"pool": "big"}, "there is no GPUQuota big of the same pool"),
        ("mid", {"parent": "top"}, "GPUQuota mid has a parent itself, and there are two levels"),
    ],
)
def test_a_parent_that_cannot_be_one_is_told_and_does_not_count(parent: str, more: dict[str, str], why: str):
    """The quota stands alone."""
    teams = Teams()
    teams.quotas.put(quota("top"))
    if more:
        teams.quotas.put(quota(parent, limit=(1, None, None), **more))
    teams.quotas.put(quota("one", "one", limit=(16, None, None), parent=parent))
    told = {written.metadata.name: status.parent_ignored for written, status in statuses(teams.quotas)}
    assert told.pop("one") == why
    assert set(told.values()) == {""}
    assert [teams.gets("one", 16), teams.gets("one", 1)] == [True, False]


def test_a_parents_status_has_what_its_children_use(teams: Teams):
    """Of theirs it shows what each has borrowed, of its own what all have together."""
    teams.gets("one", 16)
    told = {quota.metadata.name: status for quota, status in statuses(teams.quotas)}
    assert [told["one"].used.memory_mib, told["lab"].used.memory_mib] == [16384, 16384]
    assert [told["one"].borrowed.memory_mib, told["lab"].borrowed.memory_mib] == [8192, 0]


def test_shares_are_compared_below_a_parent_and_else_between_parents(teams: Teams):
    """What is guaranteed is none; a namespace of no quota stands beside parents."""
    teams.quotas.put(quota("two", "two", guaranteed=(8, None, None), parent="lab", weight=2))
    for namespace, gib in (("one", 16), ("two", 16), ("one", 8), ("other", 16)):
        assert teams.gets(namespace, gib)
    assert teams.quotas.shares(ALL, "one", "two") == (16 / 64, 8 / 64 / 2)
    assert teams.quotas.shares(ALL, "one", "other") == (8 / 64, 16 / 64)
    assert teams.quotas.lower(ALL, "other", ("one", "two", "other")) == ["one", "two"]
    assert teams.quotas.lower(ALL, "one", ("one", "two", "other")) == ["two"]


def shared(**one: object) -> Evicting:
    """Two cards; group one of the lab has both, within what the lab is guaranteed and beyond its own."""
    here = Evicting()
    here.quotas.put(quota("lab", guaranteed=(32, None, None)))
    here.quotas.put(quota("one", "one", guaranteed=(16, None, None), parent="lab", **one))
    here.quotas.put(quota("two", "two", guaranteed=(16, None, None), parent="lab", reclaim=True))
    here.quotas.put(quota("zoo", "zoo", guaranteed=(32, None, None), reclaim=True))
    for number, where in enumerate(("n1-a", "n1-a", "n1-b", "n1-b")):
        here.runs(f"one-{number}", where, 8, namespace="one", second=number)
    return here


def test_a_child_has_its_sibling_give_back_what_it_borrowed() -> None:
    """Though the parent has borrowed nothing."""
    here = shared()
    assert here.wants(waiter(16, priority=0, namespace="two")) == []
    assert len(here.look()) == 2


def test_from_a_parent_within_its_guarantee_others_take_nothing() -> None:
    """Though one of its children has borrowed from the other."""
    here = shared()
    assert here.wants(waiter(16, priority=0, namespace="zoo")) == []
    assert here.look(3) == []
    here.quotas.put(quota("lab", guaranteed=(32, None, None)))
    here.quotas.put(quota("two", "two", parent="lab"))
    here.quotas.put(quota("lab"))
    assert len(here.look(3)) == 2, "16 of the 32 are beyond every guarantee now"


def department(*, lab: bool, one: bool) -> Evicting:
    """Four cards of 16 GiB: a lab of two groups has 48, of which each group is guaranteed 16."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("lab", guaranteed=(48, None, None), reclaim=lab))
    here.quotas.put(quota("one", "one", guaranteed=(16, None, None), parent="lab", reclaim=one))
    here.quotas.put(quota("two", "two", guaranteed=(16, None, None), parent="lab"))
    return here


@pytest.mark.parametrize(
    ("lab", "one", "cards"), [(False, False, 1), (True, False, 2), (False, True, 2), (True, True, 3)]
)
def test_each_part_of_a_parents_guarantee_is_lent_by_whoever_reclaims_it(*, lab: bool, one: bool, cards: int):
    """A child its own, the parent what it guarantees beyond its children."""
    here = department(lab=lab, one=one)
    places = [here.place_of(waiter(16, namespace="guest")) != [] for _ in range(4)]
    assert places == [True] * cards + [False] * (4 - cards)


def test_a_sibling_borrows_what_a_child_that_reclaims_does_not_use():
    """And leaves what the other siblings keep."""
    here = department(lab=False, one=True)
    assert [here.place_of(waiter(16, namespace="two")) != [] for _ in range(3)] == [True] * 3
    here = department(lab=False, one=False)
    assert [here.place_of(waiter(16, namespace="two")) != [] for _ in range(3)] == [True] * 3
    assert here.place_of(waiter(1, namespace="guest")) == []


def test_what_a_parent_guarantees_beyond_its_children_is_reclaimed_from_others() -> None:
    """Not from a sibling, which has the same right to it."""
    here = department(lab=True, one=False)
    here.runs("one-1", "n1-a", 16, namespace="one")
    here.runs("two-1", "n1-b", 16, namespace="two")
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 16, namespace="guest", priority=1000)
    pod = waiter(16, priority=0, namespace="one")
    assert here.wants(pod) == []
    (victim,) = here.look(3)
    assert victim in ("n2-a", "n2-b")
    here.ends(victim)
    assert here.wants(pod) == ["n2"]
    assert here.wants(waiter(16, priority=0, namespace="two")) == []
    assert len(here.look(3)) == 1


def test_a_parent_reclaims_nothing_that_a_child_is_guaranteed() -> None:
    """A sibling with more than its own waits for what another child has not come up to."""
    here = department(lab=True, one=False)
    for where in ("n1-a", "n1-b"):
        here.runs(where, where, 16, namespace="one")
    for where in ("n2-a", "n2-b"):
        here.runs(where, where, 16, namespace="guest")
    assert here.wants(waiter(16, priority=0, namespace="one")) == []
    assert here.look(3) == []
