"""Reads and writes the pages between the node agent and the interceptor (layout: include/aliquot_pages.h).

The control page is written in place under a sequence lock, because a renamed file would leave the container
with the old inode. The usage page belongs to the tenant, who may truncate it or fill it with lies at any moment:
it is only ever read with pread, never mapped, so the worst it can do is to raise PageError. Nobody is waited for who
has a page open: a tenant can lock the file it sees, or take a lease on it, as long as it likes.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from libshim._pages import ffi, lib

OVERFLOW_CARDS: int = lib.AQ_OVERFLOW_CARDS
"""What a tenant has in host memory for card i is counted in entry `OVERFLOW_CARDS` + i."""
_TRIES = 1000
_USAGE_TRIES = 10
_SLOTS: int = ffi.offsetof("aq_usage_page", "slots")
_FLOCK = "hhqqi4x"  # struct flock
_WISH_OFFSET: int = ffi.offsetof("aq_usage_card", "wanted_ns")
_WISH_REST: int = ffi.sizeof("aq_usage_card") - _WISH_OFFSET - 8
_WISHES = struct.Struct("=" + f"{_WISH_OFFSET}xQ{_WISH_REST}x" * lib.AQ_MAX_CARDS)


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
    """

    guaranteed_ns: int
    used_ns: int
    lent_ns: int
    is_open: bool


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


@dataclass(frozen=True)
class Usage:
    """A usage page: `cards` has AQ_MAX_CARDS entries in the control page's order; of processes those that live.

    `in_flight` has the cards on which one of these says to have work that is not known to be over.
    """

    cards: tuple[CardUsage, ...]
    processes: tuple[ProcessUsage, ...] = ()
    shim_version: str = ""
    note: str = field(default="")
    in_flight: frozenset[int] = frozenset()


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
    change_control(path, lambda _: control)


def change_control(path: Path, change: Callable[[Control | None], Control]) -> Control:
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
    with _turn(path), _open(path, "r+b") as file:
        header = _control_page(path, os.pread(file.fileno(), lib.AQ_CONTROL_SIZE, 0))
        control = change(None if header.sequence & 1 else _decode(header))
        wanted = _encode(path, control)
        if _uuids(header) != _uuids(wanted):
            raise PageError(path, "the cards of a running tenant cannot change")
        with mmap.mmap(file.fileno(), lib.AQ_CONTROL_SIZE) as mapped:
            view = ffi.from_buffer("aq_control_page *", mapped)
            lib.aq_control_publish(view, wanted)
            ffi.release(view)
    return control


def read_control(path: Path) -> Control:
    """Returns a control page as it was at one moment.

    Raises:
        PageError: the file is no control page of this version, or a writer died half-way through it.
        OSError: the file cannot be read.
    """
    return _decode(_snapshot(path))


def read_times(path: Path) -> tuple[CardTime, ...]:
    """Returns what the arbiter says in a control page, by card; it changes with every lease, the limits do not.

    Raises:
        PageError: the file is no control page of this version.
        OSError: the file cannot be read.
    """
    with _open(path, "rb") as file:
        page = _control_page(path, os.pread(file.fileno(), lib.AQ_CONTROL_SIZE, 0))
    return tuple(
        CardTime(card.guaranteed_ns, card.used_ns, card.lent_ns, not card.gate & 1)
        for card in page.cards[0 : page.card_count]
    )


def touch_granter(path: Path, now_ns: int) -> None:
    """Says that wishes beyond grants were looked for at this moment (CLOCK_MONOTONIC).

    Raises:
        OSError: the file cannot be written.
    """
    with _open(path, "r+b") as file:
        offset = ffi.offsetof("aq_control_page", "granter_ns")
        os.pwrite(file.fileno(), now_ns.to_bytes(8, sys.byteorder), offset)


def create_usage(path: Path) -> None:
    """Makes an empty usage page (mode 0666) appear under its name; what was there is forgotten.

    Raises:
        OSError: the file cannot be written.
    """
    page = ffi.new("aq_usage_page *")
    page.magic, page.version, page.size = lib.AQ_USAGE_MAGIC, lib.AQ_PAGE_VERSION, lib.AQ_USAGE_FILE_SIZE
    page.card_count, page.slot_count = lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS
    _create(path, bytes(ffi.buffer(page)).ljust(lib.AQ_USAGE_FILE_SIZE, b"\0"), 0o666)


def read_usage(path: Path) -> Usage:
    """Returns what a tenant says about itself: what is in use, without what its processes are charged in advance.

    Raises:
        PageError: the file is no usage page of this version, or was cut short.
        OSError: the file cannot be read.
    """
    with _open(path, "rb") as file:
        copy = _usage_file(path, file.fileno())
        page = ffi.addressof(copy, "page")
        if (page.card_count, page.slot_count) != (lib.AQ_MAX_CARDS, lib.AQ_MAX_SLOTS):
            raise PageError(path, f"{page.card_count} cards and {page.slot_count} slots are not this layout")
        present = [index for index, slot in enumerate(page.slots) if _is_present(file.fileno(), index, slot)]
    return Usage(
        tuple(_card_usage(page, index) for index in range(lib.AQ_MAX_CARDS)),
        tuple(_process_usage(page, index) for index in present),
        _text(page.shim_version),
        _text(page.note),
        _in_flight(copy.annex, present),
    )


def forwarder_path(soname: str, library: Path | None = None) -> Path:
    """Where the forwarder for `libcuda.so.1` or `libnvidia-ml.so.1` lies that goes with an interceptor."""
    return (library or library_path()).parent / "forwarder" / soname


def read_card_usages(path: Path) -> tuple[CardUsage, ...]:
    """Returns the cards of a usage page alone, for whoever looks often: a twentieth of the work without advances.

    Raises:
        PageError: the file is no usage page of this version, or was cut short.
        OSError: the file cannot be read.
    """
    with _open(path, "rb") as file:
        page = _cast(path, os.pread(file.fileno(), _SLOTS, 0), "aq_usage_page *", _SLOTS, lib.AQ_USAGE_MAGIC)
        if any(card.advanced for card in page.cards):
            copy = _usage_file(path, file.fileno())
            page = ffi.addressof(copy, "page")
    return tuple(_card_usage(page, index) for index in range(lib.AQ_MAX_CARDS))


def read_newest_wish(path: Path) -> int:
    """Returns when a tenant's newest wish beyond a grant was made (CLOCK_MONOTONIC, ns): a tenth of the work again.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        content = os.pread(descriptor, _WISHES.size, ffi.offsetof("aq_usage_page", "cards"))
    finally:
        os.close(descriptor)
    return max(_WISHES.unpack(content)) if len(content) == _WISHES.size else 0


def library_path() -> Path:
    """Returns where the interceptor lies."""
    return Path(__file__).resolve().parent / "libaliquot.so"


def _open(path: Path, mode: str) -> IO[bytes]:
    """Opens a page; BlockingIOError at once, and not after 45 s, where a tenant holds a lease on it."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """One writer of a page after the other, by a lock on its directory: tenants have the file alone."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


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
    for index, card in enumerate(control.cards):
        _encode_card(path, page, index, card)
    return page


def _encode_card(path: Path, page: Any, index: int, card: CardLimit) -> None:
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
    return Control(_text(page.tenant), cards, _ENFORCEMENTS[page.enforcement])


def _decode_card(page: Any, index: int) -> CardLimit:
    card = page.cards[index]
    overflows = card.flags & lib.AQ_CARD_OVERFLOW_HOST and index < lib.AQ_OVERFLOW_CARDS
    return CardLimit(
        _text(card.uuid),
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
    )


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
    ffi.memmove(page, content, len(content))
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
    with _open(path, "rb") as file:
        for _ in range(_TRIES):
            page = _control_page(path, os.pread(file.fileno(), lib.AQ_CONTROL_SIZE, 0))
            again = os.pread(file.fileno(), 4, ffi.offsetof("aq_control_page", "sequence"))
            now = int.from_bytes(again, sys.byteorder)
            if page.sequence == now and not now & 1:
                return page
    raise PageError(path, "a writer left it half-written")


def _usage_file(path: Path, descriptor: int) -> Any:
    """A copy of a usage page's file during which no tally with advances moved on, unless they never rest."""
    for _ in range(_USAGE_TRIES):
        content = os.pread(descriptor, lib.AQ_USAGE_FILE_SIZE, 0)
        page = _cast(
            path, content[: lib.AQ_USAGE_SIZE], "aq_usage_page *", lib.AQ_USAGE_SIZE, lib.AQ_USAGE_MAGIC
        )
        file = ffi.new("aq_usage_file *")
        ffi.memmove(file, content, len(content))
        if not any(card.advanced for card in page.cards):
            break
        again = _cast(path, os.pread(descriptor, _SLOTS, 0), "aq_usage_page *", _SLOTS, lib.AQ_USAGE_MAGIC)
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


def _is_present(file: int, index: int, slot: Any) -> bool:
    """Whether a slot has an owner that has not ended or run another program (src/presence.h)."""
    if not slot.owner or slot.owner not in {slot.presence, slot.collector}:
        return bool(slot.owner)
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, index, 1, 0)
    try:
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, request))
    except OSError:  # a kernel or a file system without such locks
        return True
    return bool(kind != fcntl.F_UNLCK)


def _process_usage(page: Any, index: int) -> ProcessUsage:
    slot = page.slots[index]
    memory = tuple(lib.aq_usage_held(page, index, card) for card in range(lib.AQ_MAX_CARDS))
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
