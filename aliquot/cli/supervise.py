"""Runs one command as if it had been started directly: its signals, its exit status, its terminal.

The supervisor blocks the signals it forwards and takes them one by one with sigwaitinfo, so no handler runs
and nothing races. What a terminal sends (Ctrl-C) reaches the whole foreground process group anyway and is not
sent twice. Ctrl-Z stops the supervisor as it stops the command, after it has said so.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

NOT_EXECUTABLE = 126
NOT_FOUND = 127
KILLED_BY_SIGNAL = 128

FORWARDED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
    }
)
_SENT_BY_KERNEL = 0x80  # si_code SI_KERNEL: a terminal's key, not a kill()


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
    try:
        child = _start(command, environment, keep, before)
        started()
        return _wait(child, waited, stopped)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(
    command: Sequence[str], environment: Mapping[str, str], keep: Sequence[int], mask: Iterable[int]
) -> subprocess.Popen[bytes]:
    def restore_mask() -> None:
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


def _wait(
    child: subprocess.Popen[bytes],
    waited: frozenset[signal.Signals],
    stopped: Callable[[], AbstractContextManager[None]],
) -> int:
    while (status := child.poll()) is None:
        came = signal.sigwaitinfo(waited)
        if came.si_signo == signal.SIGTSTP:
            with stopped():
                _stop()
        elif came.si_signo != signal.SIGCHLD and came.si_code != _SENT_BY_KERNEL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, came.si_signo)
    return status if status >= 0 else KILLED_BY_SIGNAL - status


def _stop() -> None:
    """Is stopped by SIGTSTP as if it had not been taken: not at all, where no shell is there to let us go on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
