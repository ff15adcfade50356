"""How this agent touches files of its own: write whole, or set aside what cannot be read."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

PRIVATE: Final = stat.S_IRWXU


def make_private(directory: Path) -> None:
    """Makes a directory that no other user of the host can look into; one that is there already becomes so.

    What lies in it may be for all users of containers: the container runtime mounts it there as root.
    """
    directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != PRIVATE:
        directory.chmod(PRIVATE)  # on a read-only file system even a change to the same mode is refused


def write_durable(path: Path, content: bytes) -> None:
    """Replaces `path` with `content`; once this returns, not even a power cut brings the old file back.

    A crash at any instant leaves the old file or the new one. Raises OSError; the old file is then untouched.
    """
    write_whole(path, content, sync=True)
    sync_directory(path.parent)


def write_whole(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replaces `path` with `content` at once, by a rename within its directory. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path, start: str = ".") -> None:
    """Removes temporary files that a kill has left; nobody else may be writing there."""
    for path in directory.glob(f"{start}*"):
        path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Makes the directory's entries durable: a file's own fsync does not cover its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def quarantine(path: Path) -> Path:
    """Moves an unreadable file aside, beside its old place, under the first free `.corrupt-N` name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside
