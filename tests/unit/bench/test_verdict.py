"""What is concluded from the runs of a case: every question has an answer that it likes and one that it does not."""

from dataclasses import replace

import pytest

from bench.timeshare.cases import Case, Load, Mode, Question, Tenant
from bench.timeshare.run import Period, Run, Seen
from bench.timeshare.verdict import answers, control_of, median, mix_errors
from tests.unit.bench.records import timeline

MS = 1_000_000
SECOND_NS = 1000 * MS
GREEDY, PAUSING = Load(), Load(idle_us=100_000, awake_ms=100)


def turns(percents: tuple[float, ...], periods: tuple[Period, ...] = ()) -> Run:
    """A second in which tenants had so much of every 10 ms, one after the other; the last one paused."""
    starts = [sum(percents[:index]) for index in range(len(percents))]
    seen = [
        Seen(
            (
                timeline(
                    (round((at + start / 10) * MS), round((at + (start + percent) / 10) * MS))
                    for at in range(0, 1000, 10)
                ),
            ),
            periods if index == len(percents) - 1 else (),
        )
        for index, (start, percent) in enumerate(zip(starts, percents, strict=True))
    ]
    card = timeline((round(at * MS), round((at + sum(percents) / 10) * MS)) for at in range(0, 1000, 10))
    return Run(0, SECOND_NS, tuple(seen), (card,), 50.0)


def case(question: Question, *tenants: Tenant, bound: float = 2.0) -> Case:
    """A case of so many tenants."""
    return Case("test", tenants, question, bound)


def is_met(asked: Case, run: Run, control: Run | None = None) -> bool:
    """Whether all figures are within their bounds."""
    return all(figure.is_met for figure in answers(asked, run, control))


@pytest.mark.parametrize(("got", "met"), [(28.5, True), (27.5, False), (31.5, True), (32.5, False)])
def test_an_exact_share_is_missed_on_either_side(got: float, *, met: bool):
    """Too little is as wrong as too much."""
    asked = case(Question.EXACT, Tenant(30, (GREEDY,)), Tenant(50, (GREEDY,)))
    assert is_met(asked, turns((got, 50))) is met


def test_caps_are_missed_above_only():
    """Who has less than its cap has not broken it."""
    asked = case(Question.CAPS, Tenant(30, (GREEDY,), Mode.BURST), Tenant(30, (GREEDY,), Mode.UNCAPPED))
    assert is_met(asked, turns((20, 31)))
    assert not is_met(asked, turns((33, 20)))


def test_a_bounded_burst_is_held_to_its_bound():
    """Where nobody else wants the card it is the limit that is exact."""
    asked = case(Question.EXACT, Tenant(30, (GREEDY,), Mode.BURST, limit=50))
    assert is_met(asked, turns((50,)))
    assert not is_met(asked, turns((30,)))


@pytest.mark.parametrize(
    ("got", "met"),
    [((60, 39), True), ((59, 39), True), ((69, 30), True), ((70, 29), False), ((59, 36), False)],
)
def test_a_guarantee_is_kept_where_nobody_has_less(got: tuple[float, float], *, met: bool):
    """More is welcome; an idle card is not."""
    asked = case(
        Question.GUARANTEE, Tenant(60, (GREEDY,), Mode.BURST), Tenant(30, (GREEDY,), Mode.BURST), bound=3.0
    )
    assert is_met(asked, turns(got)) is met


@pytest.mark.parametrize(
    ("shares", "mode", "got", "met"),
    [
        ((60, 30), Mode.CAPPED, (58.5, 29), True),
        ((60, 30), Mode.CAPPED, (57, 30), False),
        ((60, 30), Mode.CAPPED, (60, 33), False),
        ((50, 50), Mode.CAPPED, (48.6, 48.6), True),
        ((50, 50), Mode.CAPPED, (48.4, 48.4), False),
        ((30, 30), Mode.BURST, (58, 40), True),
        ((30, 30), Mode.BURST, (48, 48), False),
    ],
)
def test_what_is_held_beside_busy_loops(
    shares: tuple[int, int], mode: Mode, got: tuple[float, float], *, met: bool
):
    """Shares to two points; and where each part of the card is somebody's it idles for 3 % at most."""
    asked = case(Question.HELD, *(Tenant(share, (GREEDY,), mode) for share in shares))
    assert is_met(asked, turns(got)) is met


def test_a_capped_tenant_beside_burst_ones_gets_no_more_than_its_share():
    """What it leaves is the others'."""
    asked = case(Question.GUARANTEE, Tenant(30, (GREEDY,)), Tenant(30, (GREEDY,), Mode.BURST))
    assert is_met(asked, turns((30, 69)))
    assert not is_met(asked, turns((40, 59)))


def test_a_sleeper_is_back_when_it_runs_again_and_has_its_share():
    """A late first run is told, and a timely one that is not followed by its share."""
    asked = case(Question.WAKE, Tenant(30, (GREEDY,), Mode.BURST), Tenant(60, (PAUSING,)), bound=21.0)
    awake = (Period(100 * MS, 300 * MS), Period(500 * MS, 700 * MS))
    assert is_met(asked, turns((30, 60), awake))
    assert not is_met(asked, turns((60, 30), awake))
    late = turns((30, 60), awake)
    seldom = timeline([(150 * MS, 300 * MS), (500 * MS, 700 * MS)])
    assert not is_met(asked, replace(late, tenants=(late.tenants[0], Seen((seldom,), awake))))


@pytest.mark.parametrize(("seen_ms", "met"), [((5, 5), True), ((5, 30), False)])
def test_a_sleeper_that_wakes_at_the_end_is_late_if_it_was_seen_to_be(seen_ms: tuple[int, int], *, met: bool):
    """Two processes that had not run when the measurement ended: what is not known is not held against anybody."""
    asked = case(Question.WAKE, Tenant(30, (GREEDY,), Mode.BURST), Tenant(60, (PAUSING,)), bound=21.0)
    awake = (Period(100 * MS, 300 * MS), *(Period((1000 - seen) * MS, SECOND_NS) for seen in seen_ms))
    run = turns((30, 60), awake)
    until = timeline((at * MS, (at + 6) * MS) for at in range(0, 900, 10))
    assert is_met(asked, replace(run, tenants=(run.tenants[0], Seen((until,), awake)))) is met


def test_a_latency_is_what_is_added_to_the_same_alone():
    """The control's own is not held against the arbiter."""
    asked = case(Question.LATENCY, Tenant(50, (PAUSING,)), Tenant(50, (GREEDY,)), bound=6.0)

    def taking(milliseconds: int) -> Run:
        run = turns((1, 90))
        seen = Seen(run.tenants[0].timelines, (Period(0, milliseconds * MS),))
        return replace(run, tenants=(seen, run.tenants[1]))

    assert is_met(asked, taking(8), taking(3))
    assert not is_met(asked, taking(8), taking(1))


def test_a_lone_tenant_is_compared_with_itself():
    """One percent may be lost."""
    asked = case(Question.THROUGHPUT, Tenant(100, (GREEDY,), Mode.UNCAPPED), bound=99.0)
    assert is_met(asked, turns((89.5,)), turns((90,)))
    assert not is_met(asked, turns((88,)), turns((90,)))


@pytest.mark.parametrize(
    ("got", "rounds", "met"),
    [((30, 30), 250, True), ((30, 40), 250, False), ((30, 30), 200, False), ((30, 30), 239, False)],
)
def test_collectives_are_missed_on_either_card_and_where_they_wait(
    got: tuple[float, float], rounds: int, *, met: bool
):
    """A share on each card; of the time had most with kernels that have met; and more of them than without leases."""
    asked = replace(case(Question.COLLECTIVE, Tenant(30, (Load(cards=2),)), bound=3.0), cards=2)

    def meets(got: tuple[float, float], rounds: int) -> Run:
        first, second = (turns((percent,)) for percent in got)
        periods = (Period(0, SECOND_NS, rounds),)
        seen = Seen((first.tenants[0].timeline, second.tenants[0].timeline), periods)
        return replace(first, tenants=(seen,), cards=first.cards + second.cards)

    assert is_met(asked, meets(got, rounds), meets((50, 50), 245)) is met


@pytest.mark.parametrize(
    ("done", "met"), [((50, 50), True), ((45, 45), False), ((60, 60), True), ((30, 70), False)]
)
def test_long_leases_get_tenants_further_together_and_each_of_them(done: tuple[int, int], *, met: bool):
    """Against what the same tenants did with leases as usual."""
    load = Load(memory_mib=640, managed=True)
    asked = replace(case(Question.THRASH, *[Tenant(50, (load,))] * 2, bound=200), quanta=True)

    def doing(*launches: int) -> Run:
        both = turns((50, 50))
        seen = (
            replace(one, periods=(Period(0, SECOND_NS, count),))
            for one, count in zip(both.tenants, launches, strict=True)
        )
        return replace(both, tenants=tuple(seen))

    control = control_of(asked)
    assert control is not None
    assert not control.quanta
    assert is_met(asked, doing(*done), doing(25, 25)) is met


def test_in_a_mix_pauses_are_not_held_against_anybody():
    """Who pauses is owed its share of the time it had work, after a grace, and who does not of all the time."""
    asked = case(Question.MIX, Tenant(40, (GREEDY,)), Tenant(30, (PAUSING,)))
    half = (Period(0, 500 * MS),)
    assert is_met(asked, turns((40, 27.8), half))
    assert mix_errors(asked, turns((40, 30), half))[1] <= 0
    assert not is_met(asked, turns((40, 20), half))
    assert not is_met(asked, turns((36, 30), half))
    assert not is_met(asked, turns((40, 33), half))


def test_controls_are_without_the_interceptor():
    """A latency's is the first tenant alone."""
    both = (Tenant(50, (PAUSING,)), Tenant(50, (GREEDY,)))
    control = control_of(case(Question.LATENCY, *both))
    assert control is not None
    assert [tenant.bare for tenant in control.tenants] == [True]
    assert control_of(case(Question.EXACT, *both)) is None


def test_the_median_of_runs_keeps_the_bound():
    """One run of three may be off."""
    asked = case(Question.EXACT, Tenant(30, (GREEDY,)))
    found = [answers(asked, turns((got,)), None)[0] for got in (30, 45, 31)]
    assert median(found).value == pytest.approx(1.0)
    assert median(found).is_met
