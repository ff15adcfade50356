"""A thousand calls that make no sense and two hundred slow connections at once: those who mean well notice little."""

import os
import random
from pathlib import Path

import pytest

from tests.integration.hostiles import (
    CLOSED,
    MALFORMED,
    SLOW_ONES,
    Hostiles,
    besieged,
)
from tests.integration.targets import TARGETS

HELD_MOST_S = 40.0
"""Ten seconds for a call, looked at every ten, and as long again for a busy machine."""
P99_CEILING_S = 2.0
"""Ten times the worst figure of bench/hostile.py."""
EVERY_DAY = "extender, by a stranger"
CASES = [
    pytest.param(target, marks=[pytest.mark.timing, *([] if target == EVERY_DAY else [pytest.mark.slow])])
    for target in TARGETS
]


@pytest.mark.parametrize("target", CASES)
def test_a_server_survives_them(tmp_path: Path, target: str):
    """All calls that mean well are answered, soon; the slow are let go; nothing fails within."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={seed}")
    with TARGETS[target](tmp_path) as (port, tls, path, good):
        good()
        hostiles = Hostiles(port, tls, path, seed, patience_s=HELD_MOST_S + 5)
        took = besieged(hostiles, good)
        good()
    p99 = took[int(len(took) * 0.99)]
    held = {kind: max(seconds) for kind, seconds in hostiles.held_s.items()}
    print(f"{len(took)} calls, p99 {p99 * 1000:.1f} ms; {dict(hostiles.statuses)}; held {held}")
    assert p99 < P99_CEILING_S
    assert sum(hostiles.statuses.values()) == MALFORMED
    assert set(hostiles.statuses) <= {CLOSED, 400, 401, 405, 408, 413, 503}
    assert sum(map(len, hostiles.held_s.values())) == SLOW_ONES
    for kind in hostiles.let_go:
        assert held[kind] < HELD_MOST_S, f"{kind}: the slow are suffered"
