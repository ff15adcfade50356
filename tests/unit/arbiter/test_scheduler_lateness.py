"""Where a node's CPUs are busy a holder may have more in flight, and holds the card for longer."""

import time
from pathlib import Path
from typing import Any

import pytest

from aliquot.arbiter import LATENESS_BOUNDS_S, Terms
from tests.unit.arbiter.house import house
from tests.unit.arbiter.modelled import CARD, MS, US, S
from tests.unit.arbiter.scheduler_by_hand import Scheduler


def leased(late_ns: int, *, above: int = 0) -> tuple[int, int]:
    """A new lease and its window, where two tenants want the card and, if so, one of higher priority may come."""
    scheduler = Scheduler()
    tenants: list[Any] = [scheduler.enter(CARD), scheduler.enter(CARD)]
    if above:
        scheduler.enter(CARD, priority=above)
    scheduler.late(late_ns)
    for tenant in tenants:
        scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    (holder,) = (tenant for tenant in tenants if scheduler.is_open(tenant, 0))
    return scheduler.lease(holder, 0)


def test_on_time_leases_are_as_usual():
    """10 ms, with work for 2 ms in flight."""
    assert leased(0) == (10 * MS, 2 * MS)


def test_the_later_threads_are_woken_the_more_may_be_in_flight():
    """And the longer is the lease. Both up to a bound, whatever is said."""
    found = [leased(late) for late in (0, 20 * US, 200 * US, 2 * MS, 10 * S)]
    assert found == sorted(set(found))
    assert found[1] < (14 * MS, 3 * MS)
    assert found[2] == (25 * MS, 5 * MS)
    assert found[-1] <= (40 * MS, 8 * MS)


def test_who_has_priority_does_not_wait_for_more_work():
    """What is in flight before it stays a millisecond."""
    assert leased(2 * MS, above=9)[1] == 1 * MS


def test_long_leases_stay_as_they_were_asked_for():
    """They are longer by far."""
    scheduler = Scheduler()
    first, second = scheduler.enter(CARD), scheduler.enter(CARD)
    scheduler.quantum(CARD, 500 * MS)
    scheduler.late(2 * MS)
    for tenant in (first, second):
        scheduler.say(tenant, 0, waiting=1)
    scheduler.step()
    assert 500 * MS in {scheduler.lease(tenant, 0)[0] for tenant in (first, second)}


@pytest.mark.parametrize("polls", [False, True])
def test_the_arbiter_counts_how_late_it_wakes(tmp_path: Path, polls: bool):
    """Each sleep to its end is in one place of the histogram, and in the sum."""
    with house(tmp_path, polls=polls) as home:
        home.tenant("a", Terms(CARD, 5000, 50))
        end = time.monotonic() + 60
        while not sum(home.arbiter.lateness().counts) and time.monotonic() < end:
            time.sleep(0.01)
        late = home.arbiter.lateness()
    least = (0.0, *LATENESS_BOUNDS_S)
    assert sum(late.counts) > 0
    assert late.sum_s >= sum(bound * count for bound, count in zip(least, late.counts, strict=True))
