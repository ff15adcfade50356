"""Where the driver is: the directory it was installed below, as this process sees it and as the host names it.

The two differ in a pod, which has the host's files mounted somewhere; CDI specs need the host's names. Links are
followed as on the host, where an absolute one begins at that directory and not at the pod's own root.
"""

import ctypes
import errno
import fnmatch
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

NVML: Final = "libnvidia-ml.so.1"
_MOST_LINKS: Final = 40

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DriverRoot:
    """A driver's root.

    Attributes:
        seen: Where this process sees it.
        host: The same directory's name on the host.
    """

    seen: Path
    host: Path

    def glob(self, directory: str, pattern: str) -> Iterator[tuple[str, Path]]:
        """The files of a directory below it that match, by name: each name, and the file on the host, no link."""
        place = self._follow(directory)
        if place is None:
            return
        for name in fnmatch.filter(_names(self.seen / place), pattern):
            file = self._follow(f"{place}/{name}")
            if file is not None and (self.seen / file).is_file():
                yield name, self.host / file

    def visible(self, host: Path) -> Path:
        """Where this process sees one of its files."""
        return self.seen / host.relative_to(self.host)

    def _follow(self, path: str) -> str | None:
        """A path below the root without links, which never lead out of it; None where they lead in a circle."""
        done: list[str] = []
        ahead = _steps(path)
        links = 0
        while ahead:
            part = ahead.pop()
            if part == "..":
                del done[-1:]
                continue
            target = _target(self.seen.joinpath(*done, part))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                return None
            if target.startswith("/"):
                done.clear()
            ahead += _steps(target)
        return "/".join(done)


def _names(directory: Path) -> list[str]:
    """What is in a directory, links that lead nowhere from here too; nothing in one that is not there."""
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _steps(path: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(PurePosixPath(path).parts) if part != "/"]


def _target(path: Path) -> str | None:
    """What a link says; None for what is none, and for what is not there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a target is read as it stands
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOENT, errno.ENOTDIR}:
            raise
        return None


def load_nvml(candidates: Iterator[Path]) -> None:
    """Has NVML in this process where the loader does not find it: from the first of these files that can be loaded.

    Whoever asks the loader for it by name later is given the one that is there.
    """
    try:
        ctypes.CDLL(NVML)
    except OSError as missing:
        why = str(missing)
        for path in candidates:
            try:
                ctypes.CDLL(str(path))
            except OSError as error:
                why = str(error)
            else:
                log.info("NVML is %s", path)
                return
        log.warning("NVML is not found: %s", why)
