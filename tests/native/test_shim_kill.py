"""A process killed at any instruction of a driver call leaves nothing of what it held."""

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import program, two_cards
from tests.native.tenants import Tenant

LIMIT = 64 << 20
CALLS = (
    "alloc",
    "free",
    "alloc_async",
    "free_async",
    "synchronize",
    "create",
    "map",
    "release",
    "unmap",
)

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def steps() -> Path:
    """The program that kills its children."""
    return program("call_steps", "advance.c", "ledger.c", "process.c", "presence.c")


def kill_at_every(slice_: Tenant, steps: Path, call: str, stride: int, first: int = 0) -> None:
    """Kills a process after every `stride`-th instruction of a call, from the `first` on."""
    print(f"{call}: every {stride} instructions from {first}")
    command = [steps, call, str(stride), str(first), slice_.usage_page]
    done = subprocess.run(
        command, env=slice_.env(), capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 100


@pytest.mark.parametrize("call", CALLS)
def test_a_process_killed_in_a_call_leaves_nothing(tenant: TenantMaker, steps: Path, call: str):
    """Whatever the call has done so far, in the interceptor and in the driver, is undone by the next who looks."""
    kill_at_every(tenant(LIMIT), steps, call, 41, random.randrange(41))


def test_a_process_killed_in_its_first_allocation_leaves_nothing(tenant: TenantMaker, steps: Path):
    """That call finds the pages, the driver's functions and a slot, and announces who has it."""
    kill_at_every(tenant(LIMIT), steps, "first", 20_011, random.randrange(20_011))


@pytest.mark.parametrize("call", ["checkpoint", "restore"])
def test_whoever_is_killed_while_it_checkpoints_another_leaves_that_one_charged(
    tenant: TenantMaker, call: str
):
    """For what it has on the card at least; nothing is left when the other ends, too."""
    steps = program("checkpoint_steps", "advance.c", "ledger.c", "process.c", "presence.c")
    kill_at_every(tenant(LIMIT), steps, call, 499, random.randrange(499))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("call", CALLS)
def test_a_process_killed_at_any_instruction_of_a_call_leaves_nothing(
    tenant: TenantMaker, steps: Path, call: str
):
    """Every single one of them."""
    kill_at_every(tenant(LIMIT), steps, call, 1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_process_killed_anywhere_in_its_first_allocation_leaves_nothing(tenant: TenantMaker, steps: Path):
    """Every 499th of its hundred thousand instructions."""
    kill_at_every(tenant(LIMIT), steps, "first", 499, random.randrange(499))
