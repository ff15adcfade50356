"""Reads and writes the pages between the node agent and the interceptor (layout: include/aliquot_pages.h).

The control page is written in place under a sequence lock, because a renamed file would leave the container
with the old inode. The usage page belongs to the tenant, who may truncate it or fill it with lies at any moment:
it is only ever read with pread, never mapped, so the worst it can do is to raise PageError.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from libshim._pages import ffi, lib

_TRIES = 1000


class PageError(Exception):
    """A page cannot be used; the message names its path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Enforcement(StrEnum):
    """What the interceptor does about a limit."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


_ENFORCEMENTS = {
    lib.AQ_ENFORCE_OFF: Enforcement.OFF,
    lib.AQ_ENFORCE_OBSERVE: Enforcement.OBSERVE,
    lib.AQ_ENFORCE_ENFORCE: Enforcement.ENFORCE,
}
_ENFORCEMENT_NUMBERS = {value: number for number, value in _ENFORCEMENTS.items()}


@dataclass(frozen=True)
class CardLimit:
    """What a tenant may use of one card: bytes of memory and percent of time (0: uncapped)."""

    uuid: str
    memory_bytes: int
    core_percent: int = 0


@dataclass(frozen=True)
class Control:
    """The agent's word to one tenant ("namespace/pod/container", at most 127 bytes)."""

    tenant: str
    cards: tuple[CardLimit, ...]
    enforcement: Enforcement = Enforcement.ENFORCE


@dataclass(frozen=True)
class CardUsage:
    """What all processes of a tenant use of one card."""

    memory_used_bytes: int = 0
    memory_peak_bytes: int = 0
    allocations_denied: int = 0
    busy_ns: int = 0
    throttled_ns: int = 0


@dataclass(frozen=True)
class ProcessUsage:
    """One process: its pid in its own namespace, and the bytes it holds on each card of the control page."""

    pid: int
    pid_namespace: int
    start_time: int
    memory_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Usage:
    """A usage page: `cards` has AQ_MAX_CARDS entries in the control page's order."""

    cards: tuple[CardUsage, ...]
    processes: tuple[ProcessUsage, ...] = ()
    shim_version: str = ""
    note: str = field(default="")


def create_control(path: Path, control: Control) -> None:
    """Makes a control page (mode 0644) appear under its name, whole.

    Raises:
        PageError: the limits do not fit a page.
        OSError: the file cannot be written.
    """
    _create(path, bytes(ffi.buffer(_encode(path, control))), 0o644)


def update_control(path: Path, control: Control) -> None:
    """Changes limits and enforcement in place, for processes that run already; the cards must stay the same.

    Raises:
        PageError: the page is unusable or has other cards; nothing was changed.
        OSError: the file cannot be written.
    """
    wanted = _encode(path, control)
    with path.open("r+b") as file:
        header = _control_page(path, os.pread(file.fileno(), lib.AQ_CONTROL_SIZE, 0))
        if _uuids(header) != _uuids(wanted):
            raise PageError(path, "the cards of a running tenant cannot change")
        with mmap.mmap(file.fileno(), lib.AQ_CONTROL_SIZE) as mapped:
            view = ffi.from_buffer("aq_control_page *", mapped)
            lib.aq_control_publish(view, wanted)
            ffi.release(view)


def read_control(path: Path) -> Control:
    """Returns a control page as it was at one moment.

    Raises:
        PageError: the file is no control page of this version, or a writer died half-way through it.
        OSError: the file cannot be read.
    """
    page = _snapshot(path)
    cards = tuple(
        CardLimit(_text(card.uuid), card.memory_limit, card.core_percent)
        for card in page.cards[0 : page.card_count]
    )
    return Control(_text(page.tenant), cards, _ENFORCEMENTS[page.enforcement])


def create_usage(path: Path) -> None:
    """Makes an empty usage page (mode 0666) appear under its name; what was there is forgotten.

    Raises:
        OSError: the file cannot be written.
    """
    page = ffi.new("aq_usage_page *")
    page.magic, page.version, page.size = lib.AQ_USAGE_MAGIC, lib.AQ_PAGE_VERSION, lib.AQ_USAGE_SIZE
    page.card_count, page.slot_count = lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS
    _create(path, bytes(ffi.buffer(page)), 0o666)


def read_usage(path: Path) -> Usage:
    """Returns what a tenant says about itself.

    Raises:
        PageError: the file is no usage page of this version, or was cut short.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        content = os.pread(file.fileno(), lib.AQ_USAGE_SIZE, 0)
    page = _cast(path, content, "aq_usage_page *", lib.AQ_USAGE_SIZE, lib.AQ_USAGE_MAGIC)
    if (page.card_count, page.slot_count) != (lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS):
        raise PageError(path, f"{page.card_count} cards and {page.slot_count} slots are not this layout")
    return Usage(
        tuple(_card_usage(card) for card in page.cards),
        tuple(_process_usage(slot) for slot in page.slots if slot.owner),
        _text(page.shim_version),
        _text(page.note),
    )


def library_path() -> Path:
    """Returns where the interceptor lies."""
    return Path(__file__).resolve().parent / "libaliquot.so"


def _encode(path: Path, control: Control) -> Any:
    if not 1 <= len(control.cards) <= lib.AQ_MAX_CARDS:
        raise PageError(path, f"{len(control.cards)} cards; a page holds 1 to {lib.AQ_MAX_CARDS}")
    if len({card.uuid for card in control.cards}) != len(control.cards):
        raise PageError(path, "the same card twice")
    page = ffi.new("aq_control_page *")
    page.magic, page.version, page.size = lib.AQ_CONTROL_MAGIC, lib.AQ_PAGE_VERSION, lib.AQ_CONTROL_SIZE
    page.enforcement = _ENFORCEMENT_NUMBERS[control.enforcement]
    page.tenant = _bytes(path, "tenant", control.tenant, lib.AQ_TENANT_SIZE)
    page.card_count = len(control.cards)
    for entry, card in zip(page.cards, control.cards, strict=False):
        entry.uuid = _bytes(path, "card UUID", card.uuid, lib.AQ_UUID_SIZE)
        entry.memory_limit = _in_range(path, "memory in bytes", card.memory_bytes, lib.AQ_MEMORY_MAX)
        entry.core_percent = _in_range(path, "core percent", card.core_percent, 100)
    return page


def _bytes(path: Path, what: str, text: str, size: int) -> bytes:
    encoded = text.encode()
    if not encoded or len(encoded) >= size or b"\0" in encoded:
        raise PageError(path, f"{what} {text!r} is not 1 to {size - 1} bytes without NUL")
    return encoded


def _in_range(path: Path, what: str, value: int, high: int) -> int:
    if not 0 <= value <= high:
        raise PageError(path, f"{what}: {value} is not in 0..{high}")
    return value


def _text(raw: Any) -> str:
    return bytes(ffi.buffer(raw)).split(b"\0", 1)[0].decode(errors="replace")


def _uuids(page: Any) -> Sequence[str]:
    return [_text(card.uuid) for card in page.cards[0 : page.card_count]]


def _cast(path: Path, content: bytes, kind: str, size: int, magic: int) -> Any:
    if len(content) < size:
        raise PageError(path, f"cut short: {len(content)} of {size} bytes")
    page = ffi.new(kind)
    ffi.memmove(page, content, size)
    if page.magic != magic:
        raise PageError(path, "not a page of Aliquot's of this kind")
    if page.version != lib.AQ_PAGE_VERSION:
        raise PageError(path, f"version {page.version}; this program reads {lib.AQ_PAGE_VERSION}")
    return page


def _control_page(path: Path, content: bytes) -> Any:
    page = _cast(path, content, "aq_control_page *", lib.AQ_CONTROL_SIZE, lib.AQ_CONTROL_MAGIC)
    if page.card_count > lib.AQ_MAX_CARDS:
        raise PageError(path, f"{page.card_count} cards; a page holds at most {lib.AQ_MAX_CARDS}")
    if page.enforcement not in _ENFORCEMENTS:
        raise PageError(path, f"enforcement {page.enforcement} is unknown")
    return page


def _snapshot(path: Path) -> Any:
    with path.open("rb") as file:
        for _ in range(_TRIES):
            page = _control_page(path, os.pread(file.fileno(), lib.AQ_CONTROL_SIZE, 0))
            again = os.pread(file.fileno(), 4, ffi.offsetof("aq_control_page", "sequence"))
            now = int.from_bytes(again, sys.byteorder)
            if page.sequence == now and not now & 1:
                return page
    raise PageError(path, "a writer left it half-written")


def _card_usage(card: Any) -> CardUsage:
    return CardUsage(
        card.memory >> lib.AQ_TALLY_SHIFT, card.memory_peak, card.denied, card.busy_ns, card.throttled_ns
    )


def _process_usage(slot: Any) -> ProcessUsage:
    memory = tuple(tally >> lib.AQ_TALLY_SHIFT for tally in slot.memory)
    return ProcessUsage(slot.pid, slot.pid_namespace, slot.start_time, memory)


def _create(path: Path, content: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
