"""When a card ran somebody: the arithmetic on the simulated card's own record of who ran when."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]
WINDOW_NS = 100_000_000


@dataclass(frozen=True)
class Timeline:
    """The union of intervals.

    Args:
        edges: Instants in rising order, in nanoseconds: a start, its end, the next start ...
        busy: How long somebody ran up to each of them.
    """

    edges: Times
    busy: Times

    @classmethod
    def of(cls, runs: npt.NDArray[np.void]) -> "Timeline":
        """From a record's entries in any order, which may overlap."""
        if not len(runs):
            return cls(np.zeros(1), np.zeros(1))
        ordered = np.sort(runs, order="start")
        ends = np.maximum.accumulate(ordered["end"].astype(np.float64))
        starts = ordered["start"].astype(np.float64)
        first = np.append(True, starts[1:] > ends[:-1])
        starts, ends = starts[first], ends[np.append(first[1:], True)]
        edges = np.stack([starts, ends], axis=1).ravel()
        ran = np.cumsum(ends - starts)
        busy = np.stack([ran - (ends - starts), ran], axis=1).ravel()
        return cls(edges, busy)

    def ran(self, start_ns: float, end_ns: float) -> float:
        """Nanoseconds in [start, end) in which somebody ran."""
        low, high = np.interp([start_ns, end_ns], self.edges, self.busy)
        return float(high - low)

    def percent(self, start_ns: float, end_ns: float) -> float:
        """The same of that time."""
        return 100 * self.ran(start_ns, end_ns) / (end_ns - start_ns)

    def deviation(self, start_ns: float, end_ns: float) -> float:
        """Standard deviation, in points, of the percentages of whole windows of 100 ms."""
        windows = np.arange(start_ns, end_ns + 1, WINDOW_NS)
        shares = 100 * np.diff(np.interp(windows, self.edges, self.busy)) / WINDOW_NS
        return float(np.std(shares)) if len(shares) else 0.0

    def first_run(self, after_ns: float) -> float:
        """The first instant from then on at which somebody ran; infinity: never."""
        place = int(np.searchsorted(self.edges[1::2], after_ns, side="right"))
        starts = self.edges[0::2]
        return max(float(starts[place]), after_ns) if place < len(starts) else float("inf")


def percentile(values: Sequence[float], percent: float) -> float:
    """Of values that are there; infinity: there are none."""
    return float(np.percentile(values, percent)) if values else float("inf")
