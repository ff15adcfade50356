"""Runs one command as if it had been started directly: its signals, its exit status, its terminal.

The supervisor blocks the signals it forwards and takes them one by one with sigwaitinfo, so no handler runs
and nothing races. What was sent to the whole process group (Ctrl-C, `kill %1`) has reached the command and is not
sent twice. What comes before there is a command is the command's, too. Ctrl-Z stops the supervisor as it stops the
command, after it has said so.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from aliquot.cli.runs.group_signals import GroupSignals, waiting_signals

NOT_EXECUTABLE = 126
NOT_FOUND = 127
KILLED_BY_SIGNAL = 128

STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
OWN = {
    signal.SIGKILL,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGXCPU,
    signal.SIGXFSZ,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
}
"""What the kernel tells a process of its own doing."""
FORWARDED = frozenset(signal.valid_signals() - STOPS - OWN)


class CommandError(Exception):
    """The command could not be started; `status` is the shell's exit status for it (126, 127)."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def supervise(
    command: Sequence[str],
    environment: Mapping[str, str],
    keep: Sequence[int] = (),
    started: Callable[[], None] = lambda: None,
    stopped: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> int:
    """Runs the command to its end and returns its exit status; 128 + n when signal n killed it.

    Args:
        command: program and arguments; the program is looked up in the environment's PATH.
        environment: the whole environment of the command.
        keep: file descriptors the command inherits.
        started: called once the command runs; threads may only be started then.
        stopped: entered before this process is stopped by SIGTSTP, and left when it goes on.

    Raises:
        CommandError: the program is missing or cannot be executed.
    """
    # Whoever ignores SIGCHLD passes that on to us, and the kernel then neither sends it nor keeps exit statuses.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waited = FORWARDED | {signal.SIGCHLD, signal.SIGTSTP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    observer = _observer()
    try:
        child = _start(command, environment, keep, before)
        started()
        return _wait(_Command(child, observer), waited, stopped)
    finally:
        observer.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _observer() -> GroupSignals:
    try:
        return GroupSignals(FORWARDED)
    except OSError as error:
        raise CommandError(f"cannot start a process: {error.strerror}", NOT_EXECUTABLE) from error


def _start(
    command: Sequence[str], environment: Mapping[str, str], keep: Sequence[int], mask: Iterable[int]
) -> subprocess.Popen[bytes]:
    supervisor = os.getpid()

    def restore_mask() -> None:
        for number in FORWARDED & waiting_signals(supervisor):
            os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        # The child is one exec away and this process has one thread: preexec_fn is safe here.
        return subprocess.Popen(command, env=environment, pass_fds=keep, preexec_fn=restore_mask)  # noqa: PLW1509
    except FileNotFoundError as error:
        if "/" in command[0] and os.path.lexists(command[0]):
            raise CommandError(f"{command[0]}: its interpreter is missing", NOT_EXECUTABLE) from error
        raise CommandError(f"{command[0]}: no such command", NOT_FOUND) from error
    except OSError as error:
        raise CommandError(f"{command[0] or repr('')}: {error.strerror}", NOT_EXECUTABLE) from error


@dataclass(frozen=True)
class _Command:
    """The command that runs, and how its signals come to it."""

    process: subprocess.Popen[bytes]
    observer: GroupSignals

    def forward(self, came: signal.struct_siginfo) -> None:
        """Sends it a signal that came here, unless it is in the group that has had the same one."""
        group_had_it = self.observer.saw(came.si_signo, came.si_pid)
        with contextlib.suppress(ProcessLookupError):
            if not (group_had_it and os.getpgid(self.process.pid) == os.getpgrp()):
                os.kill(self.process.pid, came.si_signo)


def _wait(
    command: _Command, waited: frozenset[int], stopped: Callable[[], AbstractContextManager[None]]
) -> int:
    while (status := command.process.poll()) is None:
        came = signal.sigwaitinfo(waited)
        if came.si_signo == signal.SIGTSTP:
            with stopped():
                _stop()
        elif came.si_signo != signal.SIGCHLD:
            command.forward(came)
    return status if status >= 0 else KILLED_BY_SIGNAL - status


def _stop() -> None:
    """Is stopped by SIGTSTP as if it had not been taken: not at all, where no shell is there to let us go on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
