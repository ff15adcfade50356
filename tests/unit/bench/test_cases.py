"""The table of compute shares, and the random mixes."""

import pytest

from bench.timeshare.busy_cases import busy_cases
from bench.timeshare.cases import Mode, What, all_cases
from bench.timeshare.mixes import LEAST_SHARE, MOST_TENANTS, mix

SEED = 7


def test_every_case_has_a_name_of_its_own():
    """`CASES=` means one of them."""
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names)) > 50


@pytest.mark.parametrize(
    "name",
    [
        *(
            "single/*",
            "pair/*",
            "burst/*",
            "eight/*",
            "wake/*",
            "lent/*",
            "priority/*",
            "lone/*",
            "processes/*",
        ),
        *("copies/*", "collective/*", "thrash/*", "varying/*"),
    ],
)
def test_every_row_of_the_table_has_cases(name: str):
    """None is left out by a change of names."""
    assert any(case.name.startswith(name.rstrip("*")) for case in all_cases())


def test_with_more_loops_the_same_cases_have_wider_bounds():
    """Two a core and more."""
    few, many = busy_cases(2), busy_cases(3)
    assert [case.name for case in few] == [case.name for case in many]
    assert few == busy_cases(1)
    for narrow, wide in zip(few, many, strict=True):
        assert (narrow.bound, narrow.idle, narrow.points) != (wide.bound, wide.idle, wide.points)


def test_shares_fit_a_card():
    """In the tables and in mixes: what is sold is at most all of it, and everybody has something."""
    cases = [*all_cases(), *busy_cases(2), *(mix(SEED, number) for number in range(200))]
    for case in cases:
        assert 0 < sum(tenant.share for tenant in case.tenants) <= 100.001, case.name
        assert len(case.tenants) <= MOST_TENANTS
        assert all(tenant.share >= LEAST_SHARE for tenant in case.tenants)


def test_mixes_are_the_same_for_the_same_seed():
    """And others for another."""
    assert mix(SEED, 3) == mix(SEED, 3)
    assert mix(SEED, 3) != mix(SEED, 4)
    assert mix(SEED, 3).tenants != mix(SEED + 1, 3).tenants


def test_mixes_have_everything():
    """Of 200, some with every mode, with pauses, several processes, graphs, mixed lengths; on both kinds of card."""
    mixes = [mix(SEED, number) for number in range(200)]
    tenants = [tenant for case in mixes for tenant in case.tenants]
    loads = [load for tenant in tenants for load in tenant.loads]
    assert {tenant.mode for tenant in tenants} == {Mode.CAPPED, Mode.BURST, Mode.UNCAPPED}
    assert {case.concurrent for case in mixes} == {True, False}
    assert {len(case.tenants) for case in mixes} == set(range(1, MOST_TENANTS + 1))
    assert any(len(tenant.loads) > 1 for tenant in tenants)
    assert any(load.graph for load in loads)
    assert any(load.idle_us for load in loads)
    assert {load.what for load in loads} == {What.KERNEL}
    assert any(len(load.kernel_us) > 1 for load in loads)
