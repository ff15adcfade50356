"""What the runs of all users have of this machine's cards: one file a run, in a directory that all users may write to.

    <directory>/<uid>-<run>    what the run has, as JSON of a fixed length; the command inherits a lock on it

The file's owner is known from the kernel, and the sticky bit keeps users from removing each other's files. A claim
whose lock nobody holds has ended. What another user writes can only make a card look fuller, as a run of that user
would; its own use is believed up to its own claim. Where the directory cannot be had there are no claims, and what
other users have on a card is known from NVML alone.
"""

import fcntl
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
import msgspec

from aliquot.api import names
from aliquot.cli.runs.slices import Slice
from aliquot.request.core_shares import WHOLE_PERCENT

SHARED = Path("/dev/shm/aliquot-runs")  # noqa: S108 -- its mode and its files' owners are checked
MODE = 0o1777
RECORD_BYTES = 512
MOST_PER_USER = 256
LOCK_WITHIN_S = 3.0
LOOK_EVERY_S = 0.01


class Record(msgspec.Struct, frozen=True):
    """What a claim's file says."""

    card: str
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)]
    core_percent: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_PERCENT)]
    used_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass(frozen=True)
class Claim:
    """A living run of another record of runs: another user's, or one of this user with another runtime directory."""

    uid: int
    slice: Slice
    used_bytes: int


def shared_directory() -> Path:
    """Where the users of this machine keep their claims."""
    given = os.environ.get(names.CLAIMS_ENV, "")
    return Path(given) if Path(given).is_absolute() else SHARED


class Claims:
    """The claims of one machine; without a directory there are none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory if directory and is_usable(directory) else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other users' commands from promising the same memory meanwhile.

        Any user could hold this lock for ever, so it is waited for a few seconds only.
        """
        if not self._directory:
            yield
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _lock_in_time(descriptor):
                click.echo(
                    f"aliquot: another user's process holds {self._directory}; going on without it", err=True
                )
            yield
        finally:
            os.close(descriptor)

    def add(self, run: str, share: Slice) -> int | None:
        """Makes the claim of a run of ours; returns the descriptor whose lock says that it lives."""
        if not self._directory:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path(self._directory, run), flags, 0o644)
        os.fchmod(descriptor, 0o644)  # other users read it, whatever the umask
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write(descriptor, share, 0)
        return descriptor

    def change(self, run: str, share: Slice, used_bytes: int) -> None:
        """Says what a run of ours has now."""
        if not self._directory:
            return
        with suppress(FileNotFoundError):
            descriptor = os.open(self._path(self._directory, run), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _write(descriptor, share, used_bytes)
            finally:
                os.close(descriptor)

    @staticmethod
    def told(claim: int) -> int:
        """What a claim of ours says that its run uses, by its descriptor."""
        return msgspec.json.decode(os.pread(claim, RECORD_BYTES, 0), type=Record).used_bytes

    def remove(self, run: str) -> None:
        """Forgets a run of ours that has ended."""
        if self._directory:
            with suppress(OSError):
                self._path(self._directory, run).unlink()

    def others(self, own: AbstractSet[str]) -> tuple[Claim, ...]:
        """The living claims besides those of the runs `own`, of each user so many at most."""
        if not self._directory:
            return ()
        mine, seen, found = {self._path(self._directory, run).name for run in own}, Counter[int](), []
        for path in sorted(self._directory.iterdir()):
            claim = _read(path) if path.name not in mine else None
            if claim and seen[claim.uid] < MOST_PER_USER:
                seen[claim.uid] += 1
                found.append(claim)
        return tuple(found)

    @staticmethod
    def _path(directory: Path, run: str) -> Path:
        return directory / f"{os.getuid()}-{run}"


def is_usable(directory: Path) -> bool:
    """Whether it is there, or can be made, and every user may write to it and remove only what is their own."""
    try:
        with suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(MODE)  # the umask has no say here
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_mode & MODE == MODE and os.access(directory, os.W_OK)


def _lock_in_time(descriptor: int) -> bool:
    deadline = time.monotonic() + LOCK_WITHIN_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)


def _write(descriptor: int, share: Slice, used_bytes: int) -> None:
    """In place: the lock is on this file, and a renamed one would be another."""
    record = Record(share.card, share.memory_bytes, share.core_percent, used_bytes)
    os.pwrite(descriptor, msgspec.json.encode(record).ljust(RECORD_BYTES), 0)


def _read(path: Path) -> Claim | None:
    """A claim that lives and can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_locked(descriptor):
            return None
        record = msgspec.json.decode(os.pread(descriptor, RECORD_BYTES, 0), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(descriptor)
    share = Slice(record.card, record.memory_bytes, record.core_percent)
    return Claim(status.st_uid, share, min(record.used_bytes, record.memory_bytes))


def _is_locked(descriptor: int) -> bool:
    """Whether its run lives. A shared lock of another reader does not say so."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
