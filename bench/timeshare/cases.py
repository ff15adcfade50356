"""What `make -C bench compute` measures, as data: tenants, what they bought, and what they do with it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product


class Mode(StrEnum):
    """What a tenant may have of a card."""

    CAPPED = "capped"
    BURST = "burst"
    UNCAPPED = "uncapped"


class What(StrEnum):
    """What a process submits: kernels, or copies of a MiB, which some calls wait for."""

    KERNEL = "kernel"
    IN = "in"
    IN_WAITING = "in_sync"
    OUT = "out"
    OUT_WAITING = "out_sync"
    WITHIN = "within"
    FILL = "fill"


@dataclass(frozen=True)
class Load:
    """What one process does; the options of `native/load.c`."""

    kernel_us: tuple[int, ...] = (1000,)
    grid: int = 64
    sync: int = 16
    graph: int = 0
    idle_us: int = 0
    random: bool = False
    awake_ms: int = 0
    after_ms: int = 0
    threads: int = 1
    what: What = What.KERNEL
    cards: int = 1
    seed: int = 0
    memory_mib: int = 0
    managed: bool = False
    apart: bool = False

    @property
    def is_greedy(self) -> bool:
        """Whether it always wants the card."""
        return not self.idle_us and not self.after_ms

    @property
    def is_awaited(self) -> bool:
        """Whether its end is waited for: to be told of its pauses, how much it did, or that nothing waits for ever."""
        return bool(self.idle_us) or self.cards > 1 or self.memory_mib > 0


@dataclass(frozen=True)
class Tenant:
    """A container with a part of the card.

    Args:
        share: Percent; an uncapped one's is its equal part of what the others leave.
        loads: What its processes do.
        mode: What it may have beyond its share.
        priority: 0 to 9.
        limit: Percent that bound its burst.
        bare: Whether it has no interceptor.
        grant_mib: Memory of class burst: so much of it is on the card, the rest on the host.
    """

    share: float
    loads: tuple[Load, ...]
    mode: Mode = Mode.CAPPED
    priority: int = 0
    limit: float = 100
    bare: bool = False
    grant_mib: int | None = None

    @property
    def most(self) -> float:
        """Percent that it may have when others leave it theirs."""
        return self.share if self.mode is Mode.CAPPED else self.limit


class Law(StrEnum):
    """Who sees to it that shares are kept."""

    LEASED = "leased"
    """An arbiter leases the card."""
    ORPHANED = "orphaned"
    """It did, and is silent: each tenant keeps to its share by its own measure."""
    FREE = "free"
    """Nobody leases the card: only a cap of its own holds a tenant."""


class Question(StrEnum):
    """What is asked of a case; `verdict.py` has the answers."""

    EXACT = "exact"
    """Everybody has as much as it may, and no more."""
    CAPS = "caps"
    """Nobody has more than its share."""
    GUARANTEE = "guarantee"
    """The capped have their share, the others theirs or more, and the card does not idle."""
    WAKE = "wake"
    """The last tenant, when it wakes, has its share back soon."""
    LENT = "lent"
    """The first tenant has what the last one leaves."""
    LATENCY = "latency"
    """The first tenant's kernels are held up little by the others."""
    THROUGHPUT = "throughput"
    """The only tenant gets done what it would without the interceptor."""
    HELD = "held"
    """Everybody has its share, the capped no more, and a card whose time is all somebody's does not idle."""
    MIX = "mix"
    """Whoever wants its share has it."""
    COLLECTIVE = "collective"
    """On each of two cards everybody has its share, and kernels meet, more often than without leases."""
    THRASH = "thrash"
    """Together the tenants get more done than where nobody asks for long leases, and each its part of it."""


@dataclass(frozen=True)
class Case:
    """Tenants of one card, or of several.

    Args:
        name: For `CASES=` and the reader.
        tenants: Each with pages of its own.
        question: What must hold.
        bound: How far off is allowed, in the question's unit.
        concurrent: Contexts run side by side, as under MPS, instead of in turns.
        law: Who sees to it.
        cards: How many there are, of all of which every tenant has its part.
        bus_gib_s: What the bus takes in each direction.
        memory_gib_s: What the card's memory takes.
        card_mib: How much memory the card has; every tenant may have all of it.
        quanta: Whether the node agent looks if the tenants' memory fits, and asks for long leases where it does not.
        idle: Percent that the card may idle, where that is asked.
        points: By which who is back may have less than its share, where that is asked.
    """

    name: str
    tenants: tuple[Tenant, ...]
    question: Question = Question.EXACT
    bound: float = 2.0
    concurrent: bool = False
    law: Law = Law.LEASED
    cards: int = 1
    bus_gib_s: float = 50
    memory_gib_s: float = 4000
    card_mib: int = 16384
    quanta: bool = False
    idle: float = 3.0
    points: float = 2.0

    def bare(self) -> "Case":
        """The same without the interceptor."""
        return replace(self, tenants=tuple(replace(one, bare=True) for one in self.tenants), law=Law.FREE)


LENGTHS_US = (100, 1000, 5000, 20_000, 100_000)
PERCENTS = (10, 30, 50, 80)
GRIDS = (64, 528, 2112, 10_000)
SYNCS = (1, 4, 16, 64)
PAIRS = ((30, 30), (60, 30), (50, 50), (30, 70), (10, 90))
PAIR_LENGTHS_US = ((1000, 1000), (100, 20_000), (20_000, 100))
LEAST_BATCH_US = 1500
MOST_PAUSE_US = 50_000
"""The longest pause is well within what an idle tenant is credited."""
GREEDY_BATCH_US = 8000
GREEDY = Load()


def text_of(kernel_us: int) -> str:
    """100 → 0.1ms."""
    return f"{kernel_us / 1000:g}ms"


def batch(kernel_us: int, sync: int) -> int:
    """Launches between two waits, enough that the program's own wake-ups leave it more than 80 % of the card."""
    return max(sync, -(-LEAST_BATCH_US // kernel_us))


def with_pauses(load: Load, percent: int) -> Load:
    """Pauses that leave a load half-way between its share and the whole card, if nobody held it up."""
    wanted = (100 + percent) / 200
    sync = max(1, min(load.sync, MOST_PAUSE_US // max(load.kernel_us)))
    pause = round(sync * max(load.kernel_us) * (1 - wanted) / wanted)
    return replace(load, sync=sync, idle_us=min(pause, MOST_PAUSE_US))


def singles() -> Iterator[Case]:
    """One tenant capped: every share with every length; grids, waits and pauses so that all of them meet."""
    for (row, percent), (column, length) in product(enumerate(PERCENTS), enumerate(LENGTHS_US)):
        sync = SYNCS[(row + 2 * column) % 4]
        load = Load((length,), GRIDS[(row + column) % 4], sync if percent <= 30 else batch(length, sync))
        pauses = (row + column) % 2 == 1
        load = with_pauses(load, percent) if pauses else load
        name = (
            f"single/{percent}/{text_of(length)}-grid{load.grid}-sync{load.sync}{'-pauses' if pauses else ''}"
        )
        yield Case(name, (Tenant(percent, (load,)),), bound=2.0 if length == LENGTHS_US[-1] else 1.0)
    for percent, (length, nodes) in zip(PERCENTS, ((100, 20), (1000, 4), (20, 200), (5000, 4)), strict=True):
        load = Load((length,), graph=nodes, sync=4)
        yield Case(
            f"single/{percent}/graph-{nodes}x{text_of(length)}", (Tenant(percent, (load,)),), bound=1.0
        )
    mixed = Load((100, 20_000, 1000, 5000), threads=2, sync=8)
    yield Case("single/30/lengths-mixed-2threads", (Tenant(30, (mixed,)),), bound=1.0)
    yield Case("single/30/free", (Tenant(30, (GREEDY,)),), bound=1.0, law=Law.FREE)
    yield Case("single/30/concurrent", (Tenant(30, (GREEDY,)),), bound=1.0, concurrent=True)
    yield Case("single/30-to-50", (Tenant(30, (GREEDY,), Mode.BURST, limit=50),), bound=1.0)


def greedy(kernel_us: int) -> Load:
    """Waits seldom enough that less than 1 % of the card is lost to its own wake-ups."""
    return Load((kernel_us,), sync=-(-GREEDY_BATCH_US // kernel_us))


def pair_loads(lengths: tuple[int, int]) -> tuple[Load, Load]:
    """Both greedy."""
    return greedy(lengths[0]), greedy(lengths[1])


def pairs() -> Iterator[Case]:
    """Two greedy tenants, capped and with burst; with kernels of one length on both kinds of card."""
    for shares, lengths, burst in product(PAIRS, PAIR_LENGTHS_US, (False, True)):
        mode = Mode.BURST if burst else Mode.CAPPED
        question = Question.GUARANTEE if burst else Question.EXACT
        tenants = tuple(
            Tenant(share, (load,), mode) for share, load in zip(shares, pair_loads(lengths), strict=True)
        )
        name = f"{'burst' if burst else 'pair'}/{shares[0]}-{shares[1]}/{'-'.join(text_of(us) for us in lengths)}"
        yield Case(name, tenants, question, bound=3.0 if burst else 2.0)
        if lengths[0] == lengths[1] and not burst:
            yield Case(f"{name}-concurrent", tenants, question, concurrent=True)
    loads = pair_loads((1000, 100_000))
    yield Case("pair/30-60/1ms-100ms", (Tenant(30, loads[:1]), Tenant(60, loads[1:])))


def mixed_modes() -> Iterator[Case]:
    """Modes side by side: what one leaves goes to those that may have it."""
    burst, uncapped = Mode.BURST, Mode.UNCAPPED
    for name, tenants in (
        ("capped30-burst30", (Tenant(30, (GREEDY,)), Tenant(30, (GREEDY,), burst))),
        ("capped30-uncapped", (Tenant(30, (GREEDY,)), Tenant(70, (GREEDY,), uncapped))),
        ("uncapped-uncapped", (Tenant(50, (GREEDY,), uncapped), Tenant(50, (GREEDY,), uncapped))),
    ):
        yield Case(f"modes/{name}", tenants, Question.GUARANTEE, bound=3.0)


def eights() -> Iterator[Case]:
    """Eight tenants whose shares are the whole card."""
    shares = (5, 5, 8, 10, 12, 14, 16, 30)
    lengths = (100, 20_000, 1000, 5000, 100, 1000, 20_000, 5000)
    loads = [greedy(length) for length in lengths]
    equal = tuple(Tenant(share, (GREEDY,)) for share in shares)
    unequal = tuple(Tenant(share, (load,)) for share, load in zip(shares, loads, strict=True))
    yield Case("eight/1ms", equal)
    yield Case("eight/0.1ms-20ms", unequal)


def wakes() -> Iterator[Case]:
    """One is busy; the other wakes now and then and wants its guaranteed part."""
    for length in (1000, 20_000):
        busy = Tenant(30, (greedy(length),), Mode.BURST)
        sleeper = Load(idle_us=150_000, random=True, awake_ms=200, sync=4)
        yield Case(
            f"wake/60-over-{text_of(length)}",
            (busy, Tenant(60, (sleeper,), Mode.BURST)),
            Question.WAKE,
            bound=20.0 + length / 1000,
        )
        idler = Load(after_ms=3_600_000)
        yield Case(f"lent/60-idle-{text_of(length)}", (busy, Tenant(60, (idler,))), Question.LENT, bound=97.0)


def priorities() -> Iterator[Case]:
    """Single kernels of 1 ms at random over a greedy neighbour of lower priority."""
    sparse = Load(sync=1, idle_us=20_000, random=True)
    for length in (100, 1000, 5000):
        low = Tenant(50, (greedy(length),), Mode.BURST)
        yield Case(
            f"priority/1ms-over-{text_of(length)}",
            (Tenant(50, (sparse,), Mode.BURST, priority=9), low),
            Question.LATENCY,
            bound=5.0 + length / 1000,
        )


def lone() -> Iterator[Case]:
    """A tenant that has the card to itself, against the same without the interceptor."""
    varying = Load((1000, 100), sync=15)
    loads = {text_of(length): greedy(length) for length in (100, 1000, 20_000)} | {"1ms-0.1ms": varying}
    for name, load in loads.items():
        yield Case(
            f"lone/{name}",
            (Tenant(100, (load,), Mode.UNCAPPED),),
            Question.THROUGHPUT,
            bound=99.0,
            law=Law.FREE,
        )


def processes() -> Iterator[Case]:
    """Four processes of one container, alike and not."""
    for name, lengths in (("1ms", (1000,) * 4), ("0.1ms-20ms", (100, 1000, 5000, 20_000))):
        loads = tuple(greedy(length) for length in lengths)
        yield Case(f"processes/4x{name}", (Tenant(30, loads),), bound=1.0)


def orphans() -> Iterator[Case]:
    """Tenants whose arbiter is gone: what was published last is a hard cap, for burst and uncapped ones, too."""
    law = Law.ORPHANED
    yield Case("orphan/30", (Tenant(30, (GREEDY,)),), bound=1.0, law=law)
    for mode in (Mode.BURST, Mode.UNCAPPED):
        two = (Tenant(30, (GREEDY,), mode), Tenant(30, (GREEDY,), mode))
        yield Case(f"orphan/30-30-{mode}", two, Question.CAPS, bound=1.0, law=law)


SLOW_GIB_S = 0.25
"""What a MiB takes 4 ms of: copying it costs this machine a small part of that."""
COPIES = tuple(what for what in What if what is not What.KERNEL)


def copies() -> Iterator[Case]:
    """Copies and fills, alone and beside another tenant's kernels."""
    for what in COPIES:
        load = Load(what=what, sync=2)
        alone = (Tenant(30, (load,)),)
        yield Case(f"copies/30/{what}", alone, bus_gib_s=SLOW_GIB_S, memory_gib_s=SLOW_GIB_S)
        pair = (*alone, Tenant(60, (GREEDY,)))
        yield Case(f"copies/30-60/{what}-kernels", pair, bus_gib_s=SLOW_GIB_S, memory_gib_s=SLOW_GIB_S)


def collectives(seeds: tuple[int, ...] = (1, 2)) -> Iterator[Case]:
    """Two tenants on two cards, whose kernels on the one wait for those on the other, launched in random orders."""
    for (first, second), seed in product(((50, 50), (30, 60)), seeds):
        load = Load(cards=2, seed=seed)
        tenants = (Tenant(first, (load,)), Tenant(second, (load,)))
        yield Case(
            f"collective/{first}-{second}/seed{seed}", tenants, Question.COLLECTIVE, bound=3.0, cards=2
        )


PCIE4_GIB_S = 12.0


def varying() -> Iterator[Case]:
    """Kernels of unlike lengths in turn, of a function for each, or of one whose next length nobody can know.

    The latter go one at a time, and the card waits a little between them: that is the tenant's own loss.
    """
    for apart, name in ((True, "a-function-each"), (False, "one-function")):
        tenants = (Tenant(50, (Load((300, 5000, 100), apart=apart, sync=15),)), Tenant(50, (GREEDY,)))
        yield Case(f"varying/50-50/{name}", tenants, bound=3.0)


def thrashes() -> Iterator[Case]:
    """Two tenants use managed memory that does not fit on the card together: it moves at each handing over."""
    for mib in (640, 768):
        tenants = (Tenant(50, (Load(memory_mib=mib, managed=True),)),) * 2
        yield Case(
            f"thrash/2x{mib}-of-1024",
            tenants,
            Question.THRASH,
            bound=200.0,
            bus_gib_s=PCIE4_GIB_S,
            card_mib=1024,
            quanta=True,
        )


def all_cases() -> tuple[Case, ...]:
    """The table, in its order."""
    groups = (
        singles,
        pairs,
        mixed_modes,
        eights,
        wakes,
        priorities,
        lone,
        processes,
        orphans,
        copies,
        collectives,
        thrashes,
        varying,
    )
    return tuple(case for group in groups for case in group())
