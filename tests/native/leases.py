"""The arbiter's part of a lease, word by word, as a test plays it on a tenant's pages; and the programs under it."""

import ctypes
import mmap
import os
import platform
import struct
import subprocess
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from enum import IntFlag
from types import TracebackType
from typing import Self

from aliquot.libshim._pages import ffi, lib
from aliquot.sandbox.gpus import SimMachine
from tests.native.sims import wait_for
from tests.native.tenants import Tenant

MS = 1_000_000
SECOND_NS = 1_000_000_000
FAR_NS = 3_600_000_000_000
SHARE = 30
"""Percent of the card: what a tenant gets while its arbiter is silent."""

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
_FUTEX_WAKE = 1
_ALL = 0x7FFFFFFF


class Work(IntFlag):
    """What a process has to do with a card."""

    WAITING = lib.AQ_WORK_WAITING
    IN_FLIGHT = lib.AQ_WORK_IN_FLIGHT


@dataclass(frozen=True)
class Word:
    """A process's word about a card."""

    work: Work
    ends: int
    """When its work is expected to be over, in units of 2^14 ns, modulo 2^30."""

    def after_ns(self, instant: int) -> int:
        """How long after an instant (CLOCK_MONOTONIC, ns) that is."""
        units = (self.ends - (instant >> lib.AQ_WORK_END_UNIT_SHIFT)) & 0x3FFFFFFF
        return (units - (1 << 30 if units >> 29 else 0)) << lib.AQ_WORK_END_UNIT_SHIFT


class Lessor:
    """Opens and closes the gates of one tenant. As a context: with a heart that beats, ahead of time."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        with tenant.control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), lib.AQ_CONTROL_SIZE)
        self._page = ffi.from_buffer("aq_control_page *", self._map)

    def __enter__(self) -> Self:
        self._page.heartbeat_ns = time.monotonic_ns() + FAR_NS
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fall_silent()
        ffi.release(self._page)
        self._map.close()

    def fall_silent(self) -> None:
        """The last heartbeat is now."""
        self._page.heartbeat_ns = time.monotonic_ns()

    def _set(self, card: int, odd: bool) -> None:
        gate = self._page.cards[card].gate + 1
        self._page.cards[card].gate = gate if bool(gate & 1) == odd else gate + 1
        address = int(ffi.cast("uintptr_t", ffi.addressof(self._page.cards[card], "gate")))
        ctypes.CDLL(None).syscall(_SYS_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, _ALL, None, None, 0)

    def open(self, card: int = 0, window_us: int = 2000, lease_ns: int = FAR_NS) -> None:
        """Grants a lease."""
        self._page.cards[card].window_us = window_us
        self._page.cards[card].lease_end_ns = time.monotonic_ns() + lease_ns
        self._set(card, odd=False)

    def close(self, card: int = 0) -> None:
        """Ends it: nothing more may be submitted."""
        self._set(card, odd=True)

    # ---- what the tenant says ----

    def _read(self, offset: int, size: int) -> bytes:
        with self.tenant.usage_page.open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    def rung(self, card: int = 0) -> int:
        """How often the bell rang."""
        cards = ffi.offsetof("aq_usage_page", "cards") + card * ffi.sizeof("aq_usage_card")
        return int.from_bytes(self._read(cards + ffi.offsetof("aq_usage_card", "bell"), 4), "little")

    def words(self, card: int = 0) -> Iterator[Word]:
        """The words of all processes that have anything to do with a card."""
        works = ffi.new("aq_usage_annex *")
        ffi.memmove(
            works, self._read(lib.AQ_USAGE_SIZE, ffi.sizeof("aq_usage_annex")), ffi.sizeof("aq_usage_annex")
        )
        for slot in works.works:
            word = slot.cards[card]
            if word:
                yield Word(Work(word & 3), word >> lib.AQ_WORK_END_SHIFT)

    def works(self, card: int = 0) -> list[Work]:
        """What they say, without the time."""
        return [word.work for word in self.words(card)]

    def monitors(self) -> list[int]:
        """The threads that watch work, as processes name them and the kernel marks their end; slots in use alone."""
        at = ffi.offsetof("aq_usage_file", "monitors")
        words = struct.unpack(f"={lib.AQ_MAX_SLOTS}I", self._read(at, 4 * lib.AQ_MAX_SLOTS))
        return [word for word in words if word]

    def is_drained(self, card: int = 0) -> bool:
        """Whether nothing of the tenant is in flight."""
        return not any(Work.IN_FLIGHT in work for work in self.works(card))


# ---- programs ----

Begin = Callable[..., tuple[Lessor, subprocess.Popen[str]]]


def say(process: subprocess.Popen[str], line: str) -> None:
    """Tells a process something."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str], line: str) -> None:
    """Waits until a process says something."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def told_to_go(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The process, once it was told."""
    say(process, "go")
    return process


# ---- the card's own record ----


def latest(machine: SimMachine) -> int:
    """When the first card last ran anything."""
    return max((run.end_ns for run in machine.busy(machine.cards[0].uuid)), default=0)


def goes_on(machine: SimMachine) -> None:
    """The card runs something from now on."""
    now = time.monotonic_ns()
    wait_for(lambda: latest(machine) > now, "work under the lease")


def busy_between(machine: SimMachine, begin: int, end: int, pids: Container[int]) -> int:
    """For how many nanoseconds the first card ran the processes."""
    runs = [run for run in machine.busy(machine.cards[0].uuid) if run.pid in pids]
    return sum(max(0, min(run.end_ns, end) - max(run.start_ns, begin)) for run in runs)
