"""A simulated machine of two cards, and tenants confined to slices of them."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.coverage.table import read_table
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.forwarded import forwarded
from tests.native.leases import SHARE, Begin, Lessor, told_to_go
from tests.native.pairs import Pair
from tests.native.tenants import Tenant
from tests.native.test_core_limit import GIB, start
from tests.native.tracing import Tracer

CARD_MIB = 16384


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make -C tests coverage-report`."""
    parser.addoption("--trace-hooks", type=Path, help="where to write which hooks each test entered")
    parser.addoption("--until-all-entered", action="store_true", help="no further test once all hooks were")


def pytest_configure(config: pytest.Config) -> None:
    """Traces if asked to."""
    result = config.getoption("trace_hooks", None)
    if result:
        notes = tempfile.mkdtemp(prefix="aliquot-trace-")
        config.add_cleanup(lambda: shutil.rmtree(notes))
        hooked = frozenset(row.symbol for row in read_table() if row.hooked)
        wanted = hooked if config.getoption("until_all_entered") else frozenset[str]()
        config.pluginmanager.register(Tracer(result, Path(notes), wanted))


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


@pytest.fixture(params=["preloaded", "forwarded"])
def flavoured(tenant: Callable[..., Tenant], request: pytest.FixtureRequest) -> Callable[..., Tenant]:
    """Makes tenants as `tenant` does, whose programs have the interceptor in the one flavour, or in the other."""

    def make(*limits: int) -> Tenant:
        own = tenant(*limits)
        if request.param == "preloaded":
            return own
        return replace(own, forwarders=forwarded(own.directory / "lib", own.machine.lib_dir))

    return make


@pytest.fixture
def pair(machine: SimMachine) -> Iterator[Callable[[str, str], Pair]]:
    """Makes pairs of programs, `pair(first, second)`, which are ended with the test."""
    made: list[Pair] = []

    def make(first: str, second: str) -> Pair:
        made.append(Pair(machine, first, second))
        return made[-1]

    yield make
    for process in (one for pair in made for one in (pair.first, pair.second)):
        process.kill()
        process.communicate()


@pytest.fixture
def slice64(tenant: Callable[..., Tenant]) -> Tenant:
    """A slice of 64 MiB."""
    return tenant(64 << 20)


# ---- leases ----


@pytest.fixture
def leased(machine: SimMachine, tenant: Callable[..., Tenant]) -> Callable[..., Tenant]:
    """Makes tenants of cards that are leased: `leased(cards=1)`."""

    def make(cards: int = 1) -> Tenant:
        return tenant(
            limits=[
                CardLimit(card.uuid, GIB, core_share_bp=SHARE * 100, core_most_percent=SHARE)
                for card in machine.cards[:cards]
            ]
        )

    return make


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is to be ended with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def begin(leased: Callable[..., Tenant], ends: ExitStack) -> Begin:
    """Starts a process under an open lease: `begin(microseconds, together, window_us=..., lease_ns=...)`."""

    def make(microseconds: int, together: int, **terms: int) -> tuple[Lessor, subprocess.Popen[str]]:
        lessor = ends.enter_context(Lessor(leased()))
        lessor.open(**terms)
        process = start(lessor.tenant, "kernel", microseconds, together, seconds=60)
        ends.callback(process.communicate)
        ends.callback(process.kill)
        return lessor, told_to_go(process)

    return make
