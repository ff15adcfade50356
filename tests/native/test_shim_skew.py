"""Interceptors and agents of different ages: a container keeps its library while the node's agent is replaced."""

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim.control_page import (
    CardLimit,
    Control,
    Enforcement,
    change_control,
    read_control,
    touch_granter,
)
from aliquot.libshim.usage_page import read_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, Shell, two_cards
from tests.native.tenants import Tenant

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = Path(__file__).with_name("pages")
FIRST_LAYOUT = "fe4fa67"  # the interceptor before grants, corrections and locks
MIB, GIB = 1 << 20, 1 << 30
LIMIT = 64 * MIB

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interceptor of the first layout, built from the project's history."""
    root = tmp_path_factory.mktemp("old")
    archive = ["git", "-C", REPOSITORY, "archive", FIRST_LAYOUT, "libshim"]
    found = subprocess.run(archive, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"NOT RUN: no {FIRST_LAYOUT} in this copy of the project")
    subprocess.run(["tar", "-x", "-C", root], input=found.stdout, check=True)
    subprocess.run(["make", "-s", "-C", root / "libshim"], check=True)
    return root / "libshim" / "build" / "libaliquot.so"


def test_pages_of_an_older_agent_mean_what_they_meant(tmp_path: Path):
    """Words that it left 0 change nothing: all of the limit may be used, nothing is added to what is in use."""
    limits = read_control(PAGES / "v1-control.bin").cards
    machine = SimMachine(tmp_path / "machine", [SimCard(uuid=limits[0].uuid)])
    machine.create()
    for name in ("control", "usage"):
        shutil.copyfile(PAGES / f"v1-{name}.bin", tmp_path / name)
    own = Tenant(machine, tmp_path)
    with Shell(own).begin() as shell:
        assert shell.memory_info() == (8 * GIB, 8 * GIB)
        shell.ok("cuMemAlloc_v2", OUT, 8 * GIB)
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
    before = read_usage(PAGES / "v1-usage.bin").cards[1]
    assert own.usage().cards[1].memory_peak_bytes == before.memory_peak_bytes


@pytest.mark.slow
def test_an_older_interceptor_shares_the_quota_with_a_newer_one(tenant: TenantMaker, old_library: Path):
    """Both in one tenant: no more than the slice between them, and each collects the other's dead."""
    own = tenant(LIMIT)
    with Shell(own).begin() as new, Shell(own, LD_PRELOAD=str(old_library)).begin() as old:
        old.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert new.call("cuMemAlloc_v2", OUT, LIMIT // 2 + 1)[0] == OUT_OF_MEMORY
        new.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert old.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        os.kill(new.pid, signal.SIGKILL)
        new.process.wait()
        old.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        with Shell(own).begin() as third:
            assert third.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
            os.kill(old.pid, signal.SIGKILL)
            old.process.wait()
            third.ok("cuMemAlloc_v2", OUT, LIMIT)


@pytest.mark.slow
def test_an_older_interceptor_takes_advances_for_use_and_collects_them(
    tenant: TenantMaker, old_library: Path
):
    """Beside newer ones it gets all but their advances; when they have died it gets those, too, and they stay ended."""
    own = tenant(GIB)
    with Shell(own, LD_PRELOAD=str(old_library)).begin() as old:
        with Shell(own).begin() as one, Shell(own).begin() as other:
            for shell in (one, other, one):
                shell.ok("cuMemAlloc_v2", OUT, 2 * MIB)
            assert old.call("cuMemAlloc_v2", OUT, GIB - 6 * MIB)[0] == OUT_OF_MEMORY
            block = old.ok("cuMemAlloc_v2", OUT, GIB - 6 * MIB - GIB // 16)
            assert one.memory_info() == (GIB // 16, GIB)
            old.ok("cuMemFree_v2", block)
        old.ok("cuMemAlloc_v2", OUT, GIB)
        assert own.usage().cards[0].memory_used_bytes == GIB
        with Shell(own).begin() as late:
            assert late.memory_info() == (0, GIB)
            assert late.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


@pytest.mark.slow
def test_an_older_interceptor_lives_under_a_newer_agent(tenant: TenantMaker, old_library: Path):
    """Limits and enforcement go on changing for it; words that it does not know change nothing."""
    own = tenant(LIMIT)

    def write(level: Enforcement = Enforcement.ENFORCE, **words: int) -> None:
        def change(control: Control | None) -> Control:
            assert control is not None
            card: CardLimit = dataclasses.replace(control.cards[0], **words)
            return dataclasses.replace(control, cards=(card,), enforcement=level)

        change_control(own.control, change)

    write(context_bytes=MIB, adjust_bytes=MIB, overflow_bytes=MIB)
    touch_granter(own.control, time.monotonic_ns())
    with Shell(own, LD_PRELOAD=str(old_library)).begin() as old:
        block = old.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert own.usage().cards[0].memory_used_bytes == LIMIT
        assert [process.pid for process in own.usage().processes] == [old.pid]
        write(memory_bytes=2 * LIMIT)
        old.ok("cuMemAlloc_v2", OUT, LIMIT)
        write(Enforcement.OBSERVE)
        old.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert own.usage().cards[0].allocations_denied == 1
        write()
        old.ok("cuMemFree_v2", block)
        assert old.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
