"""What cuMemGetInfo shows is what is free now: whoever else has, or had, memory of the card."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim._pages import lib
from aliquot.libshim.control_page import CardLimit
from aliquot.sandbox.gpus import SimMachine
from tests.native.leases import Work
from tests.native.shells import OUT, Shell, program, two_cards
from tests.native.sims import wait_for
from tests.native.tenants import Tenant, used

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 64 * MIB
OWN = 2 * MIB
WITHIN_S = 10

INSTANT = Path(__file__).resolve().parents[2] / "bench" / "native" / "instant.c"
INSTANT_UUID = "GPU-11111111-1111-1111-1111-111111111111"

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def die(shell: Shell) -> None:
    """It ends with all that it has."""
    os.kill(shell.pid, signal.SIGKILL)
    shell.process.wait()


@pytest.mark.parametrize("own", [0, OWN])
def test_what_the_dead_had_is_free_for_who_only_asks(slice64: Tenant, own: int):
    """A program that waits for memory need not try to take it; with memory of its own or without."""
    with Shell(slice64).begin() as shell, Shell(slice64).begin() as other:
        if own:
            shell.ok("cuMemAlloc_v2", OUT, own)
        other.ok("cuMemAlloc_v2", OUT, LIMIT - own)
        assert shell.memory_info() == (0, LIMIT)
        die(other)
        wait_for(lambda: shell.memory_info() == (LIMIT - own, LIMIT), "what the dead had", seconds=WITHIN_S)
        assert used(slice64) == own


def test_what_the_dead_had_on_the_host_is_free_too(machine: SimMachine, tenant: TenantMaker):
    """It was the slice's, though none of it was on the card."""
    card = CardLimit(machine.cards[0].uuid, LIMIT, grant_bytes=0, overflow_bytes=LIMIT)
    own = tenant(limits=[card])
    with Shell(own).begin() as shell, Shell(own).begin() as other:
        other.ok("cuMemAlloc_v2", OUT, LIMIT // 2)
        assert used(own) == 0
        assert shell.memory_info() == (LIMIT // 2, LIMIT)
        die(other)
        wait_for(lambda: shell.memory_info() == (LIMIT, LIMIT), "what the dead had", seconds=WITHIN_S)


def test_who_is_left_alone_is_not_shown_its_own_advance(tenant: TenantMaker):
    """All that is charged is its own then, and more than it uses."""
    own = tenant(GIB)
    with Shell(own).begin() as shell, Shell(own).begin() as other:
        for one in (shell, other, shell):
            one.ok("cuMemAlloc_v2", OUT, OWN)
        other.say(".return")
        other.process.wait()
        assert shell.memory_info() == (GIB - 2 * OWN, GIB)


def lose_slot(shell: Shell, own: Tenant) -> None:
    """Closes the file that proves the process's presence: whoever comes next takes its slot for a dead one's."""
    for file in list(Path(f"/proc/{shell.pid}/fd").iterdir()):
        if file.readlink() == own.usage_page:
            shell.ok("close", file.name)


def first_slots_pid(own: Tenant) -> int:
    """Who has the first slot."""
    return own.usage().processes[0].pid


def test_what_a_process_had_in_a_place_that_was_ours_is_free(slice64: Tenant):
    """Who lost its slot to a neighbour gives back what that neighbour left when it died."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, OWN)
        lose_slot(shell, slice64)
        with Shell(slice64).begin() as other:
            other.ok("cuMemAlloc_v2", OUT, LIMIT - OWN)
            assert first_slots_pid(slice64) == other.pid
            assert shell.memory_info() == (OWN, LIMIT)
            die(other)
        wait_for(lambda: shell.memory_info() == (LIMIT, LIMIT), "what the dead had", seconds=WITHIN_S)


def test_who_lost_its_slot_ends_without_a_word_about_its_new_owner(slice64: Tenant):
    """What that one has in flight is still told, and what it holds is charged."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, OWN)
        lose_slot(shell, slice64)
        with Shell(slice64).begin() as other, slice64.usage_page.open("r+b", buffering=0) as page:
            other.ok("cuMemAlloc_v2", OUT, OWN)
            assert first_slots_pid(slice64) == other.pid
            os.pwrite(page.fileno(), Work.IN_FLIGHT.to_bytes(4, "little"), lib.AQ_USAGE_SIZE)
            shell.say(".return")
            assert shell.process.wait() == 0
            assert os.pread(page.fileno(), 4, lib.AQ_USAGE_SIZE) == Work.IN_FLIGHT.to_bytes(4, "little")
            assert used(slice64) == OWN


def test_what_is_shown_is_of_one_moment(tenant: TenantMaker, tmp_path: Path):
    """Limit and correction change together at any instruction of the call: their sum is never a mixture."""
    flags = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC")
    subprocess.run(["cc", *flags, "-o", tmp_path / "libcuda.so.1", INSTANT, "-ldl"], check=True)
    own = tenant(limits=[CardLimit(INSTANT_UUID, LIMIT)])
    env = own.env(LD_LIBRARY_PATH=str(tmp_path))
    command = [program("shown_steps"), "1", own.control]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 100
