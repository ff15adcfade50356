"""Collectives of two tenants on two cards that they share: real programs, the real arbiter, the cards' own records."""

import random
from collections.abc import Iterator

import pytest

from bench.timeshare.cases import Case, Load, Question, Tenant
from bench.timeshare.run import Programs, Run, programs, run
from bench.timeshare.verdict import meeting
from tests.native.attempts import attempts

pytestmark = pytest.mark.timing

SECONDS = 2.0
TOLERANCE = 6.0
WHOLE = 20.0
"""The same below shares that are all of a card: what handing over takes is missing then, the more the later a machine
wakes its threads. How much it is at its best `bench/compute.py` measures."""
MEETING = 68
"""Percent of what a tenant has in which its kernels do not wait for one another, at least; without leases 60 to 66."""
SHARES = ((50, 50), (30, 60), (20, 40))


@pytest.fixture(scope="module")
def tools() -> Iterator[Programs]:
    """The compiled programs."""
    with programs() as made:
        yield made


def collectives(*shares: float) -> Case:
    """Each tenant launches kernels that wait for one another on two cards, in orders of a printed seed."""
    seed = random.SystemRandom().randrange(1 << 16)
    print(f"seed {seed}, shares {shares}")
    tenants = tuple(Tenant(share, (Load(cards=2, seed=seed),)) for share in shares)
    return Case("collectives", tenants, Question.COLLECTIVE, cards=2)


def launches(seen: Run) -> list[int]:
    """How many meetings each tenant has had; all that it began, for its program has ended."""
    return [sum(period.launches for period in one.periods) for one in seen.tenants]


def is_shared(tools: Programs, *shares: float) -> None:
    """Each has its share of each card, all its kernels meet, and most of its time they do not wait."""
    below = TOLERANCE if sum(shares) < 100 else WHOLE

    def lacking() -> float:
        case = collectives(*shares)
        seen = run(tools, case, SECONDS)
        got = [[seen.percent(index, card) for card in range(2)] for index in range(len(shares))]
        met = meeting(case, seen)
        print(got, met)
        assert min(launches(seen)) > 0
        errors = [percent - share for own, share in zip(got, shares, strict=True) for percent in own]
        assert max(errors) < TOLERANCE
        return min(min(errors) + below, min(met) - MEETING, 0)

    assert attempts(lacking, 0, 1e-9)[-1] == 0


def test_collectives_of_two_tenants_share_two_cards_by_their_shares(tools: Programs):
    """Nobody waits for ever, and each has its part of either card."""
    is_shared(tools, 30, 60)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_collectives_get_on_in_whatever_order(tools: Programs, shares: tuple[int, int]):
    """Five orders at random."""
    for _ in range(5):
        is_shared(tools, *shares)


def test_without_leases_collectives_get_on_as_well(tools: Programs):
    """The card's own turns give each its half: what the leases are held against is no deadlock of the simulation."""
    seen = run(tools, collectives(50, 50).bare(), SECONDS)
    assert min(launches(seen)) > SECONDS * 1000 / 10
