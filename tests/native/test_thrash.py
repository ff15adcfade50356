"""Tenants whose memory does not fit on their card together get on where they are leased it for long at a time."""

import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter, Terms
from aliquot.libshim.control_page import OVERFLOW_CARDS, CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage, read_card_usages
from aliquot.plugin.sharing.lease_length import quantum_ns
from aliquot.sandbox.gpus import SimCard, SimMachine
from bench.timeshare.cases import all_cases
from bench.timeshare.fitting import quanta_over
from bench.timeshare.run import KERNELS, Programs, programs, run
from bench.timeshare.verdict import launches
from tests.native.tenants import Tenant

pytestmark = pytest.mark.timing

MIB = 1 << 20
SECOND_NS = 1_000_000_000
CARD_MIB, SET_MIB = 1024, 640
LONG_NS = quantum_ns((2 * SET_MIB - CARD_MIB) * MIB)


@pytest.fixture(scope="module")
def tools() -> Iterator[Programs]:
    """The compiled programs."""
    with programs() as made:
        yield made


def test_tenants_that_do_not_fit_together_get_on_by_long_leases(tools: Programs):
    """At least twice as far, and both of them: the agent finds by itself that they do not fit."""
    case = next(case for case in all_cases() if case.name == f"thrash/2x{SET_MIB}-of-{CARD_MIB}")
    long, short = run(tools, case, 5), run(tools, replace(case, quanta=False), 1.5)
    done = [launches(seen) for seen in long.tenants]
    before = [launches(seen) for seen in short.tenants]
    print(done, before)
    assert sum(done) / 5 >= 2 * sum(before) / 1.5 > 0
    assert min(done) >= 0.4 * sum(done)


@dataclass
class House:
    """A card, an arbiter over its tenants, and the node agent's look at their memory."""

    machine: SimMachine
    root: Path
    tools: Programs
    arbiter: Arbiter
    ends: ExitStack

    @property
    def uuid(self) -> str:
        """The card's."""
        return self.machine.cards[0].uuid

    def enter(
        self, name: str, share: int, memory_mib: int, grant_mib: int | None = None
    ) -> subprocess.Popen[str]:
        """A tenant begins to work: its kernels use all of so much memory, managed or, with a grant, overflowing."""
        directory = self.root / "tenants" / name / "main"
        directory.mkdir(parents=True)
        own = Tenant(self.machine, directory)
        limit = CardLimit(self.uuid, CARD_MIB * MIB, core_share_bp=share * 100, core_most_percent=share)
        if grant_mib is not None:
            limit = replace(limit, grant_bytes=grant_mib * MIB, overflow_bytes=CARD_MIB * MIB)
        create_control(own.control, Control(f"test/{name}/main", (limit,)))
        create_usage(own.usage_page)
        self.arbiter.enter(name, own.control, own.usage_page, (Terms(self.uuid, share * 100, share, 0),))
        process = subprocess.Popen(
            [
                *(self.tools.load, KERNELS, f"memory_mib={memory_mib}", "for_ms=3600000"),
                f"managed={int(grant_mib is None)}",
            ],
            env=own.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ends.callback(process.communicate)
        self.ends.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.stdin is not None
        process.stdin.write(f"{time.monotonic_ns()}\n")
        process.stdin.flush()
        return process

    def leave(self, name: str, process: subprocess.Popen[str]) -> None:
        """A tenant is gone."""
        process.kill()
        process.wait()
        self.arbiter.leave(name)
        shutil.rmtree(self.root / "tenants" / name)

    def turn_ns(self) -> float:
        """The median time for which one tenant works and no other, in two seconds after a long lease."""
        begin = time.monotonic_ns() + LONG_NS
        end = begin + 2 * SECOND_NS
        time.sleep((end - time.monotonic_ns()) / 1e9)
        runs = self.machine.record(self.uuid, begin, end).intervals()
        turns = [list(turn) for _, turn in groupby(runs, key=lambda run: run.pid)]
        return statistics.median(turn[-1].end_ns - turn[0].start_ns for turn in turns) if turns else 0


@pytest.fixture
def house(tmp_path: Path, tools: Programs) -> Iterator[House]:
    """Nobody is there yet."""
    machine = SimMachine(tmp_path / "machine", [SimCard(memory_mib=CARD_MIB, copy_gib_s=12)])
    machine.create()
    with ExitStack() as ends:
        arbiter = Arbiter()
        arbiter.start()
        ends.callback(arbiter.stop)
        yield House(machine, tmp_path, tools, arbiter, ends)


def test_leases_are_long_while_memory_does_not_fit_and_no_longer(house: House):
    """Two that do not fit, and one that is small; then one of the two is gone."""
    quanta = quanta_over(house.arbiter, house.root, [house.uuid], CARD_MIB)
    house.enter("first", 40, SET_MIB)
    house.enter("small", 20, 0)
    quanta.look()
    assert 0 < house.turn_ns() < LONG_NS / 4
    second = house.enter("second", 40, SET_MIB)
    quanta.look()
    assert house.turn_ns() > LONG_NS / 2
    house.leave("second", second)
    quanta.look()
    assert 0 < house.turn_ns() < LONG_NS / 4


def test_leases_stay_short_where_memory_has_overflowed_to_the_host(house: House):
    """It does not come to the card, so nobody waits for it; memory that does, of another tenant, is waited for."""
    quanta = quanta_over(house.arbiter, house.root, [house.uuid], CARD_MIB)
    processes = [house.enter(name, 40, SET_MIB, grant_mib=0) for name in ("first", "second")]
    hosts = [
        read_card_usages(usage)[OVERFLOW_CARDS].memory_used_bytes
        for usage in house.root.glob("tenants/*/main/usage")
    ]
    assert hosts == [SET_MIB * MIB] * 2
    quanta.look()
    assert 0 < house.turn_ns() < LONG_NS / 4
    house.leave("second", processes[1])
    house.enter("third", 30, SET_MIB)
    house.enter("fourth", 30, SET_MIB)
    quanta.look()
    assert house.turn_ns() > LONG_NS / 2
