"""What the tenants of this machine's cards have of them, read from their pages: the node agent's, and those of runs."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libshim.control_page import CardLimit, CardTime, read_control, read_times
from libshim.page_file import PageError
from libshim.usage_page import CardUsage, read_card_usages

NS = 1e9
PERCENT_BP = 100


class TenantReport(msgspec.Struct, frozen=True, rename="camel"):
    """A tenant's part of one card. Ratios are of the card's time over a while; None where nobody measures.

    `waiting` adds up what all threads waited, `denied_allocations` what was refused, or with `observe` would have been,
    since the tenant came.
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


class CardReport(msgspec.Struct, frozen=True):
    """A card and its tenants, by name."""

    uuid: str
    tenants: tuple[TenantReport, ...]


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
        times = read_times(directory / "control")
    except (OSError, PageError):
        return
    for limit, at, usage in zip(control.cards, times, usages, strict=False):
        yield Part(control.tenant, limit, at, usage)


def report(before: Look, now: Look) -> Report:
    """What was between two looks; who came in between is told of at the next."""
    seconds = now.at_s - before.at_s
    by_card: dict[str, list[TenantReport]] = {}
    for key, part in now.parts.items():
        if key in before.parts:
            told = _tenant(before.parts[key], part, seconds)
            by_card.setdefault(part.limit.uuid, []).append(told)
    cards = (
        CardReport(uuid, tuple(sorted(tenants, key=lambda one: one.tenant)))
        for uuid, tenants in sorted(by_card.items())
    )
    return Report(seconds, tuple(cards))


def _tenant(before: Part, now: Part, seconds: float) -> TenantReport:
    limit = now.limit
    leased, measured = bool(limit.core_share_bp), bool(limit.core_share_bp or limit.core_percent)

    def ratio(after_ns: int, before_ns: int) -> float:
        return max(0.0, (after_ns - before_ns) / NS / seconds)

    busy = ratio(now.usage.busy_ns, before.usage.busy_ns) if measured else None
    return TenantReport(
        tenant=now.tenant,
        mode=mode_of(limit),
        priority=limit.priority,
        share=(limit.core_share_bp or PERCENT_BP * limit.core_percent or 10_000) / 10_000,
        most=(limit.core_most_percent or limit.core_percent or 100) / 100,
        guaranteed=ratio(now.time.guaranteed_ns, before.time.guaranteed_ns) if leased else None,
        used=ratio(now.time.used_ns, before.time.used_ns) if leased else busy,
        lent=ratio(now.time.lent_ns, before.time.lent_ns) if leased else None,
        waiting=ratio(now.usage.throttled_ns, before.usage.throttled_ns) if measured else None,
        memory_bytes=limit.memory_bytes,
        used_bytes=max(0, now.usage.memory_used_bytes + limit.adjust_bytes),
        denied_allocations=now.usage.allocations_denied,
        trusted=not limit.doubted,
    )


def mode_of(limit: CardLimit) -> str:
    """How a tenant's time is held: as it asked, or `free` where nothing is held."""
    if not limit.core_share_bp:
        return "capped" if limit.core_percent else "free"
    if not limit.core_percent:
        return "uncapped"
    return "burst" if limit.core_most_percent > limit.core_percent else "capped"
