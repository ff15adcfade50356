"""Grants: what is held never grows beyond what can be granted, and whoever wants gets a fair part of it."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.plugin.sharing.grant_shares import Claim, divide, fair

SIZES = st.integers(0, 20)
BUDGETS = st.integers(0, 80)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    """Some tenants of a card."""
    made = []
    for _ in range(draw(st.integers(1, 5))):
        used = draw(SIZES)
        made.append(Claim(used, draw(SIZES), used + draw(SIZES)))
    return made


@given(BUDGETS, claims())
def test_what_is_held_never_grows_beyond_the_budget(budget: int, tenants: list[Claim]) -> None:
    """Not even while what one gives back is on its way to another; and nothing in use is taken away."""
    grants = divide(budget, tenants)
    before = sum(claim.held for claim in tenants)
    raised = sum(max(0, grant - claim.held) for grant, claim in zip(grants, tenants, strict=True))
    assert before + raised <= max(budget, before)
    assert all(grant >= claim.used for grant, claim in zip(grants, tenants, strict=True))


@given(BUDGETS, claims())
def test_after_two_looks_everybody_has_what_was_meant_for_it(budget: int, tenants: list[Claim]) -> None:
    """The first look takes back, the second gives; if nobody uses more meanwhile that is all."""
    first = divide(budget, tenants)
    again = [Claim(c.used, grant, c.wanted) for c, grant in zip(tenants, first, strict=True)]
    targets = fair(budget, tenants)
    assert all(grant >= target for grant, target in zip(divide(budget, again), targets, strict=True))


@given(BUDGETS, claims())
def test_a_wish_is_met_whole_or_there_is_no_room_for_it(budget: int, tenants: list[Claim]) -> None:
    """What is left is too little for every wish that was not met, and who uses less was asked first."""
    parts = fair(budget, tenants)
    assert all(part in (claim.used, claim.wanted) for part, claim in zip(parts, tenants, strict=True))
    unmet = [claim for part, claim in zip(parts, tenants, strict=True) if part < claim.wanted]
    assert all(claim.wanted - claim.used > budget - sum(parts) for claim in unmet)
    for claim in unmet:
        poorer = [part for part, one in zip(parts, tenants, strict=True) if one.used <= claim.used]
        poorer_use = sum(one.used for one in tenants if one.used <= claim.used)
        richer_use = sum(one.used for one in tenants) - poorer_use
        assert claim.wanted - claim.used > budget - richer_use - sum(poorer)


def test_two_that_want_more_than_half_take_turns() -> None:
    """Halves of what is left would be of no use to either."""
    first = divide(16, [Claim(0, 8, 10), Claim(0, 8, 10)])
    assert first == [8, 0]
    assert divide(16, [Claim(0, 8, 10), Claim(0, 0, 10)]) == [10, 0]


def test_who_was_served_last_is_served_last() -> None:
    """Two that take and give back the same in turn each get theirs."""
    assert fair(16, [Claim(0, 10, 10, turn=2), Claim(0, 0, 10, turn=1)]) == [0, 10]


def test_grants_stay_where_nobody_wants_them() -> None:
    """A page is not written for nothing."""
    assert divide(100, [Claim(10, 50, 10), Claim(20, 20, 30)]) == [50, 30]


def test_a_guaranteed_pod_takes_back_what_is_not_in_use() -> None:
    """The budget has shrunk below what is held: grants fall to what is used."""
    assert divide(40, [Claim(10, 50, 10), Claim(20, 20, 60)]) == [10, 20]
