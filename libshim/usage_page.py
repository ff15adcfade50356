"""Reads usage pages: what a tenant says about itself (layout: include/aliquot_pages.h).

A page belongs to the tenant, who may truncate it or fill it with lies at any moment: it is only ever read with pread,
never mapped, so the worst it can do is to raise PageError.
"""

import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.page_file import (
    PagePath,
    Rejection,
    cast_page,
    check_page,
    create_page,
    open_page,
    rejected,
    text_of,
)

_USAGE_TRIES = 10
_SLOTS: int = ffi.offsetof("aq_usage_page", "slots")
_WISH_OFFSET: int = ffi.offsetof("aq_usage_card", "wanted_ns")
_WISH_REST: int = ffi.sizeof("aq_usage_card") - _WISH_OFFSET - 8
_WISHES = struct.Struct("=" + f"{_WISH_OFFSET}xQ{_WISH_REST}x" * lib.AQ_MAX_CARDS)


@dataclass(frozen=True)
class CardUsage:
    """What all processes of a tenant use of one card."""

    memory_used_bytes: int = 0
    memory_peak_bytes: int = 0
    allocations_denied: int = 0
    busy_ns: int = 0
    throttled_ns: int = 0
    wanted_bytes: int = 0
    wanted_ns: int = 0


@dataclass(frozen=True)
class ProcessUsage:
    """One process: its pid in its own namespace, and the bytes it holds on each card of the control page."""

    pid: int
    pid_namespace: int
    start_time: int
    memory_bytes: tuple[int, ...]
    estimated_bytes: tuple[int, ...] = ()
    """Of these, what was charged by an estimate, of which less may be on the card."""


@dataclass(frozen=True)
class Usage:
    """A usage page: `cards` has AQ_MAX_CARDS entries in the control page's order.

    `processes` are those whose end the kernel has not marked; of one that never worked on a leased card only the
    kernel's table of processes tells whether it lives. `in_flight` has the cards on which one of these says to have
    work that is not known to be over.
    """

    cards: tuple[CardUsage, ...]
    processes: tuple[ProcessUsage, ...] = ()
    shim_version: str = ""
    note: str = field(default="")
    in_flight: frozenset[int] = frozenset()


def create_usage(path: PagePath) -> None:
    """Makes an empty usage page (mode 0666) appear under its name; what was there is forgotten.

    Raises:
        OSError: the file cannot be written.
    """
    create_page(path, _empty_usage(), 0o666)


def clear_usage(path: PagePath) -> None:
    """Empties a usage page in place, whatever its size now: a container may hold this very inode.

    Raises:
        OSError: the file cannot be written.
    """
    with open_page(path, os.O_RDWR) as file:
        content = _empty_usage()
        if os.pwrite(file, content, 0) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.ftruncate(file, len(content))


def _empty_usage() -> bytes:
    page = ffi.new("aq_usage_page *")
    page.magic, page.version, page.size = lib.AQ_USAGE_MAGIC, lib.AQ_PAGE_VERSION, lib.AQ_USAGE_FILE_SIZE
    page.card_count, page.slot_count = lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS
    return bytes(ffi.buffer(page)).ljust(lib.AQ_USAGE_FILE_SIZE, b"\0")


def read_usage(path: PagePath) -> Usage:
    """Returns what a tenant says about itself: what is in use, without what its processes are charged in advance.

    Raises:
        PageError: the file is no usage page of this version, or was cut short.
        OSError: the file cannot be read.
    """
    with open_page(path) as file:
        copy = _usage_file(path, file)
        page = ffi.addressof(copy, "page")
        if (page.card_count, page.slot_count) != (lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS):
            told = f"{page.card_count} cards and {page.slot_count} slots are not this layout"
            raise rejected(path, Rejection.LAYOUT, told)
        taken = (index for index, owner in enumerate(_owners(page)) if owner)
        present = [index for index in taken if copy.monitors.threads[index] != lib.AQ_MONITOR_ENDED]
    return Usage(
        tuple(_card_usage(page, index) for index in range(lib.AQ_MAX_CARDS)),
        tuple(_process_usage(copy, index) for index in present),
        text_of(page.shim_version),
        text_of(page.note),
        _in_flight(copy.annex, present),
    )


def read_card_usages(path: PagePath) -> tuple[CardUsage, ...]:
    """Returns the cards of a usage page alone, for whoever looks often: a twentieth of the work without advances.

    Raises:
        PageError: the file is no usage page of this version, or was cut short.
        OSError: the file cannot be read.
    """
    with open_page(path) as file:
        page = cast_page(path, os.pread(file, _SLOTS, 0), "aq_usage_page *", _SLOTS, lib.AQ_USAGE_MAGIC)
        if any(card.advanced or card.aside for card in page.cards):
            copy = _usage_file(path, file)
            page = ffi.addressof(copy, "page")
    return tuple(_card_usage(page, index) for index in range(lib.AQ_MAX_CARDS))


def read_newest_wish(path: PagePath) -> int:
    """Returns when a tenant's newest wish beyond a grant was made (CLOCK_MONOTONIC, ns): a tenth of the work again.

    Raises:
        OSError: the file cannot be read.
    """
    with open_page(path) as file:
        content = os.pread(file, _WISHES.size, ffi.offsetof("aq_usage_page", "cards"))
    return max(_WISHES.unpack(content)) if len(content) == _WISHES.size else 0


def _usage_file(path: PagePath, descriptor: int) -> Any:
    """A copy of a usage page's file during which no tally with advances moved on, unless they never rest."""
    file = ffi.new("aq_usage_file *")
    page = ffi.addressof(file, "page")
    for _ in range(_USAGE_TRIES):
        read = os.preadv(descriptor, [ffi.buffer(file)], 0)
        check_page(path, page, read, lib.AQ_USAGE_SIZE, lib.AQ_USAGE_MAGIC)
        if not any(card.advanced for card in page.cards):
            break
        again = cast_page(
            path, os.pread(descriptor, _SLOTS, 0), "aq_usage_page *", _SLOTS, lib.AQ_USAGE_MAGIC
        )
        if all(_same_moment(*pair) for pair in zip(page.cards, again.cards, strict=True)):
            break
    return file


def _in_flight(annex: Any, slots: Sequence[int]) -> frozenset[int]:
    lines = [annex.works[slot].cards for slot in slots]
    return frozenset(
        card for card in range(lib.AQ_MAX_CARDS) if any(line[card] & lib.AQ_WORK_IN_FLIGHT for line in lines)
    )


def _same_moment(card: Any, later: Any) -> bool:
    return not later.advanced or bool(card.memory == later.memory)


def _card_usage(page: Any, index: int) -> CardUsage:
    card = page.cards[index]
    return CardUsage(
        memory_used_bytes=lib.aq_usage_in_use(page, index),
        memory_peak_bytes=card.memory_peak,
        allocations_denied=card.denied,
        busy_ns=card.busy_ns,
        throttled_ns=card.throttled_ns,
        wanted_bytes=card.wanted,
        wanted_ns=card.wanted_ns,
    )


def _owners(page: Any) -> list[int]:
    """The slots' first words, at a tenth of the cost of asking slot by slot."""
    return memoryview(ffi.buffer(page.slots)).cast("Q")[:: ffi.sizeof("aq_usage_slot") // 8].tolist()


def _process_usage(copy: Any, index: int) -> ProcessUsage:
    """`copy`: the whole file; of an older agent's, which ends before them, no estimates are known."""
    page, slot = ffi.addressof(copy, "page"), copy.page.slots[index]
    memory = tuple(lib.aq_usage_used_by(page, index, card) for card in range(lib.AQ_MAX_CARDS))
    estimated = (*copy.parts[index].estimated, *[0] * (lib.AQ_MAX_CARDS - lib.AQ_OVERFLOW_CARDS))
    return ProcessUsage(slot.pid, slot.pid_namespace, slot.start_time, memory, estimated)
