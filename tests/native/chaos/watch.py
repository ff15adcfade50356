"""The page by which the chaos client's processes say how they get on (client.h has its layout)."""

import mmap
import struct
import time
from dataclasses import dataclass
from pathlib import Path

ENTRIES = 128
THREADS = 4
_ENTRY = struct.Struct(f"iIQ{THREADS}Q")
NOBODY = (1 << 64) - 1


@dataclass(frozen=True)
class Entry:
    """One process: how many programs it ran, bytes it may have beyond the account, steps of each thread."""

    programs: int
    uncharged: int
    progress: tuple[int, ...]


class Watch:
    """One tenant's page, made and mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(ENTRIES * _ENTRY.size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)
        self._seen: dict[int, tuple[Entry, float]] = {}

    def entries(self) -> dict[int, Entry]:
        """By pid."""
        rows = _ENTRY.iter_unpack(self._page[:])
        return {
            pid: Entry(programs, uncharged, tuple(steps)) for pid, programs, uncharged, *steps in rows if pid
        }

    def uncharged(self, alive: set[int]) -> int:
        """Bytes that the living may have on the card beyond the account."""
        return sum(entry.uncharged for pid, entry in self.entries().items() if pid in alive)

    def steps(self) -> int:
        """Made by all threads of those who were the last in their entries."""
        return sum(step for entry in self.entries().values() for step in entry.progress if step != NOBODY)

    def stuck(self, alive: set[int], seconds: float) -> dict[int, Entry]:
        """Processes of which some thread has made no step for so long."""
        now = time.monotonic()
        for pid, entry in self.entries().items():
            if pid not in self._seen or self._moved(self._seen[pid][0], entry):
                self._seen[pid] = entry, now
        self._seen = {pid: seen for pid, seen in self._seen.items() if pid in alive}
        return {pid: entry for pid, (entry, since) in self._seen.items() if now - since > seconds}

    @staticmethod
    def _moved(old: Entry, new: Entry) -> bool:
        """Whether every thread that is still at work has come further."""
        pairs = zip(old.progress, new.progress, strict=True)
        return old.programs != new.programs or all(a != b or b == NOBODY for a, b in pairs)
