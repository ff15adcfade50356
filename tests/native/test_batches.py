"""What batches of one process are charged, by the interceptor's own accounts, beside the union of their times."""

import os
import random
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native.shells import CLIENTS

LIBSHIM = Path(__file__).parents[2] / "libshim"
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


@dataclass(frozen=True)
class Account:
    """What was charged, and the instant from BEGIN on until which the clock is paid."""

    busy: int
    paid_until: int


UNUSED = "uint64_t real_now_ns(void); uint64_t real_now_ns(void) {"


def compiled(directory: Path, name: str, *others: str) -> Path:
    """A program on the interceptor's own accounts; the real clock's time is not asked for."""
    clock = (LIBSHIM / "src" / "core_clock.c").read_text()
    (directory / "core_clock.c").write_text(clock.replace("uint64_t aq_now_ns(void) {", UNUSED))
    sources = [LIBSHIM / "src" / other for other in ("batch.c", "spans.c", *others)]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", f"-I{LIBSHIM / 'include'}", f"-I{LIBSHIM / 'src'}"]
    command = [
        "cc",
        *flags,
        "-o",
        directory / name,
        CLIENTS / f"{name}.c",
        directory / "core_clock.c",
        *sources,
    ]
    subprocess.run([*command, "-lpthread"], check=True)
    return directory / name


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that opens and ends batches when it is told to."""
    return compiled(tmp_path_factory.mktemp("batches"), "batch_steps")


def account(steps: Path, batches: Iterable[Batch], share: int = 30) -> Account:
    """What they are charged, opened and seen to have ended in the order of time."""
    lines = []
    for number, one in enumerate(batches):
        seen = BEGIN + max(one.seen, one.end)
        lines.append((BEGIN + one.opened, f"open {number} {one.stream + 1} {BEGIN + one.opened}"))
        lines.append((seen, f"end {number} {BEGIN + one.start} {BEGIN + one.end} {seen}"))
    lines.sort(key=lambda line: line[0])
    text = "".join(f"{line}\n" for _, line in lines)
    command = [str(steps), str(100 * share)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    busy, paid_until = map(int, done.stdout.split())
    return Account(busy, paid_until - BEGIN)


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
