"""What is concluded from the runs of a workload, and whether the table of workloads makes sense."""

from collections import defaultdict

import pytest

from bench.timeshare.workload_run import SOURCES, Done
from bench.timeshare.workload_verdict import figures
from bench.timeshare.workloads import WHOLE, Job, Mode, Question, Tenant, Workload, all_workloads

MS = 1_000_000


def done(took: float, used: float = 0, charged: float = 0, **told: float) -> tuple[Done, ...]:
    """One tenant that took so many milliseconds."""
    return (Done(0, round(took * MS), round(used * MS), round(charged * MS), 0, told),)


def asked(question: Question, bound: float, share: int = WHOLE) -> Workload:
    """A workload of one program."""
    return Workload("test", (Tenant((Job("streams"),), share),), question, bound)


def met(workload: Workload, bare: tuple[Done, ...], own: tuple[Done, ...]) -> list[bool]:
    """Whether the figures of a slice are within their bounds; under a lease all is as without."""
    found = figures(workload, {Mode.BARE: [bare], Mode.SLICE: [own], Mode.LEASE: [bare]})
    return [figure.is_met for figure in found if figure.name.startswith("slice")]


@pytest.mark.parametrize(("took", "is_met"), [(102, True), (104, False), (90, True)])
def test_a_program_that_is_alone_takes_no_longer_than_without(took: float, *, is_met: bool):
    """Though its share is a percent less than all of the card."""
    assert met(asked(Question.TIME, 1.03), done(100, 100), done(took, 100)) == [is_met]


@pytest.mark.parametrize(("took", "is_met"), [(204, True), (208, False)])
def test_a_program_with_half_of_the_card_takes_twice_as_long(took: float, *, is_met: bool):
    """Where it used all of it without."""
    assert met(asked(Question.TIME, 1.03, 50), done(100, 100), done(took, 100)) == [is_met]


def test_a_program_with_more_than_it_uses_takes_no_longer():
    """30 % of the card is enough for a program that uses 10 %."""
    assert met(asked(Question.TIME, 1.03, 30), done(100, 10), done(102, 10)) == [True]
    assert met(asked(Question.TIME, 1.03, 30), done(100, 10), done(110, 10)) == [False]


@pytest.mark.parametrize(
    ("took", "charged", "is_met"),
    [
        (100, 10, [True, True]),
        (108, 10, [True, True]),
        (120, 10, [False, True]),
        (100, 11.5, [True, False]),
        (100, 8.5, [True, False]),
    ],
)
def test_a_program_that_pauses_uses_what_it_did_and_is_charged_that(
    took: float, charged: float, is_met: list[bool]
):
    """To a point of the card, and to a tenth of what it used."""
    workload = asked(Question.USE, 1.0, 30)
    assert met(workload, done(100, 10), done(took, 10, charged)) == is_met


def test_a_program_that_wants_more_than_its_share_uses_that():
    """30 % of the card, not the 50 that it used without."""
    workload = asked(Question.USE, 1.0, 30)
    assert met(workload, done(100, 50), done(167, 50, 50)) == [True, True]
    assert met(workload, done(100, 50), done(100, 50, 50)) == [False, True]


def test_of_ranks_the_slower_counts():
    """Both make the same steps, and one of them says so first."""
    both = done(100, steps_per_s=200) + done(100, steps_per_s=100)
    assert met(asked(Question.STEPS, 99), both, both) == [True]
    assert met(asked(Question.STEPS, 101), both, both) == [False]


@pytest.mark.parametrize(("event_ms", "is_met"), [(10.2, True), (9.8, True), (10.4, False), (9.6, False)])
def test_events_measure_what_they_do_without(event_ms: float, *, is_met: bool):
    """Too short is as wrong as too long."""
    bare, own = done(100, event_ms=10), done(100, event_ms=event_ms)
    assert met(asked(Question.EVENTS, 3.0), bare, own) == [is_met]


def test_a_figure_is_the_median_of_the_runs():
    """One run that was held up says nothing."""
    bare, slow = done(100, 100), done(1000, 100)
    found = figures(
        asked(Question.TIME, 1.03),
        {Mode.BARE: [bare, bare, bare], Mode.SLICE: [bare, slow, bare], Mode.LEASE: [slow, bare, slow]},
    )
    assert [(figure.name, figure.value) for figure in found] == [("slice_to_bare", 1), ("lease_to_bare", 10)]


def test_every_workload_can_run():
    """Each has a name of its own, programs that exist, and no more of a card than there is."""
    workloads = all_workloads()
    assert len({workload.name for workload in workloads}) == len(workloads)
    for workload in workloads:
        shares: dict[int, int] = defaultdict(int)
        for tenant in workload.tenants:
            assert all((SOURCES / f"{job.program}.c").exists() for job in tenant.jobs), workload.name
            shares[tenant.card] += tenant.share
        assert max(shares.values()) <= 100, workload.name
        assert max(shares) == workload.cards - 1, workload.name


def test_every_program_is_in_the_table():
    """None is built for nothing."""
    programs = {path.stem for path in SOURCES.glob("*.c")} - {"program"}
    assert programs == {
        job.program for one in all_workloads() for tenant in one.tenants for job in tenant.jobs
    }
