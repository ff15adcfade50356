"""What the runs of a case say about its question."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .cases import Case, Mode, Question, Tenant
from .run import Run, Seen
from .timeline import percentile

SLACK = 0.3
"""Points below a guarantee that the card's own rounding is worth."""
PART = 40.0
"""Percent of what two equal tenants get done, of the one that got less done."""
MEETING = 80.0
"""Percent: what is lost to a neighbour that has one of two cards, and to being woken when the other kernel has come."""
WHOLE = 100.0
GRACE_NS = 40_000_000
"""In a mix, from when a tenant has work again until it has its share: a lease, a kernel, and the way there."""


@dataclass(frozen=True)
class Figure:
    """A number with a bound."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether it is on the right side of it."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def answers(case: Case, run: Run, control: Run | None) -> list[Figure]:
    """The figures of one run; `control`: that of `control_of`."""
    by_itself = {Question.GUARANTEE: _guarantee, Question.HELD: _held, Question.WAKE: _wake}
    if case.question in by_itself:
        return by_itself[case.question](case, run)
    match case.question:
        case Question.LATENCY | Question.THROUGHPUT | Question.COLLECTIVE | Question.THRASH:
            assert control is not None
            return _compared(case, run, control)
        case Question.LENT:
            return [Figure("got", run.percent(0), case.bound, at_least=True)]
        case Question.CAPS:
            beyond = [run.percent(index) - tenant.share for index, tenant in enumerate(case.tenants)]
            return [Figure("beyond", max(beyond), case.bound)]
    errors = mix_errors(case, run) if case.question is Question.MIX else _errors(case, run)
    return [Figure("error", max(errors), case.bound)]


def _compared(case: Case, run: Run, control: Run) -> list[Figure]:
    """Against the run of `control_of`."""
    if case.question is Question.LATENCY:
        added = _p99_ms(run.tenants[0]) - _p99_ms(control.tenants[0])
        return [Figure("added_p99_ms", added, case.bound)]
    if case.question is Question.THROUGHPUT:
        return [Figure("to_bare", 100 * run.percent(0) / control.percent(0), case.bound, at_least=True)]
    if case.question is Question.THRASH:
        done = [launches(seen) for seen in run.tenants]
        return [
            Figure("to_short", _more(run, control), case.bound, at_least=True),
            Figure("least", 100 * min(done) / max(1, sum(done)), PART, at_least=True),
        ]
    return [
        Figure("error", max(_errors_on_all(case, run)), case.bound),
        Figure("meeting", min(meeting(case, run)), MEETING, at_least=True),
        Figure("to_bare", _more(run, control), 100, at_least=True),
    ]


def median(figures: Sequence[Figure]) -> Figure:
    """Of the same figure of several runs."""
    middle = statistics.median(figure.value for figure in figures)
    return Figure(figures[0].name, middle, figures[0].bound, figures[0].at_least)


def _errors(case: Case, run: Run) -> list[float]:
    return [abs(run.percent(index) - tenant.most) for index, tenant in enumerate(case.tenants)]


def _errors_on_all(case: Case, run: Run) -> list[float]:
    return [
        abs(run.percent(index, card) - tenant.most)
        for index, tenant in enumerate(case.tenants)
        for card in range(case.cards)
    ]


def launches(seen: Seen) -> int:
    """How much a tenant got done."""
    return sum(period.launches for period in seen.periods)


def _more(run: Run, control: Run) -> float:
    """What all tenants together got done, in percent of what they did in the other run."""
    return 100 * sum(map(launches, run.tenants)) / max(1, sum(map(launches, control.tenants)))


def meeting(case: Case, run: Run) -> list[float]:
    """Of the time that each tenant had of each card, percent in which its kernels did not wait for one another."""
    lengths_ns = (1000 * statistics.mean(tenant.loads[0].kernel_us) for tenant in case.tenants)
    return [
        100 * launches(seen) * length_ns / max(1, ran)
        for seen, length_ns in zip(run.tenants, lengths_ns, strict=True)
        for ran in (one.ran(run.begin_ns, run.end_ns) for one in seen.timelines)
    ]


def _guarantee(case: Case, run: Run) -> list[Figure]:
    """Of the time that the card ran anybody, no share is less than was bought; the idle rest is bounded apart."""
    short = []
    for index, tenant in enumerate(case.tenants):
        got = run.percent(index)
        if tenant.mode is Mode.CAPPED:
            short.append(abs(got - tenant.share))
        else:
            short.append(tenant.share - 100 * got / (100 - run.idle_percent))
    bounds = [2.0 if tenant.mode is Mode.CAPPED else SLACK for tenant in case.tenants]
    figures = [
        Figure(f"tenant{index}.short", value, bound)
        for index, (value, bound) in enumerate(zip(short, bounds, strict=True))
    ]
    return [*figures, Figure("idle", run.idle_percent, case.idle)]


def _held(case: Case, run: Run) -> list[Figure]:
    """The largest error of a share, and the idle time if somebody may have each part of the card."""
    short = [tenant.share - run.percent(index) for index, tenant in enumerate(case.tenants)]
    figures = [Figure("error", max(0.0, *short, *beyond(case, run)), case.bound)]
    if sum(tenant.most for tenant in case.tenants) >= WHOLE:
        figures.append(Figure("idle", run.idle_percent, case.idle))
    return figures


def _wake(case: Case, run: Run) -> list[Figure]:
    """How late the last tenant ran after each waking, and its part of the time from then on."""
    sleeper, grace_ns = run.tenants[-1], case.bound * 1e6
    late = list(_delays(sleeper, grace_ns))
    rest = [
        (period.begin_ns + grace_ns, period.end_ns)
        for period in sleeper.periods
        if period.end_ns > period.begin_ns + grace_ns
    ]
    ran = sum(sleeper.timeline.ran(begin, end) for begin, end in rest)
    share = 100 * ran / max(1, sum(end - begin for begin, end in rest))
    return [
        Figure("back_ms", percentile(late, 99) / 1e6, case.bound),
        Figure("share_then", share, case.tenants[-1].share - case.points, at_least=True),
    ]


def _delays(sleeper: Seen, enough_ns: float) -> Iterator[float]:
    """From each waking to the first run after it.

    One that had not run when the measurement ended counts for as long as it was seen to wait, and not at all if that
    is less than what it may wait.
    """
    for period in sleeper.periods:
        first_ns = sleeper.timeline.first_run(period.begin_ns)
        if first_ns < period.end_ns:
            yield first_ns - period.begin_ns
        elif period.end_ns - period.begin_ns >= enough_ns:
            yield period.end_ns - period.begin_ns


def _p99_ms(seen: Seen) -> float:
    return percentile([(period.end_ns - period.begin_ns) / 1e6 for period in seen.periods], 99)


def mix_errors(case: Case, run: Run) -> list[float]:
    """Points by which each tenant has less than its share of the time in which it had work, or more than it may."""
    short = (_short(tenant, run, index) for index, tenant in enumerate(case.tenants))
    return list(map(max, beyond(case, run), short))


def beyond(case: Case, run: Run) -> list[float]:
    """Points by which each tenant has more than it may: what no busy moment of this machine can do."""
    return [run.percent(index) - tenant.most for index, tenant in enumerate(case.tenants)]


def _short(tenant: Tenant, run: Run, index: int) -> float:
    if all(load.is_greedy for load in tenant.loads):
        return tenant.share - run.percent(index)
    seen = run.tenants[index]
    short_ns = sum(
        max(
            0.0,
            tenant.share / 100 * (period.end_ns - period.begin_ns - GRACE_NS)
            - seen.timeline.ran(period.begin_ns, period.end_ns),
        )
        for period in seen.periods
    )
    return 100 * short_ns / (run.end_ns - run.begin_ns)


def control_of(case: Case) -> Case | None:
    """The run without the interceptor, or without long leases, that a question is asked against."""
    match case.question:
        case Question.LATENCY:
            bare = case.bare()
            return Case(f"{case.name}/control", bare.tenants[:1], law=bare.law, concurrent=case.concurrent)
        case Question.THROUGHPUT | Question.MIX | Question.COLLECTIVE:
            return case.bare()
        case Question.THRASH:
            return replace(case, quanta=False)
    return None
