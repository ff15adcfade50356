"""What the tenants of this machine's cards have of them, read from their pages: the node agent's, and those of runs."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aliquot.cli.runs.registry import Run, processes_of, run_in
from aliquot.libshim.control_page import CardLimit, CardTime, read_control, read_times
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import CardUsage, read_card_usages, read_usage

NS = 1e9
PERCENT_BP = 100
SILENT_S = 1.0
"""An arbiter beats every few milliseconds, and a tenant gives it up after 60 ms; a busy machine may keep it longer."""


class TenantReport(msgspec.Struct, frozen=True, rename="camel"):
    """A tenant's part of one card. Ratios are of the card's time over a while; None where nothing measures them.

    `waiting` adds up what all threads waited, `denied_allocations` what was refused, or with `observe` would have been,
    since the tenant came. `id`, `pid`, `processes` and `command` are those that `aliquot cards` shows of a run; a pod
    has none.
    """

    tenant: str
    mode: str
    priority: int
    share: float
    most: float
    guaranteed: float | None
    used: float | None
    lent: float | None
    waiting: float | None
    memory_bytes: int
    used_bytes: int
    denied_allocations: int
    trusted: bool
    id: str = ""
    pid: int | None = None
    processes: tuple[int, ...] = ()
    command: tuple[str, ...] = ()


class CardReport(msgspec.Struct, frozen=True):
    """A card and its tenants, by name; index and model are known where a run is on it.

    `leased`: whether an arbiter leases its time. Where it should and does not, each tenant keeps to its share by its
    own clock.
    """

    uuid: str
    tenants: tuple[TenantReport, ...]
    leased: bool = True
    index: int | None = None
    model: str = ""


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints; `seconds` is the while."""

    seconds: float
    cards: tuple[CardReport, ...]


@dataclass(frozen=True)
class Part:
    """A tenant's part of one card as its pages have it."""

    tenant: str
    limit: CardLimit
    time: CardTime
    usage: CardUsage
    run: Run | None = None
    pids: tuple[int, ...] = ()
    """The run's processes that use the card, or all that are left of it."""


@dataclass(frozen=True)
class Look:
    """What the pages said at a moment; a part is named by the directory of its pages and the card."""

    at_s: float
    parts: Mapping[tuple[Path, str], Part]


def look(directories: Iterable[Path]) -> Look:
    """Reads the pages in these directories; what cannot be read is left out."""
    parts = {(path, part.limit.uuid): part for path in directories for part in _parts(path)}
    return Look(time.monotonic(), parts)


def _parts(directory: Path) -> Iterator[Part]:
    try:
        control, usages = read_control(directory / "control"), read_card_usages(directory / "usage")
        times, run = read_times(directory / "control"), run_in(directory)
        pids = processes_of(run, directory, read_usage(directory / "usage")) if run else ()
    except (OSError, PageError):
        return
    for limit, at, usage in zip(control.cards, times, usages, strict=False):
        yield Part(control.tenant, limit, at, usage, run, pids)


Measure = Callable[[Part], float | None]
"""What a tenant whose time no page measures had of its card lately; None: not known."""


def report(before: Look, now: Look, measure: Measure = lambda _: None) -> Report:
    """What was between two looks; a tenant that came in between is told of at the next."""
    while_ = _While(now.at_s, now.at_s - before.at_s, measure)
    by_card: dict[str, list[tuple[Part, Part]]] = {}
    for key, part in now.parts.items():
        if key in before.parts:
            by_card.setdefault(part.limit.uuid, []).append((before.parts[key], part))
    cards = (_card(uuid, pairs, while_) for uuid, pairs in sorted(by_card.items()))
    return Report(while_.seconds, tuple(cards))


@dataclass(frozen=True)
class _While:
    """The time between two looks: when it ended, its length, and a measure of tenants that are free."""

    ended_s: float
    seconds: float
    measure: Measure

    def ratio(self, after_ns: int, before_ns: int) -> float:
        """Of this time."""
        return max(0.0, (after_ns - before_ns) / NS / self.seconds)

    def is_leased(self, part: Part) -> bool:
        """Whether an arbiter leases time to the tenant, and was there lately."""
        return bool(part.limit.core_share_bp) and self.ended_s - part.time.heartbeat_ns / NS < SILENT_S


def _card(uuid: str, pairs: Sequence[tuple[Part, Part]], while_: _While) -> CardReport:
    parts = [part for _, part in pairs]
    run = next((part.run for part in parts if part.run), None)
    tenants = sorted((_tenant(*pair, while_) for pair in pairs), key=lambda one: one.tenant)
    return CardReport(
        uuid,
        tuple(tenants),
        leased=all(while_.is_leased(part) for part in parts if part.limit.core_share_bp),
        index=run.card_index if run else None,
        model=run.card_model if run else "",
    )


def _tenant(before: Part, now: Part, while_: _While) -> TenantReport:
    limit, run = now.limit, now.run
    leased, measured = while_.is_leased(now), bool(limit.core_share_bp or limit.core_percent)
    busy = while_.ratio(now.usage.busy_ns, before.usage.busy_ns) if measured else while_.measure(now)
    waited = while_.ratio(now.usage.throttled_ns, before.usage.throttled_ns)
    return TenantReport(
        tenant=now.tenant,
        mode=mode_of(limit),
        priority=limit.priority,
        share=(limit.core_share_bp or PERCENT_BP * limit.core_percent or 10_000) / 10_000,
        most=(limit.core_most_percent or limit.core_percent or 100) / 100,
        guaranteed=while_.ratio(now.time.guaranteed_ns, before.time.guaranteed_ns)
        if leased and limit.core_percent
        else None,
        used=while_.ratio(now.time.used_ns, before.time.used_ns) if leased else busy,
        lent=while_.ratio(now.time.lent_ns, before.time.lent_ns) if leased else None,
        waiting=waited if measured else None,
        memory_bytes=limit.memory_bytes,
        used_bytes=max(0, now.usage.memory_used_bytes + limit.adjust_bytes),
        denied_allocations=now.usage.allocations_denied,
        trusted=not limit.doubted,
        id=run.id if run else "",
        pid=run.pid if run and run.supervised() else None,
        processes=now.pids,
        command=run.command if run else (),
    )


def mode_of(limit: CardLimit) -> str:
    """How a tenant's time is held: as it asked, or `free` where nothing is held."""
    if not limit.core_share_bp:
        return "capped" if limit.core_percent else "free"
    if not limit.core_percent:
        return "uncapped"
    return "burst" if limit.core_most_percent > limit.core_percent else "capped"
