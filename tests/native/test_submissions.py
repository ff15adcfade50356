"""Every way to submit work is held to the share, judged by the simulated cards' own records.

Each program has a card to itself and a way of its own to keep it busy; they work side by side.
"""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.sandbox.record import SWITCHED
from bench.timeshare.timeline import Timeline
from tests.native.attempts import attempts
from tests.native.shells import CLIENTS
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, SPIN_PTX, TOLERANCE, WINDOW_S

pytestmark = pytest.mark.timing

MOST_CARDS = 16
SHARE = 30
SLOW_GIB_S = 0.125
"""What a MiB takes 8 ms of: what this machine takes to wake a program is little beside it."""

WAYS = {
    "launches": (
        *("launched", "launched_by_default", "launched_ptsz", "launched_per_thread", "launched_ex"),
        *("launched_ex_ptsz", "cooperative", "cooperative_ptsz", "multi_device"),
        *("legacy", "legacy_grid", "legacy_grid_async", "graphs", "graphs_ptsz", "two_threads_two_streams"),
    ),
    "beside a wait for the host": ("beside_a_wait",),
    "copies and fills": (
        *("copied", "copied_async", "in", "in_async", "out", "out_async", "within", "within_async", "batch"),
        *("filled", "filled_async", "filled_words", "filled_box"),
    ),
}
WAITING = {"copied", "in", "out", "within", "filled", "filled_words"}
"""Each call is an event of its own that a program sets when it runs again: being woken late is charged, too."""


@pytest.fixture
def machine(tmp_path: Path) -> SimMachine:
    """A card for each way."""
    card = SimCard(copy_gib_s=SLOW_GIB_S, memory_gib_s=SLOW_GIB_S)
    made = SimMachine(tmp_path / "machine", [card] * MOST_CARDS)
    made.create()
    return made


@pytest.fixture
def submitters(machine: SimMachine, tmp_path: Path) -> Path:
    """The program, compiled."""
    target = tmp_path / "submitters"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(target)]
    driver = machine.lib_dir / "libcuda.so.1"
    subprocess.run(["cc", *flags, CLIENTS / "submitters.c", driver, "-lpthread"], check=True)
    return target


Processes = Mapping[str, subprocess.Popen[str]]


def go(processes: Processes) -> None:
    """Lets them work for a while, side by side."""
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write(f"{WINDOW_S * 1000 + 300}\n")
        process.stdin.flush()
    for way, process in processes.items():
        process.communicate(timeout=60)
        assert process.returncode == 0, way


def shares(machine: SimMachine, processes: Processes) -> dict[str, float]:
    """Percent of its card's time, or its bus's, that each had from when it began."""
    now = time.monotonic_ns()
    found = {}
    for card, (way, process) in zip(machine.cards, processes.items(), strict=False):
        entries = machine.record(card.uuid, 0, now).entries
        own = entries[(entries["pid"] == process.pid) & (entries["kind"] != SWITCHED)]
        begin = int(np.min(own["start"]))
        found[way] = Timeline.of(own).percent(begin, begin + WINDOW_S * 1_000_000_000)
    return found


def beyond(shares: Mapping[str, float]) -> float:
    """How far the one is off that is off most, in points; of those that wait only what they have too much."""
    errors = (max(0, share - SHARE) if way in WAITING else share - SHARE for way, share in shares.items())
    return max(errors, key=abs)


@pytest.mark.parametrize("kind", WAYS)
def test_whatever_submits_is_held_to_the_share(
    machine: SimMachine, tenant: Callable[..., Tenant], submitters: Path, kind: str
):
    """Never more, and less only where the machine has no CPU for it, but not each time."""

    def attempt() -> float:
        processes = {
            way: subprocess.Popen(
                [str(submitters), str(SPIN_PTX), str(card), way],
                env=tenant(GIB, SHARE, card).env(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for card, way in enumerate(WAYS[kind])
        }
        go(processes)
        found = shares(machine, processes)
        print(found)
        assert max(found.values()) < SHARE + TOLERANCE
        assert min(found.values()) > SHARE / 3
        return beyond(found)

    assert attempts(attempt, 0, TOLERANCE)[-1] > -TOLERANCE
