"""What NVML says of the time that processes have of a card, for runs whose time no page measures."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pynvml

from aliquot.cli.display.tenants import Part

PERCENT = 100
LATELY_US = 1_000_000


def time_used(part: Part) -> float | None:
    """A run's part of its card's time over about a second; None where NVML cannot tell, or for a pod.

    NVML must be initialised where it is to tell anything.
    """
    if part.run is None:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(part.limit.uuid)
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except pynvml.NVMLError_NotFound:
        return 0.0  # no process had work
    except pynvml.NVMLError:
        return None
    return _of(samples, part.pids)


def _of(samples: Sequence[Any], pids: Sequence[int]) -> float:
    """The sum of what these processes had, each by the mean of its newest samples."""
    newest = max(sample.timeStamp for sample in samples)
    found = defaultdict(list)
    for sample in samples:
        if sample.pid in pids and sample.timeStamp > newest - LATELY_US:
            found[sample.pid].append(sample.smUtil)
    return float(sum(sum(values) / len(values) for values in found.values())) / PERCENT
