"""Runs a command, and holds threads and whole processes of it at random, as a machine does that is too busy.

    python -m tests.tools.stalls [--seed N] [--at-once 8] [--mean-ms 100] COMMAND ...

ptrace holds them: it sends no signal, and works on single threads. A thread may be held between any two instructions.
So a test that passes only if its programs run without a break fails here, on a quiet machine too. The exit status is
that of the command. A test cannot trace a process that is held at that moment.
"""

import argparse
import ctypes
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
PTRACE_EVENT_STOP = 128
WAIT = 0x40000000 | 0x20000000
"""`__WALL | __WNOTHREAD`: wait for a thread too, and only for those that the caller itself traces. These are Linux's
numbers, from <linux/ptrace.h> and <linux/wait.h>."""
LONGEST_S = 1.0
TREE_S = 0.03
POLL_S = 0.001


def descendants(of: int) -> Iterator[int]:
    """The living processes below one."""
    with suppress(OSError):
        for task in Path(f"/proc/{of}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def threads(process: int) -> list[int]:
    """The threads of a process; none where it has ended."""
    try:
        return [int(task.name) for task in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return []


def ptrace(request: int, thread: int, data: int = 0) -> bool:
    """Makes a ptrace request about a thread; whether it succeeded."""
    return LIBC.ptrace(request, thread, None, data) == 0


def settled(traced: Iterable[int]) -> dict[int, int]:
    """Waits until each of these threads has stopped or ended; the wait status of those that have stopped.

    It polls all of them: the first thread of a process ends only after all other traced ones were waited for.
    """
    waiting, stopped = set(traced), {}
    while waiting:
        for thread in list(waiting):
            try:
                found, status = os.waitpid(thread, WAIT | os.WNOHANG)
            except ChildProcessError:
                waiting.discard(thread)
                continue
            if found:
                waiting.discard(thread)
                if os.WIFSTOPPED(status):
                    stopped[thread] = status
        time.sleep(POLL_S)
    return stopped


def stall(chosen: list[int], duration_s: float) -> int:
    """Holds threads for a time; how many were held."""
    seized = [thread for thread in chosen if ptrace(PTRACE_SEIZE, thread)]
    for thread in seized:
        ptrace(PTRACE_INTERRUPT, thread)
    stopped = settled(seized)
    time.sleep(duration_s)
    killed = []
    for thread, status in stopped.items():
        signal_to_pass_on = 0 if status >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
        if not ptrace(PTRACE_DETACH, thread, signal_to_pass_on):
            killed.append(thread)
    settled(killed)
    return len(stopped)


class Stalls:
    """Holds random threads below a process, but none of this one, until told to end."""

    def __init__(self, root: int, seed: int, mean_ms: float) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._mean_s = mean_ms / 1000
        self._ended = threading.Event()
        self._processes: list[int] = []
        self._resting: set[int] = set()
        self.count = 0

    def follow(self) -> None:
        """Keeps the list of the processes."""
        while not self._ended.wait(TREE_S):
            self._processes = sorted(set(descendants(self._root)) - {os.getpid()})

    def run(self) -> None:
        """Holds one process after another. Only the thread that has seized a thread may release it."""
        while not self._ended.wait(POLL_S):
            if (process := self._choose()) is not None:
                self._hold(process)

    def _choose(self) -> int | None:
        """A process that is not held, and has run since it was."""
        with self._lock:
            free = [process for process in self._processes if process not in self._resting]
            if not free:
                return None
            process = self._random.choice(free)
            self._resting.add(process)
            return process

    def _hold(self, process: int) -> None:
        """Holds all threads of a process, or one. Afterwards the process runs for at least the same time."""
        with self._lock:
            whole = self._random.random() < 0.5
            duration_s = min(self._random.expovariate(1 / self._mean_s), LONGEST_S)
        chosen = threads(process)
        self._random.shuffle(chosen)
        held = stall(chosen if whole else chosen[:1], duration_s)
        time.sleep(duration_s)
        with self._lock:
            self._resting.discard(process)
            self.count += bool(held)

    def end(self) -> None:
        """Holds nothing more."""
        self._ended.set()


def hold(root: int, args: argparse.Namespace) -> None:
    """Holds what is below a process until SIGTERM."""
    stalls = Stalls(root, args.seed, args.mean_ms)
    signal.signal(signal.SIGTERM, lambda *_: stalls.end())
    workers = [threading.Thread(target=stalls.follow)]
    workers += [threading.Thread(target=stalls.run) for _ in range(args.at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"held {stalls.count} times, seed {args.seed}", file=sys.stderr)


def main() -> int:
    """Runs the command; its status. A second process holds: for a tracer `wait` also returns when a child stops."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--at-once", type=int, default=8, help="processes that are held at the same time")
    parser.add_argument("--mean-ms", type=float, default=100, help="how long one stands still")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    print(f"seed {args.seed}", file=sys.stderr, flush=True)
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(os.getpid(), args))
    holder.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(args.command, check=False).returncode
    finally:
        holder.terminate()
        holder.join()


if __name__ == "__main__":
    sys.exit(main())
