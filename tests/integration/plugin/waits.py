"""How long others wait beside a hostile tenant."""

import time
from collections.abc import Callable
from pathlib import Path

from aliquot.libshim.control_page import read_times


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call takes; an answer of no bytes is none."""
    begin = time.monotonic()
    assert call() != ""
    return time.monotonic() - begin


def longest_silence_s(control: Path, watched_s: float) -> float:
    """The longest time without a heartbeat of the arbiter in a tenant's page, while that is watched."""
    end, seen, longest = time.monotonic() + watched_s, time.monotonic_ns(), 0
    while time.monotonic() < end:
        time.sleep(0.005)
        heard = read_times(control)[0].heartbeat_ns
        longest = max(longest, (heard if heard > seen else time.monotonic_ns()) - seen)
        seen = max(seen, heard)
    return longest / 1e9
