"""What a simulated card did and when: its own record, the judge of compute shares.

Intervals are nanoseconds of CLOCK_MONOTONIC, as `time.monotonic_ns` tells it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

RAN, SWITCHED, COPIED_IN, COPIED_OUT = range(4)
ENTRY = np.dtype([("pid", "i4"), ("kind", "u4"), ("start", "u8"), ("end", "u8")])

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Busy:
    """An interval in which a process had the card."""

    pid: int
    start_ns: int
    end_ns: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.pid, self.start_ns, self.end_ns))


@dataclass(frozen=True)
class Record:
    """A card's record of [`from_ns`, `to_ns`).

    `entries` is a structured array of `ENTRY`, clipped to the interval, each kind in the order in which it ended:
    processes that had the card (`RAN`), handovers of it to a process, in which nobody had it (`SWITCHED`), and
    copies over the bus (`COPIED_IN`, `COPIED_OUT`), which go on beside.
    """

    from_ns: int
    to_ns: int
    entries: NDArray[np.void]

    @classmethod
    def clipped(cls, from_ns: int, to_ns: int, entries: NDArray[np.void]) -> Self:
        """Of entries that overlap the interval, which are cut to it."""
        entries["start"] = np.maximum(entries["start"], from_ns)
        entries["end"] = np.minimum(entries["end"], to_ns)
        return cls(from_ns, to_ns, entries)

    @cached_property
    def runs(self) -> NDArray[np.void]:
        """The entries of processes that had the card."""
        return self.of_kind(RAN)

    def of_kind(self, kind: int) -> NDArray[np.void]:
        """The entries of one kind."""
        chosen: NDArray[np.void] = self.entries[self.entries["kind"] == kind]
        return chosen

    def intervals(self) -> list[Busy]:
        """The runs, oldest first."""
        return [Busy(*run) for run in self.runs[["pid", "start", "end"]].tolist()]

    def busy_ns(self, pid: int | None = None) -> int:
        """How long a process had the card; None: how long anybody had it."""
        return int(self._busy_before(np.array([self.to_ns - self.from_ns]), pid)[0])

    def idle_ns(self) -> int:
        """How long nobody had it. Work that is ready makes it idle for handovers alone (`switching_ns`)."""
        return self.to_ns - self.from_ns - self.busy_ns()

    def switching_ns(self) -> int:
        """How long it was being handed from one process to another."""
        switches = self.of_kind(SWITCHED)
        return int((switches["end"] - switches["start"]).sum())

    def windows(self, width_ns: int = 100_000_000, pid: int | None = None) -> Times:
        """Nanoseconds that a process (None: anybody) had the card in each whole window, from `from_ns` on."""
        edges = np.arange(0, self.to_ns - self.from_ns + 1, width_ns)
        return np.diff(self._busy_before(edges, pid))

    def _busy_before(self, times: Times, pid: int | None) -> Times:
        """Nanoseconds of a process's runs that lie before each of some times, which count from `from_ns`."""
        runs = self.runs if pid is None else self.runs[self.runs["pid"] == pid]
        starts, ends = _union(
            runs["start"].astype(np.int64) - self.from_ns, runs["end"].astype(np.int64) - self.from_ns
        )
        if len(starts) == 0:
            return np.zeros(len(times), np.int64)
        whole = np.concatenate(([0], np.cumsum(ends - starts)))
        begun = np.searchsorted(starts, times, side="right")
        latest = np.maximum(begun - 1, 0)
        part = np.clip(times - starts[latest], 0, ends[latest] - starts[latest])
        return np.where(begun > 0, whole[latest] + part, 0)


def _union(starts: Times, ends: Times) -> tuple[Times, Times]:
    """Intervals without overlap that cover the same, in order: processes run side by side on a concurrent card."""
    order = np.argsort(starts, kind="stable")
    starts, covered = starts[order], np.maximum.accumulate(ends[order])
    new = np.ones(len(starts), bool)
    new[1:] = starts[1:] > covered[:-1]
    first = np.flatnonzero(new)
    return starts[first], covered[np.append(first[1:], len(starts)) - 1] if len(starts) else covered
