"""Records of a card, written by hand."""

from collections.abc import Iterable

import numpy as np

from aliquot.sandbox.record import ENTRY, RAN
from bench.timeshare.timeline import Timeline


def timeline(intervals: Iterable[tuple[int, int]]) -> Timeline:
    """That of one process which ran then."""
    return Timeline.of(np.array([(1, RAN, start, end) for start, end in intervals], ENTRY))
