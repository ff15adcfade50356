"""A small part of `make -C bench compute`, with bounds that noise does not break, and the programs it stands on."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from bench.timeshare.cases import Case, Law, Load, Tenant, all_cases
from bench.timeshare.mixes import mix
from bench.timeshare.processes import RunError
from bench.timeshare.run import Programs, Run, programs, run
from bench.timeshare.verdict import beyond, mix_errors

pytestmark = pytest.mark.timing

MS = 1_000_000
SECONDS = 2.0
SECONDS_OF_A_MIX = 8.0
"""Who pauses has had only a few periods in less."""
TOLERANCE = 6.0


@pytest.fixture(scope="module")
def tools() -> Iterator[Programs]:
    """The compiled programs."""
    with programs() as made:
        yield made


def bare(tools: Programs, *loads: Load) -> Run:
    """Processes of one tenant without the interceptor."""
    return run(tools, Case("test", (Tenant(100, loads, bare=True),), law=Law.FREE), 0.5)


def test_a_greedy_load_keeps_the_card_busy(tools: Programs):
    """Up to its own wake-ups."""
    assert bare(tools, Load((5000,))).percent(0) > 80


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
    """One with pauses as long as its work, and one that comes half-way: together three quarters of the card."""
    pausing, late = Load((5000,), sync=1, idle_us=5000), Load((5000,), after_ms=250)
    assert 55 < bare(tools, pausing, late).percent(0) < 90


def test_a_program_that_cannot_start_is_told(tools: Programs):
    """A run is not taken for an idle tenant's."""
    with pytest.raises(RunError, match="before it was ready"):
        bare(tools, Load(threads=100))


EVERYDAY = ("single/30/1ms-grid2112-sync64", "pair/30-30/0.1ms-20ms", "burst/30-30/1ms-1ms")
"""Cases that leave time on the card, for what a busy machine loses of it."""


def watched(tools: Programs, case: Case, seconds: float) -> Run:
    """A run in which nobody had more than it may, however busy this machine is."""
    seen = run(tools, case, seconds)
    assert max(beyond(case, seen)) < TOLERANCE
    return seen


@pytest.mark.parametrize("name", EVERYDAY)
def test_tenants_get_the_time_they_bought(tools: Programs, name: str):
    """By the card's own record, in the everyday part of the table."""
    case = next(case for case in all_cases() if case.name == name)
    seen = watched(tools, case, SECONDS)
    print([tenant.timeline.percent(seen.begin_ns, seen.end_ns) for tenant in seen.tenants])
    assert max(mix_errors(case, seen)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(10))
def test_in_random_mixes_tenants_get_their_shares(tools: Programs, number: int):
    """Nobody is short of its share while it has work, nor far beyond what it may have."""
    case = mix(1, number)
    assert max(mix_errors(case, watched(tools, case, SECONDS_OF_A_MIX))) < TOLERANCE, case
