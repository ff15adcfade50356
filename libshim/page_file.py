"""What both pages between the node agent and the interceptor have in common (layout: include/aliquot_pages.h).

Nobody is waited for who has a page open: a tenant can lock the file it sees, or take a lease on it, for ever.
"""

import os
import tempfile
from pathlib import Path
from typing import IO, Any

from aliquot.libshim._pages import ffi, lib


class PageError(Exception):
    """A page cannot be used; the message names its path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def open_page(path: Path, mode: str) -> IO[bytes]:
    """Opens a page; BlockingIOError at once, and not after 45 s, where a tenant holds a lease on it."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def text_of(raw: Any) -> str:
    """Returns a NUL-padded field as text; what is no UTF-8 is replaced."""
    return bytes(ffi.buffer(raw)).split(b"\0", 1)[0].decode(errors="replace")


def cast_page(path: Path, content: bytes, kind: str, size: int, magic: int) -> Any:
    """Returns a copy of a page of this kind. Raises PageError, as `check_page` does."""
    page = ffi.new(kind)
    ffi.memmove(page, content, len(content))
    check_page(path, page, len(content), size, magic)
    return page


def check_page(path: Path, page: Any, read: int, size: int, magic: int) -> None:
    """Raises PageError, if a page of which so many bytes were read is not whole, or none of ours."""
    if read < size:
        raise PageError(path, f"cut short: {read} of {size} bytes")
    if page.magic != magic:
        raise PageError(path, "not a page of Aliquot's of this kind")
    if page.version != lib.AQ_PAGE_VERSION:
        raise PageError(path, f"version {page.version}; this program reads {lib.AQ_PAGE_VERSION}")


def create_page(path: Path, content: bytes, mode: int) -> None:
    """Makes a page appear under its name, whole. Raises OSError, and then there is what was there."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
