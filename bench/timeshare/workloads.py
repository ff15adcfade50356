"""What `make -C bench programs` measures, as data: programs of `tests/programs`, and what a slice may cost them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product


class Mode(StrEnum):
    """What stands between the programs and their cards."""

    BARE = "bare"
    """Nothing."""
    SLICE = "slice"
    """The interceptor, whose own measure keeps each tenant to its share."""
    LEASE = "lease"
    """The interceptor, and an arbiter that leases the cards."""


class Question(StrEnum):
    """What is asked of a workload in a slice and under leases; `workload_verdict.py` has the answers."""

    TIME = "time"
    """How much longer it takes than without, or than its share of the card allows where that is longer."""
    USE = "use"
    """Whether it uses as much of the card as without, or its share where that is less, and is charged what it used."""
    STEPS = "steps"
    """How many steps a second it makes."""
    EVENTS = "events"
    """How far the times that it measures by events are off those that it measures without."""


@dataclass(frozen=True)
class Job:
    """A process: a program of `tests/programs`, and its options."""

    program: str
    options: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tenant:
    """A container on one card.

    Args:
        jobs: Its processes.
        share: Percent of the card; it is never lent more.
        card: Index of the card.
        memory_mib: Its slice of the card's memory.
        rival: Whether it is there to be in the way: its end is not waited for, and nothing is asked of it.
    """

    jobs: tuple[Job, ...]
    share: int = 99
    card: int = 0
    memory_mib: int = 8192
    rival: bool = False


@dataclass(frozen=True)
class Workload:
    """Programs that run at the same time.

    Args:
        name: For `WHAT=` and the reader.
        tenants: Those of whom something is asked, and rivals.
        question: What must hold.
        bound: How far off is allowed, in the question's unit.
        cards: How many there are.
        bus_gib_s: What the bus takes in each direction.
    """

    name: str
    tenants: tuple[Tenant, ...]
    question: Question = Question.TIME
    bound: float = 1.03
    cards: int = 1
    bus_gib_s: float = 50

    @property
    def measured(self) -> tuple[int, ...]:
        """The tenants' numbers of whom something is asked."""
        return tuple(number for number, tenant in enumerate(self.tenants) if not tenant.rival)


def alone(name: str, program: str, question: Question, bound: float, share: int = 99, **options: str | int) -> Workload:
    """One process that has the card to itself."""
    return Workload(name, (Tenant((Job(program, options),), share),), question, bound)


POINTS = 1.0
"""Percent of the card by which use may be off."""
SIDE_BY_SIDE, WAITS = 1.03, 1.2


def pauses() -> Iterator[Workload]:
    """Programs that leave the card idle: they are charged what they use, and slowed down beyond their share only."""
    for kernel_us, period_us, share in ((10, 100, 30), (10, 40, 50), (20, 100, 30)):
        options = {"kernel_us": kernel_us, "period_us": period_us, "count": 1_000_000 // period_us}
        yield alone(f"pauses/{kernel_us}us-of-{period_us}us", "periodic", Question.USE, POINTS, share, **options)
    for by, kernel_us in product(("host", "event"), (100, 1000)):
        pauses = {"by": by, "kernel_us": kernel_us, "pause_ms": kernel_us // 5, "rounds": 4000 // kernel_us}
        yield alone(f"pauses/{kernel_us}us-by-{by}", "interrupted", Question.USE, POINTS, 30, **pauses)


def side_by_side() -> Iterator[Workload]:
    """Programs whose streams overlap: a slice that is the card leaves them side by side."""
    streams = {
        "long-beside-short": (99, {"work": "1x20000,10x1000", "rounds": 10}),
        "copy-beside-kernels": (99, {"work": "1xin,40x1000", "rounds": 5}),
        "4-streams": (99, {"work": ",".join(["1x5000"] * 4), "rounds": 60}),
        "8-streams": (50, {"work": ",".join(["1x500"] * 8), "rounds": 400, "sync": 0}),
    }
    for name, (share, options) in streams.items():
        tenants = (Tenant((Job("streams", options),), share),)
        # 16 MiB take as long as a GiB on a bus of 50 GiB/s; the simulated driver really copies what it is told to.
        yield Workload(f"streams/{name}", tenants, Question.TIME, SIDE_BY_SIDE, bus_gib_s=50 / 64)


def waits() -> Iterator[Workload]:
    """Programs with a kernel or a stream that waits for what comes later."""
    yield alone("waits/kernel-for-host", "waiting_kernel", Question.TIME, WAITS)
    again: dict[str, str | int] = {"kernel_us": 1000, "count": 5, "rounds": 2}
    yield alone("waits/kernel-for-host-again", "waiting_kernel", Question.TIME, WAITS, **again)
    yield alone("waits/stream-for-word", "consumer", Question.TIME, WAITS)


def all_workloads() -> list[Workload]:
    """In the order of the table."""
    return [*pauses(), *side_by_side(), *waits()]
