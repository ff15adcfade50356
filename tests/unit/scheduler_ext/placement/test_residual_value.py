"""What the rest of a card is worth."""

import random
from itertools import combinations, product

import numpy as np
import pytest

from aliquot.scheduler_ext.placement.residual_value import MOST_SIZES, STEPS, Amounts, Program, worths


def worth(share: float, *kinds: tuple[float, float]) -> float:
    """Of a rest, where slices of these shares are asked for that often."""
    found = worths([size for size, _ in kinds], [count for _, count in kinds])
    return round(float(found[round(share * STEPS)]), 6)


def test_two_that_fill_a_card_are_worth_half_of_it_each():
    """Less than one of them is nothing, and so is what they leave."""
    halves = (0.47, 100.0)
    assert [worth(rest, halves) for rest in (0.4, 0.5, 0.9, 0.94, 1.0)] == [0, 0.5, 0.5, 1, 1]


def test_a_gap_that_large_slices_leave_is_worth_nothing_as_long_as_there_are_more_gaps_than_small_slices():
    """A fifth of every card stays free beside 0.8; with more small slices than gaps these take cards of their own."""
    assert worth(0.2, (0.8, 100), (0.2, 50)) == 0
    assert worth(0.2, (0.8, 100), (0.2, 150)) == 0.2


def test_those_that_fill_a_card_together_share_its_price():
    """Fewer of the larger ones: the smaller then also lie three by three, which sets their price."""
    assert worth(1 / 3, (2 / 3, 50), (1 / 3, 100)) == pytest.approx(1 / 3, abs=1e-5)
    assert worth(2 / 3, (2 / 3, 50), (1 / 3, 100)) == pytest.approx(2 / 3, abs=1e-5)


def test_slices_that_no_card_holds_are_passed_over():
    """A worth is there even where nothing fits, or nobody asks."""
    assert worth(0.5, (1.5, 10), (0.5, 1)) == 0.5
    assert worth(0.5, (1.5, 10)) == worth(0.5) == 0.5


def test_of_very_many_sizes_those_that_take_most_decide():
    """And the answer still comes, with every size asked for and random demand."""
    dice = random.Random(1)
    many = [(n / STEPS, dice.random()) for n in range(1, STEPS + 1)]
    assert len(many) > MOST_SIZES
    assert worth(1.0, *many) == 1
    assert worth(0.5, (0.5, 1e6), *many) == 0.5


def best_price(sizes: list[int], demand: Amounts) -> float:
    """The most that all slices can be worth while no filling is worth more than a card, by trying every corner."""
    counts = product(*(range(STEPS // size + 1) for size in sizes))
    fillings = [c for c in counts if 0 < sum(n * s for n, s in zip(c, sizes, strict=True)) <= STEPS]
    rows = np.array([*fillings, *(-np.eye(len(sizes)))])
    limits = np.array([1.0] * len(fillings) + [0.0] * len(sizes))
    found = 0.0
    for corner in combinations(range(len(rows)), len(sizes)):
        sides = rows[list(corner)]
        if abs(np.linalg.det(sides)) > 1e-9:
            price = np.linalg.solve(sides, limits[list(corner)])
            if (rows @ price <= limits + 1e-9).all():
                found = max(found, float(demand @ price))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_the_prices_are_the_best_of_all(seed: int):
    """On small random programs."""
    dice = random.Random(seed)
    sizes = sorted(dice.sample(range(22, STEPS + 1), dice.choice([1, 2, 3])))
    demand = np.array([dice.randint(1, 50) for _ in sizes], np.float64)
    program = Program(np.array(sizes), demand)
    while program.improve():
        pass
    found = program.prices()
    assert float(demand @ found) == pytest.approx(best_price(sizes, demand), rel=1e-5)
    assert (found >= 0).all()


@pytest.mark.parametrize("seed", range(10))
def test_more_room_is_never_worth_less_and_no_more_than_a_card(seed: int):
    """With up to 60 kinds of pods."""
    dice = random.Random(seed)
    shares = [dice.uniform(0, 1.1) for _ in range(dice.randint(1, 60))]
    found = worths(shares, [dice.randint(1, 1000) for _ in shares])
    assert found[0] == 0
    assert found[-1] == pytest.approx(1)
    assert (np.diff(found) >= 0).all()
