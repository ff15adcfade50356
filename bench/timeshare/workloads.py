"""What `make -C bench programs` measures, as data: programs of `tests/programs`, and what a slice may cost them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product

WHOLE = 99
"""Percent: a cap that leaves nearly all of the card to a program that is alone on it."""


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
    """How many steps a second it makes, at least."""
    EVENTS = "events"
    """How far the times that it measures by events are off those that it measures without, in percent."""
    ROOM = "room"
    """How many of its allocations are refused. It also has to run to its end, as all do."""


@dataclass(frozen=True)
class Job:
    """A process: a program of `tests/programs`, and its options.

    In them `{scratch}` is a directory of the run, `{copy_mib}` what the workload's copies move.
    """

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
        resident: Whether its managed memory may be larger than that.
        rival: Whether it is there to be in the way: its end is not waited for, and nothing is asked of it.
        group: Of pods. Under leases its pods have their cards at the same time.
        exempt: Whether it has its card beside the leases of others, where these have theirs by leases.
    """

    jobs: tuple[Job, ...]
    share: int = WHOLE
    card: int = 0
    memory_mib: int = 8192
    resident: bool = False
    rival: bool = False
    group: str = ""
    exempt: bool = False


@dataclass(frozen=True)
class Workload:
    """Programs that run at the same time.

    Args:
        name: For `WHAT=` and the reader.
        tenants: Those of whom something is asked, and rivals.
        question: What must hold.
        bound: How far off is allowed, in the question's unit.
        cards: How many there are.
        card_mib: Memory of each card, on a simulated machine.
        copy_mib: What large copies move on a real card. The simulated driver really copies what it is told to: there
            they move a 64th of that, over a bus that takes a 64th.
    """

    name: str
    tenants: tuple[Tenant, ...]
    question: Question = Question.TIME
    bound: float = 1.03
    cards: int = 1
    card_mib: int = 16384
    copy_mib: int = 0

    @property
    def share(self) -> int:
        """Percent that those have of whom something is asked."""
        return self.tenants[self.measured[0]].share

    @property
    def asked(self) -> tuple[Mode, ...]:
        """The modes of which something is asked: beside rivals a card is leased, unless its arbiter is down."""
        return (Mode.LEASE,) if any(one.rival for one in self.tenants) else (Mode.SLICE, Mode.LEASE)

    @property
    def measured(self) -> tuple[int, ...]:
        """The tenants' numbers of whom something is asked."""
        return tuple(number for number, tenant in enumerate(self.tenants) if not tenant.rival)


def alone(
    name: str, program: str, question: Question, bound: float, share: int = WHOLE, **options: str | int
) -> Workload:
    """One process that has the card to itself."""
    return Workload(name, (Tenant((Job(program, options),), share),), question, bound)


POINTS = 1.0
"""Percent of the card by which use may be off."""
SIDE_BY_SIDE, WAITS, EVENTS = 1.03, 1.2, 3.0
RANKS_ALONE, RANKS_BESIDE = 417, 159
"""Steps a second of two ranks: 3 % less than bare, and what the driver's time slices leave them beside rivals."""


def pauses() -> Iterator[Workload]:
    """Programs that leave the card idle: they are charged what they use, and slowed down beyond their share only."""
    for kernel_us, period_us, share in ((10, 100, 30), (10, 40, 50), (20, 100, 30)):
        options = {"kernel_us": kernel_us, "period_us": period_us, "count": 1_000_000 // period_us}
        yield alone(
            f"pauses/{kernel_us}us-of-{period_us}us", "periodic", Question.USE, POINTS, share, **options
        )
    for by, kernel_us in product(("host", "event"), (100, 1000)):
        pauses = {"by": by, "kernel_us": kernel_us, "pause_ms": kernel_us // 5, "rounds": 4000 // kernel_us}
        yield alone(f"pauses/{kernel_us}us-by-{by}", "interrupted", Question.USE, POINTS, 30, **pauses)


def side_by_side() -> Iterator[Workload]:
    """Programs whose streams overlap: a slice that is the card leaves them side by side."""
    streams: dict[str, tuple[int, dict[str, str | int]]] = {
        "long-beside-short": (WHOLE, {"work": "1x20000,10x1000", "rounds": 10}),
        "copy-beside-kernels": (WHOLE, {"work": "1xin,40x1000", "copy_mib": "{copy_mib}", "rounds": 5}),
        "4-streams": (WHOLE, {"work": ",".join(["1x5000"] * 4), "rounds": 60}),
        "8-streams": (50, {"work": ",".join(["10x500"] * 8), "rounds": 40}),
    }
    for name, (share, options) in streams.items():
        tenants = (Tenant((Job("streams", options),), share),)
        yield Workload(f"streams/{name}", tenants, Question.TIME, SIDE_BY_SIDE, copy_mib=1024)


def waits() -> Iterator[Workload]:
    """Programs with a kernel or a stream that waits for what comes later."""
    yield alone("waits/kernel-for-host", "waiting_kernel", Question.TIME, WAITS)
    again = {"kernel_us": 1000, "count": 5, "rounds": 2}
    yield alone("waits/kernel-for-host-again", "waiting_kernel", Question.TIME, WAITS, **again)
    yield alone("waits/stream-for-word", "consumer", Question.TIME, WAITS)
    long = {"produce_us": 500, "consume_us": 20_000}
    yield alone("waits/long-stream-for-word", "consumer", Question.TIME, WAITS, **long)


def ranks() -> Iterator[Workload]:
    """Two pods with a card each that train together, by themselves and beside tenants that always want these cards."""

    def rank(number: int, share: int) -> Tenant:
        return Tenant(
            (Job("ranks", {"rank": number, "words": "{scratch}/words"}),), share, card=number, group="ranks"
        )

    def rival(card: int) -> Tenant:
        greedy = Job("streams", {"work": "8x1000", "rounds": 1_000_000})
        return Tenant((greedy,), 50, card=card, rival=True)

    by_themselves = (rank(0, WHOLE), rank(1, WHOLE))
    yield Workload("ranks/alone", by_themselves, Question.STEPS, RANKS_ALONE, cards=2)
    ranks, rivals = (rank(0, 50), rank(1, 50)), (rival(0), rival(1))
    exempt = tuple(replace(one, exempt=True) for one in ranks)
    yield Workload("ranks/beside-rivals", ranks + rivals, Question.STEPS, RANKS_BESIDE, cards=2)
    yield Workload("ranks/exempt-beside-rivals", exempt + rivals, Question.STEPS, RANKS_BESIDE, cards=2)


def beyond_the_card() -> Workload:
    """3 GiB of managed memory on a card of 2: as without a slice some of it is always on the host."""
    pool = Job("managed_pool", {"pool_mib": 3072, "part_mib": 256, "queries": 20, "kernels": 1})
    tenant = Tenant((pool,), memory_mib=2048, resident=True)
    return Workload("shapes/managed-beyond-card", (tenant,), Question.ROOM, 0, card_mib=2048)


def shapes() -> Iterator[Workload]:
    """What frameworks and servers do."""
    time = Question.TIME, SIDE_BY_SIDE
    yield alone("shapes/eager-training", "training", *time)
    yield alone("shapes/decode", "decode", *time)
    yield alone("shapes/decode-graphs", "decode", *time, graph=1)
    yield alone("shapes/fill-the-cache", "kv_cache", *time)
    yield alone("shapes/ring", "ring", *time)
    yield replace(alone("shapes/offload", "offload", *time, layer_mib="{copy_mib}"), copy_mib=128)
    yield alone("shapes/serving-threads", "serving", *time)
    instances = (Job("serving", {"instances": 1}),) * 8
    yield Workload("shapes/serving-processes", (Tenant(instances),))
    yield alone("shapes/managed-pool", "managed_pool", *time)
    yield beyond_the_card()
    yield alone("shapes/autotuner", "autotune", Question.EVENTS, EVENTS)
    yield alone("shapes/profiled", "profiled", Question.EVENTS, EVENTS)


def all_workloads() -> list[Workload]:
    """In the order of the table."""
    return [*pauses(), *side_by_side(), *waits(), *ranks(), *shapes()]
