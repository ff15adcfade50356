"""A minute of everything at once. SEED repeats a run, MINUTES lengthens it.

After each act the auditor looks at first-hand evidence; a run goes on until every act was done.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.chaos import cards, files, guests, services, wires
from tests.integration.chaos.chaos import SETTLES_S, Chaos
from tests.integration.chaos.place import Place, place
from tests.integration.journey.auditor import audit_clean

LASTS_S = 60 * float(os.environ.get("MINUTES", "0.75"))
ACTS = (*guests.ACTS, *services.ACTS, *wires.ACTS, *cards.ACTS, *files.ACTS)


@pytest.fixture(name="stack")
def run_stack() -> Iterator[Place]:
    """Where it happens."""
    with place() as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(3 * LASTS_S + 5 * SETTLES_S)
def test_nothing_is_lost_or_promised_twice_in_a_minute_of_chaos(stack: Place) -> None:
    """All invariants hold after each act; in the end everybody runs or knows why not, and nothing is left over."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    chaos = Chaos(stack, random.Random(seed), ACTS)
    guests.gather(chaos)
    begin = time.monotonic()
    while time.monotonic() - begin < LASTS_S or not chaos.complete:
        print(f"{time.monotonic() - begin:5.1f} s  {chaos.step()}", flush=True)
    chaos.settle()
    for name in chaos.guests:
        stack.kubectl.delete("pods", name, grace=0)
    wait_for("all pods to go", lambda: not stack.kubectl.list("pods"))
    audit_clean(stack)
    print(*(f"{count:4} {name}" for name, count in sorted(chaos.done.items())), sep="\n")
