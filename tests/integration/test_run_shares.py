"""Runs of one user share a card's time exactly: judged by the simulated card's record of who ran when."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.libshim.control_page import read_control
from aliquot.request.core_shares import WHOLE_BP
from tests.integration.greedy import Bench, Greedy, greedy_load, holders, read_heartbeat
from tests.integration.shells import Shell

TOLERANCE = 8.0
"""Points, in a second. Without an arbiter runs of 30 and 60 miss their shares by more than ten."""
PATIENCE_S = 60.0
"""For a second in which this machine has time for the programs."""
TEN_TIMES_S = 10.0
"""What is promised of a takeover and of a resize."""
SILENT_NS = 1_000_000_000


@pytest.fixture(scope="module")
def load() -> Iterator[Path]:
    """The program of greedy tenants."""
    with greedy_load() as made:
        yield made


@pytest.fixture
def bench(shell: Shell, load: Path) -> Iterator[Bench]:
    """A machine with nobody on it."""
    made = Bench(shell, load)
    yield made
    made.end()


def settle(bench: Bench, wanted: dict[Greedy, float]) -> None:
    """Waits for a second in which each had what it is to have."""
    deadline, seen = time.monotonic() + PATIENCE_S, [bench.percent(*wanted)]
    while not all(abs(had - due) < TOLERANCE for had, due in zip(seen[-1], wanted.values(), strict=True)):
        assert time.monotonic() < deadline, f"wanted {list(wanted.values())}, had {seen}"
        seen.append(bench.percent(*wanted))


def within(seconds: float, condition: Callable[[], bool]) -> None:
    """Waits for a condition, without taking the processor from those who are to bring it about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def elected(shell: Shell, *candidates: Greedy) -> Greedy:
    """The one of these that leases; there is one, or will be."""
    within(TEN_TIMES_S, lambda: len(holders(shell)) == 1)
    (pid,) = holders(shell)
    (one,) = (tenant for tenant in candidates if tenant.process.pid == pid)
    return one


@pytest.mark.timing
def test_greedy_runs_have_their_shares(bench: Bench):
    """30 and 60 of a card that both always want, and nobody has the rest."""
    small, large = bench.greedy("--mem", "2Gi", "--core", "30"), bench.greedy("--mem", "2Gi", "--core", "60")
    small.go()
    large.go()
    settle(bench, {small: 30, large: 60})


@pytest.mark.timing
def test_what_others_leave_is_lent_and_taken_back(bench: Bench):
    """A run of 30 that may burst has all of the card, then up to its bound, then what the other does not want."""
    bursting = bench.greedy("--mem", "2Gi", "--core", "30", "--mode", "burst")
    bounded = bench.greedy("--mem", "2Gi", "--core", "50", "--core-limit", "80")
    bursting.go()
    settle(bench, {bursting: 100, bounded: 0})
    bounded.go()
    settle(bench, {bursting: 37.5, bounded: 62.5})
    os.kill(bursting.pid, signal.SIGSTOP)
    settle(bench, {bounded: 80})
    os.kill(bursting.pid, signal.SIGCONT)
    settle(bench, {bursting: 37.5, bounded: 62.5})


@pytest.mark.timing
def test_who_has_no_share_has_what_the_shares_leave(bench: Bench):
    """All of the card while it is alone, an equal part of the rest beside others, and all again when they have gone."""
    first = bench.greedy("--mem", "2Gi")
    first.go()
    settle(bench, {first: 100})
    second, capped = (
        bench.greedy("--mem", "2Gi", "--mode", "uncapped"),
        bench.greedy("--mem", "2Gi", "--core", "40"),
    )
    capped.go()
    settle(bench, {first: 60, capped: 40})
    second.go()
    settle(bench, {first: 30, second: 30, capped: 40})
    for one in (second, capped):
        os.kill(one.pid, signal.SIGKILL)
        one.process.wait(PATIENCE_S)
    settle(bench, {first: 100})


@pytest.mark.timing
def test_the_higher_priority_has_what_nobody_claims(bench: Bench):
    """The shares themselves are kept."""
    low, high = (
        bench.greedy("--mem", "2Gi", "--core", "30", "--mode", "burst", "--priority", priority)
        for priority in "17"
    )
    low.go()
    high.go()
    settle(bench, {low: 30, high: 70})


@pytest.mark.timing
def test_a_resize_moves_time_within_a_second(bench: Bench):
    """To the run that got more of it, and to the one without a share from the one that got less."""
    sized, rest = bench.greedy("--mem", "2Gi", "--core", "20"), bench.greedy("--mem", "2Gi")
    sized.go()
    rest.go()
    settle(bench, {sized: 20, rest: 80})
    done = bench.shell.aliquot("resize", "--simulate", str(sized.process.pid), "--core", "70")
    assert done.returncode == 0, done.stderr
    within(TEN_TIMES_S, lambda: guaranteed(sized) == pytest.approx(0.7, abs=0.1))
    settle(bench, {sized: 70, rest: 30})


def guaranteed(one: Greedy) -> float:
    """What the arbiter says is due to it of the time that passes now, as long as it has work."""
    before, had = time.monotonic_ns(), one.time().guaranteed_ns
    time.sleep(0.2)
    return (one.time().guaranteed_ns - had) / (time.monotonic_ns() - before)


@pytest.mark.timing
def test_top_tells_what_is_due_to_runs_had_by_them_and_lent(bench: Bench):
    """As of pods: of one that may burst, beside one that wants less than its share."""
    bursting, idle = (
        bench.greedy("--mem", "2Gi", "--core", cores, "--mode", "burst") for cores in ("20", "60")
    )
    bursting.go()

    def told() -> dict[str, dict[str, float]]:
        done = bench.shell.aliquot("top", "--simulate", "--json", "--interval", "0.5")
        (card,) = json.loads(done.stdout)["cards"]
        return {one["tenant"].removeprefix("run/"): one for one in card["tenants"]}

    def is_right() -> bool:
        one, other = (told()[run.pages.name] for run in (bursting, idle))
        assert (one["mode"], one["share"], one["most"]) == ("burst", 0.2, 1.0)
        assert [other[what] for what in ("guaranteed", "used", "lent", "waiting")] == [0, 0, 0, 0]
        return 0.1 < one["guaranteed"] < 0.25 and one["used"] > 0.6 and one["lent"] > 0.4

    within(PATIENCE_S, is_right)


@pytest.mark.timing
def test_when_the_one_that_leases_is_killed_another_does(bench: Bench):
    """Everybody goes on, the killed one's program too, and is lent time again, which nobody is without an arbiter."""
    runs = [bench.greedy("--mem", "2Gi", "--core", "20", "--mode", "burst") for _ in range(3)]
    for one in runs:
        one.go()
    settle(bench, dict.fromkeys(runs, 100 / 3))
    killed = elected(bench.shell, *runs)
    lent = [one.time().lent_ns for one in runs]
    killed.process.kill()
    killed.process.wait(PATIENCE_S)
    within(TEN_TIMES_S, lambda: all(one.time().lent_ns > had for one, had in zip(runs, lent, strict=True)))
    assert elected(bench.shell, *runs) is not killed
    settle(bench, dict.fromkeys(runs, 100 / 3))


@pytest.mark.timing
def test_shares_are_caps_while_nobody_leases(bench: Bench):
    """The one that leases is stopped, with its lock: nobody has more than its share until it goes on."""
    runs = [bench.greedy("--mem", "2Gi", "--core", "30", "--mode", "burst") for _ in range(2)]
    for one in runs:
        one.go()
    settle(bench, dict.fromkeys(runs, 50))
    stopped = elected(bench.shell, *runs)
    stopped.process.send_signal(signal.SIGSTOP)
    within(TEN_TIMES_S, lambda: max(bench.percent(*runs)) < 30 + TOLERANCE)
    caps = [bench.percent(*runs) for _ in range(3)]
    assert max(map(max, caps)) < 30 + TOLERANCE, caps
    assert min(map(min, caps)) > TOLERANCE, caps
    stopped.process.send_signal(signal.SIGCONT)
    settle(bench, dict.fromkeys(runs, 50))


def test_who_is_stopped_by_its_terminal_leaves_it_to_another(bench: Bench):
    """Ctrl-Z: the lock passes on before the process stops, to one that was stopped itself; who goes on waits for it."""
    runs = [bench.waiting("--simulate") for _ in range(2)]
    within(TEN_TIMES_S, lambda: all_leased(bench.shell, 2))
    (stopped,) = (one for one in runs if [one.pid] == holders(bench.shell))
    (other,) = (one for one in runs if one is not stopped)
    for number, state in ((signal.SIGTSTP, "T"), (signal.SIGCONT, "S")):
        other.send_signal(number)
        within(TEN_TIMES_S, lambda state=state: state_of(other.pid) == state)
    stopped.send_signal(signal.SIGTSTP)
    within(TEN_TIMES_S, lambda: state_of(stopped.pid) == "T" and holders(bench.shell) == [other.pid])
    within(TEN_TIMES_S, lambda: all_leased(bench.shell, 2))
    stopped.send_signal(signal.SIGCONT)
    within(TEN_TIMES_S, lambda: state_of(stopped.pid) == "S")
    other.kill()
    within(TEN_TIMES_S, lambda: holders(bench.shell) == [stopped.pid])
    within(TEN_TIMES_S, lambda: all_leased(bench.shell, 2))


def state_of(pid: int) -> str:
    """As in /proc/PID/stat: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


DEAF = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.closerange(3, 1000)
del os.environ["LD_PRELOAD"]
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.timing
def test_a_program_that_ignores_everything_keeps_nobody_from_going_on(bench: Bench):
    """It goes without the interceptor and takes what the card gives it; the others divide the rest by their shares."""
    first, second = (bench.greedy("--mem", "2Gi", "--core", "30", "--mode", "burst") for _ in range(2))
    deaf = bench.greedy("--mem", "2Gi", "--core", "30", before=(sys.executable, "-c", DEAF))
    for one in (first, second, deaf):
        one.go()
    settle(bench, {deaf: 50, first: 25, second: 25})


def test_the_runs_of_another_user_are_not_known(bench: Bench, tmp_path: Path):
    """On the same card: each user's runs are leased time by one of their own, and neither stops with the other's."""
    other = Shell(tmp_path / "other")
    other.runtime.mkdir(mode=0o700)
    for shell in (bench.shell, other):
        shell.environment |= bench.machine.env()
    runs = {shell: bench.waiting("--core", "30", shell=shell) for shell in (bench.shell, other)}
    for shell, run in runs.items():
        within(TEN_TIMES_S, lambda shell=shell, run=run: holders(shell) == [run.pid])
        told = json.loads(shell.aliquot("top", "--json", "--interval", "0.1").stdout)
        assert [len(card["tenants"]) for card in told["cards"]] == [1]
    runs[bench.shell].kill()
    runs[bench.shell].wait(PATIENCE_S)
    assert holders(other) == [runs[other].pid]


def controls(shell: Shell) -> list[Path]:
    """The control pages of all runs."""
    return sorted(run.parent / "control" for run in shell.runtime.glob("aliquot/*/runs/*/run.json"))


def all_leased(shell: Shell, count: int) -> bool:
    """Whether there are so many runs, each with an equal part of the card, and an arbiter that has lately said so."""
    pages = controls(shell)
    shares = [read_control(page).cards[0].core_share_bp for page in pages]
    beats = [read_heartbeat(page) for page in pages]
    return shares == [WHOLE_BP // count] * count and min(beats) > time.monotonic_ns() - SILENT_NS


@pytest.mark.slow
def test_however_runs_come_and_are_killed_one_leases_to_all(bench: Bench):
    """Of living `aliquot`s one has the lock, and every run's share follows those that are there, orphans too."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, shell = random.Random(seed), bench.shell
    supervised = [bench.waiting("--simulate") for _ in range(4)]
    orphans = 0
    for _ in range(6):
        for one in chance.sample(supervised, chance.randint(1, 2)):
            supervised.remove(one)
            one.kill()
            one.wait(PATIENCE_S)
            if chance.random() < 0.5:
                one.stdin.close()
            else:
                orphans += 1
        supervised += [bench.waiting("--simulate") for _ in range(4 - len(supervised))]
        pids = {one.pid for one in supervised}
        within(TEN_TIMES_S, lambda pids=pids: len(holders(shell)) == 1 and set(holders(shell)) <= pids)
        within(TEN_TIMES_S, lambda count=4 + orphans: all_leased(shell, count))
