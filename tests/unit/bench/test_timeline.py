"""The arithmetic on a card's record."""

import math

import pytest

from bench.timeshare.timeline import percentile
from tests.unit.bench.records import timeline

MS = 1_000_000


def test_overlapping_and_touching_intervals_count_once():
    """Whatever their order."""
    line = timeline([(50, 60), (0, 10), (5, 20), (20, 30), (52, 55)])
    assert line.ran(0, 100) == 40
    assert line.ran(8, 55) == 27
    assert line.percent(0, 40) == 75


def test_time_outside_of_the_record_is_idle():
    """Before its first and after its last interval nobody ran, nor in an empty one."""
    line = timeline([(100, 200)])
    assert line.ran(0, 100) == 0
    assert line.ran(150, 1000) == 50
    assert timeline([]).ran(0, 1000) == 0


def test_the_next_run_is_now_while_somebody_runs():
    """Else the next start; infinitely late when there is none."""
    line = timeline([(10, 20), (40, 50)])
    assert [line.first_run(at) for at in (0, 15, 20, 45)] == [10, 15, 40, 45]
    assert line.first_run(50) == math.inf


def test_the_deviation_is_that_of_windows_of_100_ms():
    """0 and 100 percent in turn deviate by 50 points, and within a window nothing is seen."""
    turns = timeline([(0, 100 * MS), (200 * MS, 300 * MS)])
    assert turns.deviation(0, 400 * MS) == pytest.approx(50)
    even = timeline([(at * MS, (at + 5) * MS) for at in range(0, 400, 10)])
    assert even.deviation(0, 400 * MS) == pytest.approx(0)


def test_a_percentile_of_nothing_is_never_met():
    """A tenant that was never seen is not quick."""
    assert percentile([], 99) == math.inf
    assert percentile([1.0, 3.0], 50) == 2.0
