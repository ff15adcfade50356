"""Busy loops beside a run, and what others used of the CPUs meanwhile."""

import os
import subprocess
import sys
import time

from bench.timeshare.busy import LOOP, OTHERS_PERCENT, beside


def test_without_loops_nothing_is_said_of_others():
    """CPUs that rest are nobody's."""
    with beside(0) as others:
        pass
    assert others == []


def test_what_others_use_is_found():
    """One loop a core of ours, and as many of somebody who is not waited for: they have about half of the time."""
    foreign = [subprocess.Popen([sys.executable, "-S", "-c", LOOP]) for _ in os.sched_getaffinity(0)]
    try:
        with beside(1) as others:
            time.sleep(1)
    finally:
        for process in foreign:
            process.kill()
            process.wait()
    assert others[0] > OTHERS_PERCENT
