"""What each tenant of a card is due of its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.request.core_policy import CoreMode, CoreTerms
from aliquot.request.core_shares import FREE, LEAST_BP, WHOLE_BP, CorePart, Promised, core_part, share_bp


def promised(*cores: int) -> Promised:
    """Tenants with these percentages; 0: none."""
    return Promised(sum(cores), cores.count(0), len(cores))


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
    ("most", "tenants", "part"),
    [
        pytest.param(100, (30,), FREE, id="alone with all of the card"),
        pytest.param(100, (0,), FREE, id="and without a share"),
        pytest.param(60, (30,), CorePart(30, 3000, 60, 5), id="alone with a bound"),
        pytest.param(100, (30, 0), CorePart(30, 3000, 100, 5), id="beside another"),
        pytest.param(100, (0, 30), CorePart(0, 7000, 100, 5), id="without a share beside another"),
    ],
)
def test_who_is_alone_and_may_have_all_is_free(most: int, tenants: tuple[int, ...], part: CorePart) -> None:
    """Nobody needs to be measured who has nobody to share with: the page says nothing of time."""
    terms = CoreTerms(CoreMode.BURST if tenants[0] else CoreMode.UNCAPPED, most, 5)
    assert core_part(terms, tenants[0], promised(*tenants)) == part
