"""Puts the interceptor where containers can keep it: under a path made of its content, written once.

A container maps the library for as long as it runs. Overwriting it in place would pull code from under
running programs, so each version has its own directory and an upgrade adds one. The path also lies in the
CDI specs of containers that will be restarted, so old versions stay.
"""

import hashlib
from pathlib import Path

from plugin.files import write_durable

HASH_LENGTH = 16
MODE = 0o755


def install_interceptor(library: Path, state_dir: Path) -> Path:
    """Copies the library to `<state_dir>/lib/<hash>/libaliquot.so` unless it is there; returns that path.

    Raises OSError if the library cannot be read or the copy not written.
    """
    content = library.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    target = state_dir / "lib" / digest[:HASH_LENGTH] / "libaliquot.so"
    if not is_installed(target, digest):
        write_durable(target, content)
        target.chmod(MODE)
    return target


def is_installed(target: Path, digest: str) -> bool:
    """Whether the file is there, whole and readable for everybody."""
    try:
        return (
            hashlib.sha256(target.read_bytes()).hexdigest() == digest
            and target.stat().st_mode & 0o777 == MODE
        )
    except FileNotFoundError:
        return False
