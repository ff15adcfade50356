"""A small part of `make bench-compute`, with bounds that noise does not break, and the programs it stands on."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from bench.timeshare.cases import Case, Law, Load, Tenant, all_cases
from bench.timeshare.mixes import mix
from bench.timeshare.run import Programs, Run, RunError, programs, run
from bench.timeshare.verdict import mix_errors
from tests.native.attempts import attempts

MS = 1_000_000
SECONDS = 2.0
TOLERANCE = 6.0
MIX_SECONDS = 4.0


@pytest.fixture(scope="module")
def tools() -> Iterator[Programs]:
    """The compiled programs."""
    with programs() as made:
        yield made


def bare(tools: Programs, *loads: Load, seconds: float = 0.5) -> Run:
    """Processes of one tenant without the interceptor."""
    return run(tools, Case("test", (Tenant(100, loads, bare=True),), law=Law.FREE), seconds)


def test_a_greedy_load_keeps_the_card_busy(tools: Programs):
    """Up to its own wake-ups."""
    assert attempts(lambda: bare(tools, Load()).percent(0), 100, 10)[-1] > 80


def test_a_load_pauses_as_it_is_told(tools: Programs):
    """Awake for 50 ms, away for 50 ms, and its periods say so."""
    seen = bare(tools, Load(sync=4, idle_us=50_000, awake_ms=50)).tenants[0]
    assert len(seen.periods) >= 3
    for period in seen.periods[:-1]:
        assert period.end_ns - period.begin_ns >= 50 * MS
        assert seen.timeline.ran(period.begin_ns, period.end_ns) > 0
    for one, following in pairwise(seen.periods):
        assert following.begin_ns - one.end_ns >= 50 * MS
        assert seen.timeline.ran(one.end_ns, following.begin_ns) == 0


def test_a_load_of_graphs_runs_their_kernels(tools: Programs):
    """Four of 5 ms each are 20 ms of the card's, in one piece."""
    seen = bare(tools, Load((5000,), sync=1, graph=4, idle_us=10_000)).tenants[0]
    first = seen.periods[0]
    assert seen.timeline.ran(first.begin_ns, first.end_ns) == pytest.approx(20 * MS)


def test_loads_of_two_processes_are_one_tenant(tools: Programs):
    """Their time is counted together."""
    late = Load(after_ms=250)
    both = attempts(lambda: bare(tools, Load((1000,), idle_us=1000, sync=1), late).percent(0), 75, 15)[-1]
    assert 55 < both < 90


def test_a_program_that_cannot_start_is_told(tools: Programs):
    """A run is not taken for an idle tenant's."""
    with pytest.raises(RunError, match="before it was ready"):
        bare(tools, Load(threads=100))


EVERYDAY = ("single/30/free",)


@pytest.mark.parametrize("name", EVERYDAY)
def test_tenants_get_the_time_they_bought(tools: Programs, name: str):
    """By the card's own record, in the everyday part of the table."""
    case = next(case for case in all_cases() if case.name == name)

    def worst() -> float:
        seen = run(tools, case, SECONDS)
        return max(abs(seen.percent(index) - tenant.share) for index, tenant in enumerate(case.tenants))

    assert attempts(worst, 0, TOLERANCE)[-1] < TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_random_mixes(tools: Programs):
    """Nobody is short of its share while it has work, nor far beyond what it may have."""
    seed = 1
    print(f"seed {seed}")
    for number in range(10):
        case = mix(seed, number)
        found = attempts(lambda case=case: max(mix_errors(case, run(tools, case, MIX_SECONDS))), 0, TOLERANCE)
        assert found[-1] < TOLERANCE, case
