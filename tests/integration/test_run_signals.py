"""A signal reaches the command of a run once, whether `aliquot` alone was sent it or all processes of the job."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from tests.integration.shells import ALIQUOT, WAIT_S, Shell, until
from tests.integration.terminals import CTRL_C, terminal

COUNTER = """
import os, signal, sys
wanted = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM, signal.SIGWINCH}
wanted |= {signal.SIGABRT, signal.SIGALRM}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
for word in sys.argv[1:]:
    os.setsid() if word == "leave" else os.kill(0, signal.SIGUSR1)
print("ready", os.getpid(), flush=True)
seen = []
while True:
    came = signal.sigwait(wanted)
    if came == signal.SIGWINCH:
        print("seen", *seen, ";", flush=True)
        seen = []
    else:
        seen.append(came.name)
"""
SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM]
SIGNALS += [signal.SIGABRT, signal.SIGALRM]


class Job:
    """A run with a process group of its own, as a shell with job control starts one, whose command counts signals."""

    def __init__(self, aliquot: subprocess.Popen[str]) -> None:
        self.aliquot = aliquot
        self.command = int(self.line().split()[1])

    def line(self) -> str:
        """The command's next line."""
        stream: IO[str] | None = self.aliquot.stdout
        assert stream
        return stream.readline().strip()

    def seen(self, ask: int | None = None) -> list[str]:
        """The signals that the command has had since it was asked last, through aliquot or itself.

        It answers to SIGWINCH. That has the highest number, so that both processes take it after all others.
        """
        os.kill(ask or self.aliquot.pid, signal.SIGWINCH)
        return self.line().split()[1:-1]

    @contextmanager
    def aliquot_held(self) -> Iterator[None]:
        """Keeps aliquot from taking signals meanwhile, so that none that it sends on can melt into the first one."""
        self.aliquot.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.aliquot.send_signal(signal.SIGCONT)

    def observer(self) -> int:
        """The pid of the process that signals to the group are told by."""
        (pid,) = {int(word) for word in children(self.aliquot.pid)} - {self.command}
        return pid


def children(pid: int) -> list[str]:
    """The children of a process's first thread."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@contextmanager
def job(shell: Shell, *words: str) -> Iterator[Job]:
    """Starts one; it is killed in the end."""
    command = [*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--", sys.executable, "-c", COUNTER, *words]
    aliquot = subprocess.Popen(
        command, env=shell.environment, stdout=subprocess.PIPE, text=True, process_group=0
    )
    with aliquot:
        started = Job(aliquot)
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.kill(started.command, signal.SIGKILL)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_aliquot_alone_is_sent_on(shell: Shell, number: signal.Signals):
    """As `kill PID` does; each of three."""
    with job(shell) as started:
        for _ in range(3):
            started.aliquot.send_signal(number)
            assert started.seen() == [number.name]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_the_job_reaches_its_command_once(shell: Shell, number: signal.Signals):
    """As `kill %1` does in a shell with job control, and `kill -- -PGID`; so does one to aliquot afterwards."""
    with job(shell) as started:
        for _ in range(3):
            with started.aliquot_held():
                os.killpg(started.aliquot.pid, number)
                assert started.seen(started.command) == [number.name]
            assert started.seen() == []
        started.aliquot.send_signal(number)
        assert started.seen() == [number.name]


def test_signals_to_each_process_of_the_job_reach_its_command_once(shell: Shell):
    """As a service manager sends them, which knows no groups."""
    with job(shell) as started:
        with started.aliquot_held():
            for pid in (started.aliquot.pid, started.command, started.observer()):
                os.kill(pid, signal.SIGTERM)
            assert started.seen(started.command) == ["SIGTERM"]
        assert started.seen() == []


TWICE = """
import os, signal
from aliquot.cli.runs import group_signals
group_signals.GRACE_S = 60
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
observer = group_signals.GroupSignals({signal.SIGTERM})
for process in (0, os.getpid()):
    os.kill(process, signal.SIGTERM)
    came = signal.sigwaitinfo({signal.SIGTERM})
    print(observer.saw(came.si_signo, came.si_pid))
"""


def test_one_sender_that_signals_aliquot_and_the_job_is_heard_once():
    """As timeout(1) does, at one time; no machine is so busy that a minute passes between."""
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, text=True, check=True, process_group=0
    )
    assert done.stdout.split() == ["True", "True"]


def test_a_stopped_witness_hangs_nothing(shell: Shell):
    """What the job is sent may come twice then, and the command's end is seen."""
    with job(shell) as started:
        os.kill(started.observer(), signal.SIGSTOP)
        os.killpg(started.aliquot.pid, signal.SIGUSR1)
        assert set(started.seen()) == {"SIGUSR1"}
        os.kill(started.command, signal.SIGKILL)
        assert started.aliquot.wait(WAIT_S) == 128 + signal.SIGKILL


def test_a_signal_that_aliquot_was_not_sent_hides_no_later_one(shell: Shell):
    """Sent to aliquot's children by one process, and then to aliquot by another."""
    with job(shell) as started:
        kill = f"import os; os.kill({started.observer()}, {int(signal.SIGTERM)})"
        subprocess.run([sys.executable, "-c", kill], check=True)
        started.aliquot.send_signal(signal.SIGTERM)
        assert started.seen() == ["SIGTERM"]


def test_what_a_command_sends_to_its_own_group_comes_back_once(shell: Shell):
    """`kill 0`, with which scripts end what they have started."""
    with job(shell, "kill") as started:
        assert started.seen() == ["SIGUSR1"]


def test_a_command_that_has_left_the_job_is_sent_its_signals(shell: Shell):
    """A program that makes a session of its own is reached by what the job is sent, through aliquot."""
    with job(shell, "leave") as started:
        os.killpg(started.aliquot.pid, signal.SIGTERM)
        assert started.seen() == ["SIGTERM"]


def test_the_witness_bears_no_name_that_others_are_looked_up_by(shell: Shell):
    """`pkill -f "aliquot run"` is meant for aliquot alone: the command is to be told."""
    with job(shell) as started:
        files = Path("/proc", str(started.observer()))
        until(lambda: (files / "comm").read_text() == "group-signals\n")
        until(lambda: (files / "cmdline").read_bytes().rstrip(b"\0") == b"group-signals")


def test_the_witness_ends_with_aliquot(shell: Shell):
    """Also when that is killed, so that nothing holds the slice but the command."""
    with job(shell) as started:
        observer = started.observer()
        started.aliquot.kill()
        until(lambda: not lives(observer))


# ---- in a terminal ----


@pytest.mark.skipif(not shutil.which("bash"), reason="NOT RUN: no bash here")
@pytest.mark.parametrize(("typed", "expected"), [("kill -TERM %1\n", "SIGTERM"), ("fg\n", "SIGINT")])
def test_in_a_terminal_a_signal_reaches_the_command_once(
    shell: Shell, tmp_path: Path, typed: str, expected: str
):
    """`kill %1`, and Ctrl-C for a job that was brought to the foreground."""
    program = tmp_path / "counter.py"
    program.write_text(COUNTER)
    run = shlex.join([*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--", sys.executable, str(program)])
    with terminal(shell.environment, tmp_path) as screen:
        screen.type(f"{run} &\n")
        command = int(screen.wait_for(r"ready (\d+)")[1])
        aliquot = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])

        def seen() -> list[str]:
            os.kill(aliquot, signal.SIGWINCH)
            return screen.wait_for(r"seen (.*);")[1].split()

        screen.type(typed)
        if expected == "SIGINT":
            until(lambda: screen.foreground() == os.getpgid(command))
            screen.type(CTRL_C)
        names: list[str] = []
        until(lambda: bool(names.extend(seen()) or names))
        assert names + seen() == [expected]
        os.kill(command, signal.SIGKILL)
