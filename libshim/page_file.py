"""What both pages between the node agent and the interceptor have in common (layout: include/aliquot_pages.h).

Nobody is waited for who has a page open: a tenant can take a lease on the file it sees for ever. It can also lock
millions of its bytes, and whoever closes that file, or asks for a lock, waits until the kernel has looked at each of
them. So who lives with tenants keeps their pages open, and asks for no lock.
"""

import contextlib
import errno
import os
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from aliquot.libshim._pages import ffi, lib

PagePath: TypeAlias = "Path | PageFile"
"""Where a page is: opened anew each time, or kept open."""


class PageError(Exception):
    """A page cannot be used; the message names its path and the reason."""

    def __init__(self, page: PagePath, reason: str) -> None:
        super().__init__(f"{page}: {reason}")
        self.path = path_of(page)
        self.reason = reason


class Rejection(StrEnum):
    """Why a page that was read is not used."""

    CUT_SHORT = "cut-short"
    FOREIGN = "foreign"
    VERSION = "version"
    LAYOUT = "layout"


REJECTIONS: Counter[Rejection] = Counter(dict.fromkeys(Rejection, 0))
"""How often this process has rejected a page."""
_COUNTING = threading.Lock()


def rejected(page: PagePath, rejection: Rejection, reason: str) -> PageError:
    """The error to raise about a page that was read."""
    with _COUNTING:
        REJECTIONS[rejection] += 1
    return PageError(page, reason)


class _Descriptor:
    """A descriptor of a regular file, which is closed when nobody uses it any more."""

    def __init__(self, path: Path, flags: int) -> None:
        """Raises OSError: BlockingIOError at once, and not after 45 s, where a tenant holds a lease on the file."""
        self.number = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(self.number)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        self.identity = (status.st_dev, status.st_ino)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class PageFile:
    """A page that stays open from its first use on. To be used from any thread.

    It is open for reading by itself: that goes on while its tenant holds a lease which keeps writers out.

    Attributes:
        name: The page, or a link to it, which must be in a directory that its tenant cannot write.
    """

    def __init__(self, name: Path) -> None:
        self.name = name
        self._open: dict[int, _Descriptor] = {}
        self._turn = threading.Lock()

    @property
    def path(self) -> Path:
        """Where the page is."""
        try:
            return self.name.parent / self.name.readlink()
        except OSError:
            return self.name

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Closes the page, once nobody uses it; it is opened again if it is used again and is still there."""
        with self._turn:
            self._open.clear()

    def opened(self, flags: int) -> _Descriptor:
        """The file that has the page's name now. Raises OSError."""
        with self._turn:
            status = self.path.lstat()
            known = self._open.get(flags)
            if known is None or known.identity != (status.st_dev, status.st_ino):
                known = self._open[flags] = _Descriptor(self.path, flags)
            return known


@contextlib.contextmanager
def open_page(page: PagePath, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a page, good inside of the context. Raises OSError."""
    file = page if isinstance(page, PageFile) else PageFile(page)
    opened = file.opened(flags)  # whatever happens to the page meanwhile
    yield opened.number


def text_of(raw: Any) -> str:
    """Returns a NUL-padded field as text; what is no UTF-8 is replaced."""
    return bytes(ffi.buffer(raw)).split(b"\0", 1)[0].decode(errors="replace")


def cast_page(path: PagePath, content: bytes, kind: str, size: int, magic: int) -> Any:
    """Returns a copy of a page of this kind. Raises PageError, as `check_page` does."""
    page = ffi.new(kind)
    ffi.memmove(page, content, len(content))
    check_page(path, page, len(content), size, magic)
    return page


def check_page(path: PagePath, page: Any, read: int, size: int, magic: int) -> None:
    """Raises PageError, if a page of which so many bytes were read is not whole, or none of ours."""
    if read < size:
        raise rejected(path, Rejection.CUT_SHORT, f"cut short: {read} of {size} bytes")
    if page.magic != magic:
        raise rejected(path, Rejection.FOREIGN, "not a page of Aliquot's of this kind")
    if page.version != lib.AQ_PAGE_VERSION:
        told = f"version {page.version}; this program reads {lib.AQ_PAGE_VERSION}"
        raise rejected(path, Rejection.VERSION, told)


def path_of(page: PagePath) -> Path:
    """Where a page is."""
    return page.path if isinstance(page, PageFile) else page


def create_page(page: PagePath, content: bytes, mode: int) -> None:
    """Makes a page appear under its name, whole. Raises OSError, and then there is what was there."""
    path = path_of(page)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
