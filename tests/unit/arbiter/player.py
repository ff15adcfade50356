"""Plays a tenant's side of leases by its words on real pages, with a card on which work lasts as long as it says.

As a program: `player.py CONTROL USAGE SLOT CARD,... KERNEL_NS`, until its input ends. Then it prints one line
`ANNOUNCED START END` of CLOCK_MONOTONIC for each kernel that it had on the card.
"""

import ctypes
import itertools
import mmap
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from aliquot.libshim._pages import ffi, lib

FUTEX_WAIT, FUTEX_WAKE = 0, 1
SYS_FUTEX = 202 if os.uname().machine == "x86_64" else 98
SYS_SET_ROBUST_LIST = 273 if os.uname().machine == "x86_64" else 99
PR_SET_PDEATHSIG = 1
OWNER = 1 << 42

libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Player:
    """One process of a tenant, in the slot of that number."""

    def __init__(self, control: Path, usage: Path, slot: int) -> None:
        self._files = [control.open("rb"), usage.open("r+b")]
        sizes = (lib.AQ_CONTROL_SIZE, lib.AQ_USAGE_FILE_SIZE)
        protections = (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE)
        self._maps = [
            mmap.mmap(file.fileno(), size, prot=protection)
            for file, size, protection in zip(self._files, sizes, protections, strict=True)
        ]
        self.control = ffi.cast("aq_control_page *", ffi.from_buffer(self._maps[0]))
        self._whole = ffi.cast("aq_usage_file *", ffi.from_buffer(self._maps[1]))
        self.usage = ffi.addressof(self._whole, "page")
        self._words = self._whole.annex.works[slot].cards
        self._live_in(slot)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """As the kernel does when a process has ended."""
        self._monitor[0] = lib.AQ_MONITOR_ENDED

    def _live_in(self, slot: int) -> None:
        self._monitor = self._whole.monitors.threads + slot
        self._monitor[0] = threading.get_native_id()
        self.usage.slots[slot].owner = OWNER | slot

    def mark_the_end_of_this_thread(self) -> None:
        """Has the kernel do so, as src/robust_list.h tells. For programs: Python's own robust mutexes are left out."""
        address = int(ffi.cast("uintptr_t", self._monitor))
        self._list = (ctypes.c_long * 4)()  # struct robust_list_head, and the one entry
        head = ctypes.addressof(self._list)
        entry = head + 3 * ctypes.sizeof(ctypes.c_long)
        self._list[:] = [entry, address - entry, 0, head]
        assert libc.syscall(SYS_SET_ROBUST_LIST, ctypes.c_void_p(head), 3 * ctypes.sizeof(ctypes.c_long)) == 0

    def say(self, card: int, state: int, end_ns: int = 0) -> None:
        """Publishes what it has to do."""
        end = (end_ns >> lib.AQ_WORK_END_UNIT_SHIFT << lib.AQ_WORK_END_SHIFT) & 0xFFFFFFFF
        self._words[card] = end | state if state else 0

    def line(self, card: int, slot: int = 0) -> tuple[int, int]:
        """What the process in a slot says: its state, and the end it expects, wrapped."""
        word = self._whole.annex.works[slot].cards[card]
        return word & (lib.AQ_WORK_WAITING | lib.AQ_WORK_IN_FLIGHT), word >> lib.AQ_WORK_END_SHIFT

    def ring(self, card: int) -> None:
        """Has the arbiter look."""
        bell = ffi.addressof(self.usage.cards[card], "bell")
        bell[0] = (bell[0] + 1) & 0xFFFFFFFF
        self.wake(card)

    def wake(self, card: int) -> None:
        """Wakes who waits for the bell, which has not rung."""
        _futex(ffi.addressof(self.usage.cards[card], "bell"), FUTEX_WAKE, 1000)

    def is_open(self, card: int) -> bool:
        """Whether the gate lets it in."""
        return bool(self.control.cards[card].gate % 2 == 0)

    def pass_gate(self, card: int, length_ns: int) -> int:
        """Waits for a lease. Returns with work announced; returns when that was."""
        while True:
            announced = time.monotonic_ns()
            self.say(card, lib.AQ_WORK_IN_FLIGHT, announced + length_ns)
            gate = self.control.cards[card].gate
            if gate % 2 == 0:
                return announced
            self.say(card, lib.AQ_WORK_WAITING)
            self.ring(card)
            _futex(ffi.addressof(self.control.cards[card], "gate"), FUTEX_WAIT, gate, 20_000_000)

    def run(self, card: int, length_ns: int) -> tuple[int, int, int]:
        """Has one kernel on the card. Returns when it was announced, when it began and when it ended."""
        announced = self.pass_gate(card, length_ns)
        start = time.monotonic_ns()
        time.sleep(length_ns / 1e9)
        end = time.monotonic_ns()
        self.usage.cards[card].busy_ns += end - start
        if not self.is_open(card):
            self.rest(card)
        return announced, start, end

    def turn_from(self, card: int) -> None:
        """Goes on with another card: on this one nothing is in flight any more. Only who waits for it is told."""
        self.say(card, 0)
        if not self.is_open(card):
            self.ring(card)

    def rest(self, card: int) -> None:
        """Nothing is in flight any more."""
        self.say(card, 0)
        self.ring(card)


def _futex(word: Any, operation: int, value: int, timeout_ns: int = 0) -> None:
    timeout = _Timespec(0, timeout_ns) if timeout_ns else None
    address = ctypes.c_void_p(int(ffi.cast("uintptr_t", word)))
    libc.syscall(SYS_FUTEX, address, operation, value, ctypes.byref(timeout) if timeout else None, None, 0)


def _until_told() -> Iterator[None]:
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    while not selector.select(timeout=0):
        yield


def main() -> None:
    """Plays as told on the command line, and no longer than who told it lives."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    control, usage, slot, cards, length_ns = sys.argv[1:]
    player = Player(Path(control), Path(usage), int(slot))
    player.mark_the_end_of_this_thread()
    print("ready", flush=True)
    own, ran = list(map(int, cards.split(","))), []
    for card in itertools.chain.from_iterable(own for _ in _until_told()):
        ran.append(player.run(card, int(length_ns)))
        if len(own) > 1:
            player.turn_from(card)
    for card in own:
        player.rest(card)
    for kernel in ran:
        print(*kernel)


if __name__ == "__main__":
    main()
