"""How far the agent believes what a tenant's usage page says of itself: each field has a bound that others rely on.

    field                     believed up to                                       read by
    memory in use             the card's memory; what it may have at most,         metrics; granter, quanta
                              where that decides what others get
    memory, at its peak       the card's memory                                    metrics
    memory it waits for       its limit                                            granter
    time busy                 the time that passed, and a quarter more             metrics; arbiter/src/client.c
    time throttled            the time that passed, for each process there may be  metrics
    processes                 those of its own pod, by cgroup                      aliquot/node/processes.py
    work in flight            what the driver sees on the card                     absent_work
    texts                     their fields, 64 and 512 bytes                       libshim/usage_page.py

Too little time is found by the driver's samples (arrears). Refused allocations have no bound, for nobody else's figures
are made of them.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from aliquot.libshim._pages import lib
from aliquot.libshim.usage_page import CardUsage

FRESH_NS: Final = 60_000_000
"""A tenant that waits repeats its wish every 20 ms."""
BUSY_RATE: Final = 1.25
"""Estimates of time busy may be too high for a while."""
THROTTLED_RATE: Final = float(lib.AQ_MAX_SLOTS)
SPARE_MOST_NS: Final = 3600 * 10**9
"""A kernel's time is said when it ends; longer ones are not believed."""


def used_bytes(usage: CardUsage, most: int) -> int:
    """Memory in use."""
    return min(usage.memory_used_bytes, most)


def peak_bytes(usage: CardUsage, most: int) -> int:
    """The most memory that was in use."""
    return min(usage.memory_peak_bytes, most)


def wanted_bytes(usage: CardUsage, most: int, now_ns: int) -> int:
    """Memory that it waits for beyond its grant; nothing, where it asked for it a while ago."""
    return min(usage.wanted_bytes, most) if now_ns - usage.wanted_ns < FRESH_NS else 0


@dataclass
class PacedTime:
    """A counter of time in a page, which grows no faster than time passes, `rate` times; a page emptied begins anew.

    What is said at first may be of all the time since the machine has begun, for the agent may have begun later. To be
    read in the order of time.
    """

    rate: float
    _told_ns: int = 0
    _said_ns: int = 0
    _spare_ns: float = 0.0
    _read_ns: int = 0

    def read(self, said_ns: int, now_ns: int) -> int:
        """What is believed of it at this moment of CLOCK_MONOTONIC, which began with the machine."""
        passed = self.rate * (now_ns - self._read_ns)
        self._spare_ns = min(self._spare_ns + passed, SPARE_MOST_NS if self._read_ns else passed)
        if said_ns < self._said_ns:
            self._told_ns, self._said_ns = 0, 0
        grown = min(said_ns - self._said_ns, int(self._spare_ns))
        self._told_ns += grown
        self._spare_ns -= grown
        self._said_ns, self._read_ns = said_ns, now_ns
        return self._told_ns


@dataclass
class TimeBounds:
    """The times of one tenant on one card."""

    busy: PacedTime = field(default_factory=lambda: PacedTime(BUSY_RATE))
    throttled: PacedTime = field(default_factory=lambda: PacedTime(THROTTLED_RATE))


def bounded(usage: CardUsage, most: int, times: TimeBounds, now_ns: int) -> CardUsage:
    """What is told of a tenant on a card that has `most` bytes; `now_ns` is of CLOCK_MONOTONIC."""
    return replace(
        usage,
        memory_used_bytes=used_bytes(usage, most),
        memory_peak_bytes=peak_bytes(usage, most),
        busy_ns=times.busy.read(usage.busy_ns, now_ns),
        throttled_ns=times.throttled.read(usage.throttled_ns, now_ns),
    )
