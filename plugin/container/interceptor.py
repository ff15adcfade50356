"""Puts the interceptor where containers can keep it: under a path made of its content, written once.

A container maps its libraries for as long as it runs. Overwriting them in place would pull code from under
running programs, so each version has its own directory and an upgrade adds one. The path also lies in the
CDI specs of containers that will be restarted, so old versions stay.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.api.names import LIBRARY_PATH
from aliquot.plugin.util.atomic_files import write_durable

HASH_LENGTH = 16
MODE = 0o755
LIBRARY = "libaliquot.so"
PRELOAD_LIST = "ld.so.preload"


@dataclass(frozen=True)
class Interceptor:
    """The installed files, as paths on the host; `forwarders` by the soname they stand for."""

    library: Path
    preload_list: Path
    forwarders: Mapping[str, Path]


def install_interceptor(library: Path, state_dir: Path, forwarders: Sequence[Path] = ()) -> Interceptor:
    """Copies the libraries to `<state_dir>/lib/<hash>` unless they are there, with a list for the loader beside them.

    A forwarder's file name is the soname that it stands for. Raises OSError if a library cannot be read or a
    copy not written.
    """
    contents = {LIBRARY: library.read_bytes(), PRELOAD_LIST: f"{LIBRARY_PATH}\n".encode()}
    sonames = [path.name for path in forwarders]
    contents |= {path.name: path.read_bytes() for path in forwarders}
    directory = state_dir / "lib" / digest_of(contents)[:HASH_LENGTH]
    for name, content in contents.items():
        if not is_installed(directory / name, content):
            write_durable(directory / name, content)
            (directory / name).chmod(MODE)
    return Interceptor(
        directory / LIBRARY, directory / PRELOAD_LIST, {soname: directory / soname for soname in sonames}
    )


def digest_of(contents: Mapping[str, bytes]) -> str:
    """A number that names these files and no others."""
    parts = [f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(contents.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def is_installed(target: Path, content: bytes) -> bool:
    """Whether the file is there, whole and readable for everybody."""
    try:
        return target.read_bytes() == content and target.stat().st_mode & 0o777 == MODE
    except FileNotFoundError:
        return False
