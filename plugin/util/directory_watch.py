"""Tells at once that files of a directory have come or gone, by inotify(7).

A kubelet that restarts admits its pods again a fraction of a second after its socket appears. A pod of which a
container with a slice has ended (an init container) it fails for good, unless the plugin has registered by then. So
the agent has to notice the socket when it is made, and not at its next look.

Where inotify is not to be had (its instances are used up), callers look again after their time-out.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_NON_BLOCKING_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400
_IGNORED: Final = 0x8000
_CHANGES: Final = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF
_HEAD: Final = 16
"""Bytes of `struct inotify_event` before the name: watch, mask, cookie and the name's length."""
_PLENTY: Final = 1 << 16


class DirectoryWatch:
    """One directory, watched from the first wait until `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._changed = asyncio.Event()
        self._descriptor = -1

    async def wait(self, timeout_s: float) -> None:
        """Return when something has come or gone since the last wait, after the time-out at the latest."""
        if self._descriptor < 0:
            self._open()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()

    def close(self) -> None:
        """Watch no more."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        """Begin to watch; nothing where the directory is not there yet, or inotify is not to be had."""
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(_NON_BLOCKING_CLOEXEC)
        if descriptor < 0:
            return
        if libc.inotify_add_watch(descriptor, os.fsencode(self._directory), _CHANGES) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        """Take what has happened; which files they were is for the caller to look at."""
        with contextlib.suppress(BlockingIOError):
            events = os.read(self._descriptor, _PLENTY)
            if _is_about_itself(events):
                self.close()
        self._changed.set()


def _is_about_itself(events: bytes) -> bool:
    """Whether the directory itself has gone, so that its successor has to be watched."""
    position = 0
    while position + _HEAD <= len(events):
        mask = int.from_bytes(events[position + 4 : position + 8], sys.byteorder)
        if mask & (_DELETE_SELF | _IGNORED):
            return True
        position += _HEAD + int.from_bytes(events[position + 12 : position + 16], sys.byteorder)
    return False
