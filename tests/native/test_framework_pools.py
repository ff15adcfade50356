"""Allocators of frameworks fill their slice, are refused, recover by their own means, free, and do it again."""

import select
import subprocess
from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import program, two_cards
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 256 * MIB
DEADLINE_S = 60
ROUNDS = 1000

# What a round gets of 256 MiB, in pieces of 8, 60 and 120 MiB: by what the allocator takes for each.
GETS = {
    "caching": (8 * (256 // 20), 60 * 4, 120 * 2),
    "expandable": (8 * (256 // 20), 60 * 4, 120 * 2),
    "async": (256, 60 * 4, 120 * 2),
    "arena": (256, 60 * 4, 120 * 2),
    "resource": (256, 60 * 4, 120 * 2),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def watched(slice_: Tenant, name: str) -> tuple[list[str], int]:
    """Runs the program while its card is watched: its lines, and the most bytes that were in use at any moment."""
    card = slice_.machine.cards[0].uuid
    process = subprocess.Popen(
        [program("framework_pools"), name],
        env=slice_.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    highest = 0
    while not select.select([process.stdout], [], [], 0)[0]:
        highest = max(highest, slice_.machine.memory_highest(card, 0.01))
    assert slice_.machine.memory_used(card) == slice_.usage().cards[0].memory_used_bytes == 0
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return output.splitlines(), highest


@pytest.mark.slow
@pytest.mark.parametrize("name", GETS)
def test_a_frameworks_allocator_gets_its_slice_again_and_again(flavoured: Callable[..., Tenant], name: str):
    """In every round all that fits, never more than the slice at any moment, and nothing is left at the end."""
    lines, highest = watched(flavoured(LIMIT), name)
    assert lines == [" ".join(map(str, GETS[name]))] * ROUNDS + ["all given back"]
    assert 0 < highest <= LIMIT
