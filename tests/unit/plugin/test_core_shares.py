"""What each tenant of a card is due of its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.placement import Charge
from plugin.core_shares import LEAST_BP, WHOLE_BP, is_free, share_bp


def promised(*cores: int) -> Charge:
    """Tenants with these percentages; 0: none."""
    return sum((Charge(1, one, 1, uncapped=int(not one)) for one in cores), Charge())


@pytest.mark.parametrize(
    ("tenants", "shares"),
    [
        pytest.param((30,), (3000,), id="what is not promised is nobody's"),
        pytest.param((30, 70), (3000, 7000), id="a full card"),
        pytest.param((30, 0), (3000, 7000), id="who has no share has the rest"),
        pytest.param((30, 0, 0), (3000, 3500, 3500), id="two divide it"),
        pytest.param((0, 0, 0), (3333, 3333, 3333), id="nobody has a share"),
        pytest.param((100, 0), (10000, LEAST_BP), id="where nothing is left nobody starves"),
        pytest.param((80, 80), (5000, 5000), id="more was promised than there is"),
        pytest.param((150, 50, 0), (7500, 2500, LEAST_BP), id="and somebody has no share"),
    ],
)
def test_shares_of_a_card(tenants: tuple[int, ...], shares: tuple[int, ...]) -> None:
    """In hundredths of a percent."""
    card = promised(*tenants)
    assert tuple(share_bp(one, card) for one in tenants) == shares


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_shares_add_up_to_a_card(tenants: list[int]) -> None:
    """Never to more, but for what keeps those alive for whom nothing is left; and nobody's is nothing."""
    card = promised(*tenants)
    shares = [share_bp(one, card) for one in tenants]
    assert sum(shares) <= WHOLE_BP + LEAST_BP * card.uncapped
    assert min(shares) > 0


@pytest.mark.parametrize(
    ("most", "tenants", "free"),
    [(100, (30,), True), (100, (0,), True), (60, (30,), False), (100, (30, 0), False)],
)
def test_who_is_alone_and_may_have_all_is_free(most: int, tenants: tuple[int, ...], free: bool) -> None:
    """Nobody needs to be measured who has nobody to share with."""
    assert is_free(most, promised(*tenants)) is free
