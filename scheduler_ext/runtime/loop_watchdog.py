"""Ends the process when its event loop hangs: its Lease goes to another replica, and the kubelet starts it anew.

A thread looks once a second whether the loop has come round since. Where it has not for `SILENT_LOOKS` looks in a row,
the thread writes down where every thread is and ends the process, without a word to anybody. The looks are
counted, not the seconds: a process that was suspended, or got no processor, has not looked either. Code that holds the
interpreter's lock for ever stops the thread, too; then the kubelet's liveness probe is left, which gets no answer.
"""

import asyncio
import faulthandler
import logging
import os
import threading
from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 1.0
SILENT_LOOKS: Final = 8
"""A hung leader is to end within 10 s; nothing that the loop does in one piece takes as long."""
EXIT_STATUS: Final = 70
"""EX_SOFTWARE of sysexits.h."""

_log = logging.getLogger(__name__)


def end_process() -> None:
    """End at once: what the hung loop would have to do at an orderly end it cannot do."""
    os._exit(EXIT_STATUS)


class LoopWatchdog:
    """Watches the event loop that it runs in."""

    def __init__(
        self,
        *,
        look_seconds: float = LOOK_SECONDS,
        silent_looks: int = SILENT_LOOKS,
        end: Callable[[], None] = end_process,
    ) -> None:
        """Watch nothing yet.

        Args:
            look_seconds: Between two looks.
            silent_looks: So many looks in a row at a loop that has not come round mean that it hangs.
            end: Ends the process.
        """
        self._look_seconds = look_seconds
        self._silent_looks = silent_looks
        self._end = end
        self._beats = 0
        self._over = threading.Event()

    async def run(self) -> None:
        """Have the loop watched until cancelled."""
        self._over.clear()
        thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        thread.start()
        try:
            while True:
                self._beats += 1
                await asyncio.sleep(self._look_seconds / 2)
        finally:
            self._over.set()

    def _watch(self) -> None:
        """The thread: `left` decreases with each look at a loop that stands still."""
        seen, left = self._beats, self._silent_looks
        while left and not self._over.wait(self._look_seconds):
            left = left - 1 if self._beats == seen else self._silent_looks
            seen = self._beats
        if not self._over.is_set():
            _log.critical("the event loop hangs: this process ends; where it hangs is on standard error")
            faulthandler.dump_traceback(all_threads=True)
            self._end()
