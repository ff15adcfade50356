"""A tenant that means harm: does whatever can be done to the files in its container, at random.

    hostile_tenant.py USAGE_FD CONTROL_FD SEED

What it holds is a descriptor of each page, as of a mount, and no name. It prints a line for each second with what it
has done, and ends with its input.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aliquot.libshim._pages import ffi, lib

KIB, MIB = 1 << 10, 1 << 20
MOST_BYTES = 8 * MIB
"""As far as it lets a page grow: more could fill the file system, as T28 of SECURITY.md says."""
MOST_LOCKS = 2_000
F_OFD_SETLK = 37
FUTEX_WAKE, SYS_FUTEX = 1, 202 if os.uname().machine == "x86_64" else 98
FALLOC_PUNCH = 0x1 | 0x2  # keeps the size
NOBODY = 65534
INTERESTING = (0, 1, 2, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**47, 2**63 - 1, 2**63, 2**64 - 1)
libc = ctypes.CDLL(None, use_errno=True)


class Tenant:
    """Its files, and what it does to them."""

    def __init__(self, usage: int, control: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._usage = os.open(f"/proc/self/fd/{usage}", os.O_RDWR)
        self._control = os.open(f"/proc/self/fd/{control}", os.O_RDONLY)
        self._valid = os.pread(usage, MIB, 0)
        self._locked: list[int] = []
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        """One thing; what the kernel refuses is refused."""
        (action,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.done[action.__name__.strip("_")] += 1
        with contextlib.suppress(OSError, ValueError):
            action(self)

    def _value(self) -> int:
        near = time.monotonic_ns() + self._rng.randrange(-(10**10), 10**10)
        return self._rng.choice((*INTERESTING, near, os.getpid(), self._rng.getrandbits(64)))

    # ---- content ----

    def _restore(self) -> None:
        os.ftruncate(self._usage, len(self._valid))
        os.pwrite(self._usage, self._valid, 0)

    def _mutate(self) -> None:
        for _ in range(self._rng.randrange(1, 20)):
            size = self._rng.choice((1, 4, 8))
            value = self._value() & (1 << 8 * size) - 1
            at = self._rng.randrange(0, len(self._valid) - 8) // size * size
            os.pwrite(self._usage, value.to_bytes(size, "little"), at)

    def _noise(self) -> None:
        length = self._rng.randrange(1, 64 * KIB)
        os.pwrite(self._usage, self._rng.randbytes(length), self._rng.randrange(0, len(self._valid)))

    def _claim(self) -> None:
        """Slots of processes that are none of its, with work and memory that are none."""
        file = ffi.new("aq_usage_file *")
        ffi.memmove(file, self._valid, min(len(self._valid), ffi.sizeof("aq_usage_file")))
        for index in range(self._rng.randrange(1, lib.AQ_MAX_SLOTS)):
            slot = file.page.slots[index]
            slot.owner = slot.presence = self._rng.getrandbits(63) | 1
            slot.pid = self._rng.choice((1, os.getpid(), os.getppid(), self._rng.randrange(1, 2**22)))
            slot.pid_namespace = Path("/proc/self/ns/pid").stat().st_ino
            slot.start_time = self._value()
            slot.memory[0] = self._value()
            file.annex.works[index].cards[0] = self._rng.getrandbits(32)
            file.monitors.threads[index] = self._rng.choice(
                (0, lib.AQ_MONITOR_ENDED, self._rng.getrandbits(32))
            )
        os.pwrite(self._usage, bytes(ffi.buffer(file)), 0)

    # ---- size and place ----

    def _truncate(self) -> None:
        os.ftruncate(
            self._usage, self._rng.choice((0, 1, 4095, 4096, 69632, self._rng.randrange(0, MOST_BYTES)))
        )

    def _append(self) -> None:
        size = os.fstat(self._usage).st_size
        if size < MOST_BYTES:
            os.pwrite(self._usage, bytes(self._rng.randrange(1, MIB)), size)

    def _punch(self) -> None:
        libc.fallocate64(
            self._usage,
            FALLOC_PUNCH,
            ctypes.c_int64(self._rng.randrange(0, MIB) & ~4095),
            ctypes.c_int64(4096 * self._rng.randrange(1, 64)),
        )

    # ---- what others might wait for ----

    def _lock(self) -> None:
        """Makes many locks of one by taking out every other byte, and keeps the descriptor."""
        page, kind = self._rng.choice(((self._usage, fcntl.F_WRLCK), (self._control, fcntl.F_RDLCK)))
        count = self._rng.randrange(1, MOST_LOCKS)
        file = os.dup(page)
        self._locked.append(file)
        first = self._rng.randrange(0, 2**40)
        _set_lock(file, kind, first, 2 * count)
        for start in range(2 * count - 2, 0, -2):
            _set_lock(file, fcntl.F_UNLCK, first + start, 1)

    def _unlock(self) -> None:
        for file in (self._usage, self._control):
            _set_lock(file, fcntl.F_UNLCK, 0, 0)
        while self._locked:
            os.close(self._locked.pop())

    def _flock(self) -> None:
        fcntl.flock(self._rng.choice((self._usage, self._control)), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lease(self) -> None:
        fcntl.fcntl(self._rng.choice((self._usage, self._control)), fcntl.F_SETLEASE, fcntl.F_RDLCK)

    def _ring(self) -> None:
        """In a child, which dies if the page is cut short under it."""
        times, child = self._rng.randrange(1, 3000), os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            _ring_bell(self._usage, times)
        finally:
            os._exit(0)

    def _rest(self) -> None:
        time.sleep(self._rng.random() * 0.05)


WEIGHTS: dict[Callable[[Tenant], None], int] = {
    Tenant._restore: 2,
    Tenant._mutate: 2,
    Tenant._noise: 1,
    Tenant._claim: 1,
    Tenant._truncate: 1,
    Tenant._append: 1,
    Tenant._punch: 1,
    Tenant._lock: 1,
    Tenant._unlock: 2,
    Tenant._flock: 1,
    Tenant._lease: 1,
    Tenant._ring: 1,
    Tenant._rest: 1,
}


def _ring_bell(usage: int, times: int) -> None:
    page = ffi.cast("aq_usage_page *", ffi.from_buffer(mmap.mmap(usage, 4096), require_writable=True))
    bell = ffi.addressof(page.cards[0], "bell")
    address = ctypes.c_void_p(int(ffi.cast("uintptr_t", bell)))
    for _ in range(times):
        bell[0] = (bell[0] + times % 2) & 0xFFFFFFFF
        libc.syscall(SYS_FUTEX, address, FUTEX_WAKE, 1000, None, None, 0)


def _set_lock(file: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def main() -> None:
    """Harms until its input ends, without privileges where it has some to give up."""
    tenant = Tenant(*map(int, sys.argv[1:]))
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.set_blocking(sys.stdin.fileno(), False)
    told = time.monotonic()
    while sys.stdin.buffer.read(1) is None:
        tenant.act()
        if time.monotonic() > told + 1:
            told = time.monotonic()
            print(dict(tenant.done), flush=True)


if __name__ == "__main__":
    main()
