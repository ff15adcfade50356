"""An arbiter, and tenants with pages of their own whose processes play (player.py)."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from aliquot.arbiter import Arbiter, Terms
from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage
from tests.unit.arbiter.player import Player

Span = tuple[int, int]
MS = 1_000_000
PATIENCE_S = 60.0
STRAY_NS = 80 * MS
"""A kernel that takes so long belongs to a process that was kept from running. The arbiter waits no longer for it."""


@dataclass(frozen=True)
class Tenant:
    """A tenant's files and terms."""

    name: str
    control: Path
    usage: Path
    terms: tuple[Terms, ...]

    def player(self, slot: int = 0) -> Player:
        """One of its processes, played by the caller."""
        return Player(self.control, self.usage, slot)


@dataclass
class House:
    """Where they live."""

    directory: Path
    arbiter: Arbiter
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def tenant(self, name: str, *terms: Terms, group: str = "") -> Tenant:
        """Makes a tenant's pages and has it enter."""
        tenant = Tenant(name, self.directory / f"{name}.control", self.directory / f"{name}.usage", terms)
        limits = (
            CardLimit(term.card, 0, core_share_bp=term.share_bp, core_most_percent=term.most_percent)
            for term in terms
        )
        create_control(tenant.control, Control(f"test/{name}/main", tuple(limits)))
        create_usage(tenant.usage)
        self.arbiter.enter(name, tenant.control, tenant.usage, terms, group)
        return tenant

    def play(
        self, tenant: Tenant, kernel_ns: int, cards: Sequence[int] = (0,), slot: int = 0
    ) -> subprocess.Popen[str]:
        """Starts a process of a tenant that always has work."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.unit.arbiter.player",
                *(tenant.control, tenant.usage, str(slot), ",".join(map(str, cards)), str(kernel_ns)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process


@dataclass(frozen=True)
class Kernel:
    """One that a player had on a card: when it was announced, when it began, when it ended."""

    announced_ns: int
    start_ns: int
    end_ns: int


def kernels(process: subprocess.Popen[str]) -> list[Kernel]:
    """Ends a player and returns what it had on its cards, in its order."""
    output, _ = process.communicate()
    return [Kernel(*map(int, line.split())) for line in output.splitlines()]


def spans(process: subprocess.Popen[str]) -> list[Span]:
    """Ends a player and returns when it had the card."""
    return [(kernel.start_ns, kernel.end_ns) for kernel in kernels(process)]


def are_apart(had: Sequence[Kernel]) -> bool:
    """Whether no two kernels were on a card at once, but for those of processes that were kept from running."""
    punctual = [kernel for kernel in had if kernel.end_ns - kernel.announced_ns < STRAY_NS]
    in_order = sorted(punctual, key=lambda kernel: kernel.start_ns)
    return bool(punctual) and all(one.end_ns <= other.start_ns for one, other in pairwise(in_order))


def time_in(found: Sequence[Span], begin_ns: int, end_ns: int) -> int:
    """How much of an interval they cover."""
    return sum(max(0, min(end, end_ns) - max(start, begin_ns)) for start, end in found)


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that must happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextlib.contextmanager
def house(directory: Path, **options: bool | int) -> Iterator[House]:
    """An arbiter at work."""
    made = House(directory, Arbiter(**options))
    made.arbiter.start()
    try:
        yield made
    finally:
        for process in made.running:
            process.kill()
            process.communicate()
        made.arbiter.close()
