"""Everything at once, at random, with an auditor that believes nobody. SEED repeats a run, MINUTES lengthens it."""

import os
import time
from pathlib import Path

import pytest

from tests.native.chaos.chaos import Chaos

LASTS_S = 60 * float(os.environ.get("MINUTES", "0.25"))


@pytest.mark.slow
@pytest.mark.timeout(LASTS_S + 120)
def test_no_promise_is_broken_whatever_happens_to_whom(tmp_path: Path) -> None:
    """No slice is exceeded, no account lies, nobody hangs or falls, and the dead leave nothing."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    chaos = Chaos(tmp_path, seed)
    chaos.run(LASTS_S)
    print(f"{LASTS_S:.0f} s: {dict(chaos.done)}")
    assert chaos.done["looks"] > LASTS_S
