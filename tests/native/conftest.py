"""A simulated machine of two cards, and tenants confined to slices of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from libshim.pages import CardLimit, Control, create_control, create_usage
from sandbox.gpus import SimCard, SimMachine
from tests.native.tenants import Tenant

CARD_MIB = 16384


@pytest.fixture
def machine(tmp_path: Path) -> SimMachine:
    """Two cards of 16 GiB."""
    made = SimMachine(tmp_path / "machine", [SimCard(memory_mib=CARD_MIB), SimCard(memory_mib=CARD_MIB)])
    made.create()
    return made


@pytest.fixture
def tenant(machine: SimMachine, tmp_path: Path) -> Callable[..., Tenant]:
    """Makes tenants: `tenant(bytes, percent, card=0)`, or `tenant(limits=[CardLimit(...), ...])`."""

    def make(
        memory_bytes: int = 0, core_percent: int = 0, card: int = 0, limits: list[CardLimit] | None = None
    ) -> Tenant:
        directory = tmp_path / f"tenant{len(list(tmp_path.glob('tenant*')))}"
        directory.mkdir()
        own = [CardLimit(machine.cards[card].uuid, memory_bytes, core_percent)]
        create_control(directory / "control", Control(f"test/{directory.name}", tuple(limits or own)))
        create_usage(directory / "usage")
        return Tenant(machine, directory)

    return make
