"""Usage pages as tenants could have left them."""

from os import PathLike
from pathlib import Path

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.usage_page import create_usage


def write_usage(
    page_file: PathLike[str],
    used_bytes: int,
    wanted: tuple[int, int] = (0, 0),
    owner: tuple[int, int, int] = (7, 1, 1),
    host_bytes: int = 0,
) -> None:
    """One process has this on the first card, and on the host for it; `wanted` is its wish, and when it was made."""
    path = Path(page_file)
    create_usage(path)
    page = ffi.new("aq_usage_page *")
    ffi.memmove(page, path.read_bytes(), lib.AQ_USAGE_SIZE)
    slot = page.slots[0]
    slot.owner = 1
    slot.pid, slot.pid_namespace, slot.start_time = owner
    page.cards[0].memory = page.slots[0].memory[0] = used_bytes << lib.AQ_TALLY_SHIFT
    host = lib.AQ_OVERFLOW_CARDS
    page.cards[host].memory = page.slots[0].memory[host] = host_bytes << lib.AQ_TALLY_SHIFT
    page.cards[0].wanted, page.cards[0].wanted_ns = wanted
    path.write_bytes(bytes(ffi.buffer(page)))
