"""Tells a signal that was sent to this process alone from one that its whole process group was sent.

`kill -TERM -PGID`, `kill %1` in a shell with job control, Ctrl-C and a service manager send a signal to all
processes of a job. The command is one of them, so what `aliquot run` forwarded would reach it a second time. The kernel
says which process sent a signal, but not whether others were sent it. So a second process of the group, the observer,
blocks the signals and never acts on them: those that wait for it were sent to the group.

The kernel sends a group its signal while it holds the lock of the process table. setpgid waits for that lock, even
where it changes nothing, so that after it the observer has whatever the group was sent. A service manager signals the
processes one by one instead; for those, `GRACE_S` passes before a signal counts as sent to one process alone.
timeout(1) signals its child first and then the group: both within `GRACE_S`, they count as one.
"""

import contextlib
import math
import os
import select
import signal
import struct
import time
from collections.abc import Collection
from pathlib import Path

GRACE_S = 0.05
LOOK_EVERY_S = 0.005
ANSWER_S = 1.0
_NAME = b"group-signals"
_PR_SET_NAME = 15
_NUMBER = struct.Struct("B")
_SENDER = struct.Struct("i")
_NOBODY = -1
_FIRST_BEHIND_NAME, _ARGUMENTS_START, _ARGUMENTS_END = 3, 48, 49
"""Fields of /proc/PID/stat, as proc(5) counts them."""


class GroupSignals:
    """The second process. It ends with this one, also when this one is killed.

    Args:
        numbers: The signals to be told apart; the caller has blocked them, and has one thread.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_observer(numbers, orders, answers)
        os.close(orders)
        os.close(answers)
        self._last = (0, _NOBODY, -math.inf)
        """The signal that the group was sent last, its sender, and when."""

    def saw(self, number: int, sender: int) -> bool:
        """Whether the group was sent this signal, which this process has just taken, or was just before.

        Args:
            number: The signal.
            sender: The pid that it came from.
        """
        with contextlib.suppress(OSError):
            os.setpgid(0, os.getpgrp())  # waits until what is being sent to the group has come everywhere
        now = time.monotonic()
        again = self._last[:2] == (number, sender) and now < self._last[2] + GRACE_S
        deadline = now if again else now + GRACE_S
        while not (waits := number in waiting_signals(self.pid)) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        if waits and self._take(number) == sender:
            self._last = (number, sender, time.monotonic())
            return True
        return again

    def _take(self, number: int) -> int:
        """Has the observer take a signal that waits for it; returns the sender."""
        try:
            os.write(self._orders, _NUMBER.pack(number))
        except BrokenPipeError:
            return _NOBODY
        answered, _, _ = select.select([self._answers], [], [], ANSWER_S)
        if not answered:  # it was stopped: from now on each signal counts as sent to one process alone
            os.kill(self.pid, signal.SIGKILL)
        answer = os.read(self._answers, _SENDER.size)
        return int(_SENDER.unpack(answer)[0]) if answer else _NOBODY

    def end(self) -> None:
        """Ends the second process."""
        os.close(self._orders)
        os.close(self._answers)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def waiting_signals(pid: int) -> set[int]:
    """The signals that wait to be taken by a process; none when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return set()
    words = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return {number for number in signal.valid_signals() if any(word >> number - 1 & 1 for word in words)}


def _be_observer(numbers: Collection[int], orders: int, answers: int) -> None:
    """What the second process does: takes the signals that it is told to, and ends when the first one has."""
    try:
        _keep_only(orders, answers)
        with contextlib.suppress(OSError):
            _rename()
        while order := os.read(orders, _NUMBER.size):
            taken = signal.sigtimedwait(set(order) & set(numbers), 0)
            os.write(answers, _SENDER.pack(taken.si_pid if taken else _NOBODY))
    finally:
        os._exit(0)


def _keep_only(*kept: int) -> None:
    """Closes all other descriptors: the locks of the run and the ends of pipes are not this process's."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _rename() -> None:
    """Takes a name that is neither ours nor the command's: `pkill -f "aliquot run"` is for one process alone."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME, 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[place - _FIRST_BEHIND_NAME]) for place in (_ARGUMENTS_START, _ARGUMENTS_END))
    room = end - start
    if start and room > 0:
        ctypes.memmove(start, _NAME[: room - 1].ljust(room, b"\0"), room)
