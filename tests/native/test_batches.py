"""What batches of a tenant are charged, by the interceptor's own accounts, beside the union of their times."""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aliquot.libshim._pages import lib
from tests.native.shells import CLIENTS

LIBSHIM = Path(__file__).parents[2] / "libshim"
ACCOUNTS = ("batch.c", "flight.c", "measurement.c", "charge.c", "intervals.c", "core_clock.c")
MS = 1_000_000
BEGIN = 1_000_000 * MS
CREDIT = 50 * MS


@dataclass(frozen=True)
class Batch:
    """When one was opened, when it ran, and when that was seen; in nanoseconds from BEGIN on."""

    opened: int
    start: int
    end: int
    stream: int
    seen: int = 0
    """As soon as it has ended, if nothing is said."""
    process: int = 0

    count: int = 1
    """Works of a microsecond each, all but the first by a ticket."""
    submitted: int = 0
    """When the last of them was."""


@dataclass(frozen=True)
class Account:
    """What was charged, and the instant from BEGIN on until which the clock is paid."""

    busy: int
    paid_until: int
    ahead: int
    """For how long another stream's work would find the card busy."""
    samples: int
    """Batches that nothing joined, so that their one work was measured."""


def compiled(directory: Path, name: str, *others: str) -> Path:
    """A program on the interceptor's own accounts, which says itself what time it is."""
    sources = [LIBSHIM / "src" / other for other in (*ACCOUNTS, *others)]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wl,--wrap=aq_now_ns", "-lpthread"]
    include = [f"-I{LIBSHIM / 'include'}", f"-I{LIBSHIM / 'src'}"]
    subprocess.run(
        ["cc", *include, "-o", directory / name, CLIENTS / f"{name}.c", *sources, *flags], check=True
    )
    return directory / name


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that opens and ends batches when it is told to."""
    return compiled(tmp_path_factory.mktemp("batches"), "batch_steps")


def told(process: subprocess.Popen[str], line: str) -> Account:
    """What the tenant's account is when a process has done something."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    busy, paid_until, ahead, samples = map(int, process.stdout.readline().split())
    return Account(busy, paid_until - BEGIN, ahead, samples)


def account(steps: Path, batches: Sequence[Batch], share: int = 30, until: int | None = None) -> Account:
    """What they are charged, opened and seen to have ended in the order of time; before that a process looks."""
    lines: list[tuple[int, int, str]] = []
    for number, one in enumerate(batches):
        opened, seen = BEGIN + one.opened, BEGIN + max(one.seen, one.end)
        lines.append((opened, one.process, f"open {number} {one.stream + 16} {opened}"))
        if one.count > 1:
            more = BEGIN + one.submitted
            lines.append((more, one.process, f"more {number} {one.count - 1} {more}"))
        lines.append((seen, one.process, f"look {seen}"))
        lines.append((seen, one.process, f"end {number} {BEGIN + one.start} {BEGIN + one.end} {seen}"))
    page = steps.with_name("usage")
    page.write_bytes(bytes(lib.AQ_USAGE_SIZE))
    command = [steps, page, str(100 * share)]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(1 + max(one.process for one in batches))
        ]
        found = [
            told(processes[process], line)
            for when, process, line in sorted(lines, key=lambda line: line[0])
            if until is None or when <= BEGIN + until
        ]
    return found[-1]


PACED = Batch(0, 10_000, 9 * MS + 5000, stream=0, count=100, submitted=9 * MS)
"""A hundred works of a microsecond, the last of which was submitted after 9 ms."""


def test_time_between_works_in_which_the_card_had_nothing_to_do_is_not_charged(steps: Path):
    """Each costs what it takes by itself."""
    assert account(steps, [PACED]).busy == 100_000


def test_what_was_submitted_before_it_ran_is_charged_as_its_events_say(steps: Path):
    """However little the like of it took before: its stream was busy all the time."""
    assert account(steps, [replace(PACED, submitted=PACED.start)]).busy == PACED.end - PACED.start


def test_from_the_last_submission_on_the_stream_was_busy(steps: Path):
    """So a batch costs that much at the least."""
    assert account(steps, [replace(PACED, submitted=4 * MS)]).busy == PACED.end - 4 * MS


@pytest.mark.parametrize(("submitted", "least", "most"), [(9 * MS, 25, 75), (10_000, 0, 0)])
def test_of_a_program_that_leaves_gaps_some_works_are_measured_alone(
    steps: Path, submitted: int, least: int, most: int
):
    """About one batch in eight of 400; of one that leaves none its batches say enough."""
    again = [
        replace(
            PACED,
            opened=n * 10 * MS,
            start=n * 10 * MS + 10_000,
            end=n * 10 * MS + PACED.end,
            submitted=n * 10 * MS + submitted,
        )
        for n in range(400)
    ]
    assert least <= account(steps, again).samples <= most


def test_what_ran_in_the_gaps_of_another_stream_is_charged(steps: Path):
    """The gaps are not the first one's, so they are free for whoever fills them."""
    dense = Batch(1 * MS, 2 * MS, 4 * MS, stream=1, seen=10 * MS)
    assert account(steps, [PACED, dense]).busy == pytest.approx(2 * MS + 100_000, abs=50_000)


@pytest.mark.parametrize(("until", "charged"), [(400, 1100), (40_000, 1000)])
def test_time_before_the_first_work_was_submitted_is_not_charged(steps: Path, until: int, charged: int):
    """A stream that has nothing to do reaches a start event at once.

    The work is taken to have begun a quarter of the time before the call that submitted it returned. Of a thread that
    was held up meanwhile what the like of it took is believed.
    """
    single = Batch(5000 + until, 5000, 6400, stream=0, seen=MS)
    assert account(steps, [single]).busy == charged


@pytest.mark.parametrize(("us", "in_the_way"), [(1, 0.0), (2.5, 0.5), (4, 1.0)])
def test_streams_learn_how_much_they_are_in_each_others_way(steps: Path, us: float, in_the_way: float):
    """Four streams with a work of a microsecond each, which take so long side by side.

    The card runs them at once, or in turn. How many there were is known as of their beginnings and ends.
    """
    rounds = [
        Batch(n * MS, n * MS + 1000, n * MS + 1000 + round(us * 1000), stream, seen=n * MS + 100_000 + stream)
        for n in range(60)
        for stream in range(4)
    ]
    ahead = account(steps, rounds, until=59 * MS).ahead
    assert ahead == pytest.approx(in_the_way * 4000, abs=600)


def union(batches: Iterable[Batch]) -> int:
    """For how long any of them ran."""
    total = until = 0
    for one in sorted(batches, key=lambda one: one.start):
        total += max(0, one.end - max(one.start, until))
        until = max(until, one.end)
    return total


def test_what_waits_for_the_host_makes_nothing_free(steps: Path):
    """It was submitted first and runs last; all the others run before it."""
    stuck = Batch(0, 150 * MS, 151 * MS, stream=0)
    others = [Batch(n * MS + 1, n * MS + 2, (n + 1) * MS, stream=1) for n in range(140)]
    assert account(steps, [stuck, *others]).busy == union([stuck, *others])


@pytest.mark.parametrize("count", [16, 64, 512])
def test_a_long_kernel_over_many_short_ones_is_charged_in_full(steps: Path, count: int):
    """However many pauses there are between these."""
    long = Batch(0, MS, 1003 * MS, stream=0)
    step = 1000 * MS // count
    short = [
        Batch(2 * MS + n * step - 1, 2 * MS + n * step, 2 * MS + n * step + MS // 10, 1) for n in range(count)
    ]
    assert account(steps, [long, *short]).busy == union([long, *short])


def test_a_long_past_blurs_nothing(steps: Path):
    """A kernel that was seen last fits in between two others, after many that are long over."""
    past = [Batch(n * 100 * MS, n * 100 * MS + 1, n * 100 * MS + MS, stream=0) for n in range(40)]
    now = 4000 * MS
    before, after = Batch(now, now, now + 50 * MS, 0), Batch(now + 59 * MS, now + 60 * MS, now + 110 * MS, 0)
    between = Batch(now, now + 50 * MS, now + 60 * MS, stream=1, seen=now + 111 * MS)
    assert account(steps, [*past, before, after, between]).busy == union([*past, before, after, between])


@pytest.mark.parametrize("share", [30, 80])
@pytest.mark.parametrize("length", [100, 200, 1000])
def test_a_short_kernel_that_ends_under_a_long_one_makes_it_no_dearer(steps: Path, share: int, length: int):
    """It is charged first, and what ran beside it was not idle."""
    long = Batch(0, 0, length * MS, stream=0)
    short = Batch((length - 10) * MS, (length - 10) * MS + 1, (length - 9) * MS, stream=1)
    due = length * MS * 100 // share - CREDIT
    found = account(steps, [long, short], share)
    assert found.busy == length * MS
    assert found.paid_until == pytest.approx(due, abs=10)


def test_what_waited_long_has_saved_up_no_credit(steps: Path):
    """A stream that waits for ten seconds, beside which little runs, is idle; it does not pay for a burst."""
    stuck = Batch(0, 10_000 * MS, 10_200 * MS, stream=0)
    blips = [Batch(n * 1000 * MS, n * 1000 * MS + 1, n * 1000 * MS + MS, stream=1) for n in range(1, 10)]
    found = account(steps, [stuck, *blips])
    assert found.paid_until >= 10_000 * MS - CREDIT + 200 * MS * 100 // 30 - 2


def others(begin_ms: int, end_ms: int) -> list[Batch]:
    """Another process's, a millisecond each, one after the other."""
    return [Batch(n * MS, n * MS + 1, (n + 1) * MS, stream=0, process=1) for n in range(begin_ms, end_ms)]


TOGETHER = {
    "another's time before a kernel that waited is none under it, though a short one beside it was seen first": [
        Batch(0, 150 * MS, 250 * MS, stream=0, seen=250 * MS + 100_000),
        Batch(247 * MS, 248 * MS, 249 * MS, stream=1, seen=249 * MS + 100_000),
        *others(0, 150),
    ],
    "another's time under a long kernel counts, though the kernel that was submitted first ends before it": [
        Batch(0, 100 * MS - 50_000, 101 * MS, stream=0),
        Batch(10 * MS, 10 * MS + 100_000, 105 * MS, stream=1),
        *others(11, 99),
    ],
    "another's time before both is none under the older one, though the younger one was seen first": [
        *others(1, 6),
        Batch(6 * MS + 500_000, 7 * MS, 19 * MS, stream=0, seen=21 * MS + 200_000),
        Batch(19 * MS + 500_000, 20 * MS, 21 * MS, stream=1, seen=21 * MS + 100_000),
    ],
    "another's time counts once, while a kernel waits that was submitted before": [
        Batch(0, 200 * MS, 201 * MS, stream=0),
        *others(111, 121),
        Batch(104 * MS, 105 * MS, 121 * MS, stream=2, seen=121 * MS + 500_000),
        Batch(110 * MS, 111 * MS, 116 * MS, stream=1, seen=121 * MS + 300_000),
    ],
}


@pytest.mark.parametrize("batches", TOGETHER.values(), ids=TOGETHER.keys())
def test_what_two_processes_have_at_once_is_charged_once(steps: Path, batches: list[Batch]):
    """And what each has alone is charged to it."""
    assert account(steps, batches).busy == pytest.approx(union(batches), abs=MS)


def drawn(dice: random.Random, streams: int) -> list[Batch]:
    """Some seconds of work: on each stream one after the other, some of it long, some that waits for the host."""
    made = []
    for stream in range(streams):
        opened = end = 0
        while end < 3000 * MS:
            opened = max(opened, end - 2 * MS) + dice.randrange(20_000, 60_000)
            start = max(opened + 10_000, end + 1000)
            start += dice.randrange(30, 150) * MS if dice.random() < 0.03 else 0
            length = dice.randrange(10, 100) * MS if dice.random() < 0.02 else dice.randrange(50_000, 2 * MS)
            end = start + length
            made.append(Batch(opened, start, end, stream, seen=end + dice.randrange(100_000, 600_000)))
    return made


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_whatever_streams_do_each_instant_is_charged_once(steps: Path, streams: int):
    """To a thousandth."""
    seed = int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))
    print(f"SEED={seed}")
    batches = drawn(random.Random(seed), streams)
    assert account(steps, batches).busy == pytest.approx(union(batches), rel=1e-3)


def test_a_look_that_renews_the_reference_places_all_that_it_saw_by_one(tmp_path: Path):
    """Two batches are seen to be over by the time of one reference, and the first renews it."""
    program = compiled(tmp_path, "reference_steps", "core_context.c", "event.c")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    charged_us, ran_us, apart_us = map(int, done.stdout.split())
    assert abs(apart_us) < 1000
    assert charged_us == pytest.approx(ran_us, abs=1000)
