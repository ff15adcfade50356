"""Reads and writes control pages: the node agent's word to a tenant (layout: include/aliquot_pages.h).

A page is written in place under a sequence lock, because a renamed file would leave the container with the old inode.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.page_file import PageError, PagePath, cast_page, create_page, open_page, path_of, text_of

OVERFLOW_CARDS: int = lib.AQ_OVERFLOW_CARDS
"""What a tenant has in host memory for card i is counted in entry `OVERFLOW_CARDS` + i."""
_TRIES = 1000


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
    """What a tenant may use of one card.

    Args:
        uuid: "GPU-…" or "MIG-…".
        memory_bytes: The slice.
        core_percent: Percent of the card's time; 0: uncapped.
        grant_bytes: What of the slice may be used now (memory class burst); None: all of it.
        overflow_bytes: What may go to host memory when the grant is used up; None: nothing.
        adjust_bytes: What the tenant's processes have on the card beyond their tallies, as last measured.
        context_bytes: What the first context of a process is charged until it is measured.
        core_share_bp: Hundredths of a percent of the card's time that are the tenant's own where an arbiter leases
            it, and all it has while that arbiter is silent; 0: nobody leases, `core_percent` holds.
        core_most_percent: What it may have of the card's time when others leave it theirs.
        priority: 0 to 9; the higher is let in first.
        doubted: Whether the agent does not believe what the tenant says of its time.
        managed_resident: Whether managed memory may be larger than the slice, and only what may come to the card is
            charged.
    """

    uuid: str
    memory_bytes: int
    core_percent: int = 0
    grant_bytes: int | None = None
    overflow_bytes: int | None = None
    adjust_bytes: int = 0
    context_bytes: int = 0
    core_share_bp: int = 0
    core_most_percent: int = 0
    priority: int = 0
    doubted: bool = False
    managed_resident: bool = False


@dataclass(frozen=True)
class Control:
    """The agent's word to one tenant ("namespace/pod/container", at most 127 bytes)."""

    tenant: str
    cards: tuple[CardLimit, ...]
    enforcement: Enforcement = Enforcement.ENFORCE


@dataclass(frozen=True)
class CardTime:
    """What the arbiter gave one tenant of a card's time, in nanoseconds since it first saw the tenant.

    Args:
        guaranteed_ns: Due to it by its share while it had work.
        used_ns: Had by it.
        lent_ns: Of that, had beyond its own share.
        is_open: Whether it may submit work now.
        heartbeat_ns: When the arbiter last said that it is there (CLOCK_MONOTONIC); 0: never.
    """

    guaranteed_ns: int
    used_ns: int
    lent_ns: int
    is_open: bool
    heartbeat_ns: int = 0


def create_control(path: PagePath, control: Control) -> None:
    """Makes a control page (mode 0644) appear under its name, whole.

    Raises:
        PageError: the limits do not fit a page.
        OSError: the file cannot be written.
    """
    create_page(path, bytes(ffi.buffer(_encode(path, control))), 0o644)


def update_control(path: PagePath, control: Control) -> None:
    """Changes limits and enforcement in place, for processes that run already; the cards must stay the same.

    Raises:
        PageError: the page is unusable or has other cards; nothing was changed.
        OSError: the file cannot be written.
    """
    change_control(path, lambda _: control)


def change_control(path: PagePath, change: Callable[[Control | None], Control]) -> Control:
    """Changes limits and enforcement in place by what they are; of writers at the same time, one after the other.

    Args:
        path: The page.
        change: Is given the limits as they are (None: a writer died half-way through them) and returns
            what they shall be.

    Returns what was written.

    Raises:
        PageError: the page is unusable or has other cards; nothing was changed.
        OSError: the file cannot be written.
    """
    with _turn(path), open_page(path, os.O_RDWR) as file:
        header = _control_page(path, os.pread(file, lib.AQ_CONTROL_SIZE, 0))
        control = change(None if header.sequence & 1 else _decode(header))
        wanted = _encode(path, control)
        if _uuids(header) != _uuids(wanted):
            raise PageError(path, "the cards of a running tenant cannot change")
        error = lib.aq_control_publish_in(file, wanted)
        if error:
            raise OSError(error, os.strerror(error), str(path))
    return control


def read_control(path: PagePath) -> Control:
    """Returns a control page as it was at one moment.

    Raises:
        PageError: the file is no control page of this version, or a writer died half-way through it.
        OSError: the file cannot be read.
    """
    return _decode(_snapshot(path))


def read_times(path: PagePath) -> tuple[CardTime, ...]:
    """Returns what the arbiter says in a control page, by card; it changes with every lease, the limits do not.

    Raises:
        PageError: the file is no control page of this version.
        OSError: the file cannot be read.
    """
    with open_page(path) as file:
        page = _control_page(path, os.pread(file, lib.AQ_CONTROL_SIZE, 0))
    return tuple(
        CardTime(card.guaranteed_ns, card.used_ns, card.lent_ns, not card.gate & 1, page.heartbeat_ns)
        for card in page.cards[0 : page.card_count]
    )


def touch_granter(path: PagePath, now_ns: int) -> None:
    """Says that wishes beyond grants were looked for at this moment (CLOCK_MONOTONIC).

    Raises:
        OSError: the file cannot be written.
    """
    _write_word(path, "granter_ns", now_ns)


def touch_measured(path: PagePath, now_ns: int) -> None:
    """Says that what processes have on their cards was looked at at this moment (CLOCK_MONOTONIC).

    Raises:
        OSError: the file cannot be written.
    """
    _write_word(path, "measured_ns", now_ns)


def _write_word(path: PagePath, name: str, value: int) -> None:
    """Writes one word of the page's head that changes by itself, without a turn."""
    with open_page(path, os.O_RDWR) as file:
        os.pwrite(file, value.to_bytes(8, sys.byteorder), ffi.offsetof("aq_control_page", name))


@contextlib.contextmanager
def _turn(path: PagePath) -> Iterator[None]:
    """One writer of a page after the other, by a lock on its directory: tenants have the file alone."""
    directory = os.open(path_of(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _encode(path: PagePath, control: Control) -> Any:
    if not 1 <= len(control.cards) <= lib.AQ_MAX_CARDS:
        raise PageError(path, f"{len(control.cards)} cards; a page holds 1 to {lib.AQ_MAX_CARDS}")
    if len({card.uuid for card in control.cards}) != len(control.cards):
        raise PageError(path, "the same card twice")
    page = ffi.new("aq_control_page *")
    page.magic, page.version, page.size = lib.AQ_CONTROL_MAGIC, lib.AQ_PAGE_VERSION, lib.AQ_CONTROL_SIZE
    page.enforcement = _ENFORCEMENT_NUMBERS[control.enforcement]
    page.tenant = _bytes(path, "tenant", control.tenant, lib.AQ_TENANT_SIZE)
    page.card_count = len(control.cards)
    for index, card in enumerate(control.cards):
        _encode_card(path, page, index, card)
    return page


def _encode_card(path: PagePath, page: Any, index: int, card: CardLimit) -> None:
    entry = page.cards[index]
    entry.uuid = _bytes(path, "card UUID", card.uuid, lib.AQ_UUID_SIZE)
    entry.memory_limit = _in_range(path, "memory in bytes", card.memory_bytes, lib.AQ_MEMORY_MAX)
    entry.core_percent = _in_range(path, "core percent", card.core_percent, 100)
    entry.context_bytes = _in_range(path, "a context in bytes", card.context_bytes, lib.AQ_MEMORY_MAX)
    entry.memory_adjust = card.adjust_bytes
    entry.core_share = _in_range(path, "a core share in hundredths of a percent", card.core_share_bp, 10_000)
    entry.core_most = _in_range(path, "most of the cores in percent", card.core_most_percent, 100)
    entry.priority = _in_range(path, "priority", card.priority, 9)
    entry.flags |= lib.AQ_CARD_DOUBTED if card.doubted else 0
    entry.flags |= lib.AQ_CARD_MANAGED_RESIDENT if card.managed_resident else 0
    if card.grant_bytes is not None:
        entry.flags |= lib.AQ_CARD_BURST
        entry.memory_grant = _in_range(path, "the grant in bytes", card.grant_bytes, lib.AQ_MEMORY_MAX)
    if card.overflow_bytes is not None:
        if page.card_count > lib.AQ_OVERFLOW_CARDS:
            raise PageError(path, f"overflow to the host with more than {lib.AQ_OVERFLOW_CARDS} cards")
        entry.flags |= lib.AQ_CARD_OVERFLOW_HOST
        overflow = page.cards[lib.AQ_OVERFLOW_CARDS + index]
        overflow.memory_limit = _in_range(
            path, "the overflow in bytes", card.overflow_bytes, lib.AQ_MEMORY_MAX
        )


def _decode(page: Any) -> Control:
    cards = tuple(_decode_card(page, index) for index in range(page.card_count))
    return Control(text_of(page.tenant), cards, _ENFORCEMENTS[page.enforcement])


def _decode_card(page: Any, index: int) -> CardLimit:
    card = page.cards[index]
    overflows = card.flags & lib.AQ_CARD_OVERFLOW_HOST and index < lib.AQ_OVERFLOW_CARDS
    return CardLimit(
        text_of(card.uuid),
        card.memory_limit,
        card.core_percent,
        grant_bytes=card.memory_grant if card.flags & lib.AQ_CARD_BURST else None,
        overflow_bytes=page.cards[lib.AQ_OVERFLOW_CARDS + index].memory_limit if overflows else None,
        adjust_bytes=card.memory_adjust,
        context_bytes=card.context_bytes,
        core_share_bp=card.core_share,
        core_most_percent=card.core_most,
        priority=card.priority,
        doubted=bool(card.flags & lib.AQ_CARD_DOUBTED),
        managed_resident=bool(card.flags & lib.AQ_CARD_MANAGED_RESIDENT),
    )


def _bytes(path: PagePath, what: str, text: str, size: int) -> bytes:
    encoded = text.encode()
    if not encoded or len(encoded) >= size or b"\0" in encoded:
        raise PageError(path, f"{what} {text!r} is not 1 to {size - 1} bytes without NUL")
    return encoded


def _in_range(path: PagePath, what: str, value: int, high: int) -> int:
    if not 0 <= value <= high:
        raise PageError(path, f"{what}: {value} is not in 0..{high}")
    return value


def _uuids(page: Any) -> Sequence[str]:
    return [text_of(card.uuid) for card in page.cards[0 : page.card_count]]


def _control_page(path: PagePath, content: bytes) -> Any:
    page = cast_page(path, content, "aq_control_page *", lib.AQ_CONTROL_SIZE, lib.AQ_CONTROL_MAGIC)
    if page.card_count > lib.AQ_MAX_CARDS:
        raise PageError(path, f"{page.card_count} cards; a page holds at most {lib.AQ_MAX_CARDS}")
    if page.enforcement not in _ENFORCEMENTS:
        raise PageError(path, f"enforcement {page.enforcement} is unknown")
    return page


def _snapshot(path: PagePath) -> Any:
    with open_page(path) as file:
        for _ in range(_TRIES):
            page = _control_page(path, os.pread(file, lib.AQ_CONTROL_SIZE, 0))
            again = os.pread(file, 4, ffi.offsetof("aq_control_page", "sequence"))
            now = int.from_bytes(again, sys.byteorder)
            if page.sequence == now and not now & 1:
                return page
    raise PageError(path, "a writer left it half-written")
