"""Busy loops of ordinary priority beside a run, and whether anything else used this machine's CPUs meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

OTHERS_PERCENT = 5.0
"""Of the CPUs' time, what other programs and other machines may have had of it in a run that counts."""
LOOP = "while True: pass"


def _used_s() -> float:
    """CPU time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@contextmanager
def beside(per_core: int) -> Iterator[list[float]]:
    """Runs so many loops for each core.

    The percentage of the CPUs' time that neither they, nor this process, nor those that it started and waited for had
    is in the list afterwards; with no loops nothing is: then CPUs rest, too.
    """
    others: list[float] = []
    began_s, used_s = time.monotonic(), _used_s()
    cores = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for _ in range(per_core * cores):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", LOOP]))
            stack.callback(process.kill)
        yield others
    if per_core:
        had = (_used_s() - used_s) / (time.monotonic() - began_s) / cores
        others.append(max(0.0, 100 * (1 - had)))
