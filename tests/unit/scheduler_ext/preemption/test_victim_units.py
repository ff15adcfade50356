"""Which units leave: as few as are needed of those that go most gladly, found in a bounded time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.scheduler_ext.preemption.victim_units import MOST_SECONDS, TooLongError, Unit, UnitSearch
from aliquot.scheduler_ext.state.running_pods import RunningPod


def resident(number: int, started: float = 0.0) -> RunningPod:
    """A pod."""
    return RunningPod(
        f"{number}", "default", f"{number}", 0, burst=False, started=started, leaves_by=None, labels={}
    )


def unit(number: int) -> Unit:
    """One pod."""
    return Unit((False, True, False, 0, False), (resident(number),))


UNITS = [unit(number) for number in range(40)]


def found(fitting: set[frozenset[str]], count: int) -> set[str]:
    """Who leaves of so many units, where any of these sets is enough."""
    search = UnitSearch(lambda uids: any(one <= set(uids) for one in fitting), lambda: 0.0)
    return {pod.uid for pod in asyncio.run(search.least(UNITS[:count]))}


SETS = st.sets(st.integers(0, 39).map(str), min_size=1, max_size=6).map(frozenset)


@given(st.sets(SETS, min_size=1, max_size=5), st.integers(1, 40))
def test_enough_leave_and_none_of_them_could_stay(fitting: set[frozenset[str]], count: int):
    """Nobody, where all are not enough; and nobody who is less willing than is needed at all."""
    there = {str(number) for number in range(count)}
    possible = [one for one in fitting if one <= there]
    chosen = found(fitting, count)
    assert bool(chosen) == bool(possible)
    assert not chosen or any(one == chosen for one in possible)
    if possible:
        assert max(map(int, chosen)) <= min(max(map(int, one)) for one in possible)


def test_a_search_ends_when_it_has_taken_its_time():
    """Each look takes a second."""
    clock = itertools.count()
    search = UnitSearch(lambda _: False, lambda: float(next(clock)))
    for _ in range(int(MOST_SECONDS) + 1):
        assert asyncio.run(search.least(UNITS[:1])) == []
    with pytest.raises(TooLongError):
        asyncio.run(search.least(UNITS[:1]))


def test_units_are_compared_by_their_least_willing_pod_then_their_number_then_their_age():
    """The youngest of equals goes first."""
    low, high = (False, True, False, 0, False), (False, True, False, 1, False)
    young, old = (resident(0, started) for started in (20.0, 10.0))
    ordered = [Unit(low, (young,)), Unit(low, (old,)), Unit(low, (young, old)), Unit(high, (young,))]
    mixed = [ordered[at] for at in (2, 3, 1, 0)]
    assert sorted(mixed, key=lambda one: one.reluctance) == ordered
