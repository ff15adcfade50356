"""Brings Debian packages into the cache without installing them, together with what they need and the machine lacks.

    python -m tests.tools.debian clang-14 libclang-rt-14-dev     prints the directory they were unpacked in

Nobody has to be root: apt works on lists of its own, and packages are unpacked, not installed.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.tools.cache import cache_dir

_METHOD = "2"
"""Counted up when the same packages come to be unpacked otherwise, so that what lies in caches is made anew."""


class NotAvailableError(Exception):
    """The packages cannot be had here; the message says why in one sentence."""


def unpack(*packages: str) -> Path:
    """Returns a directory with the packages' files, as they would lie under /.

    Raises:
        NotAvailableError: this is no Debian, or its archive cannot be reached.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        message = f"{', '.join(packages)}: this machine has no apt"
        raise NotAvailableError(message)
    cache = cache_dir("debian")
    name = hashlib.sha256(" ".join([*sorted(packages), _METHOD]).encode()).hexdigest()[:16]
    root = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _fill(cache, root, packages)
    return root


def unpack_or_skip(*packages: str) -> Path:
    """The same for a test, which is skipped loudly where the packages cannot be had."""
    try:
        return unpack(*packages)
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")


def _fill(cache: Path, root: Path, packages: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        unpacked = Path(scratch) / "root"
        unpacked.mkdir()
        for package in _download(Path(scratch), packages):
            _run("dpkg-deb", "--extract", str(package), str(unpacked))
        unpacked.rename(root)


def _download(scratch: Path, packages: tuple[str, ...]) -> list[Path]:
    """Every package that is asked for or needed, as apt has fetched and verified it."""
    options = ["-o", "Debug::NoLocking=1"]
    for directory in ("lists", "archives"):
        (scratch / directory / "partial").mkdir(parents=True)
    options += ["-o", f"Dir::State::Lists={scratch / 'lists'}", "-o", f"Dir::Cache={scratch}"]
    _run("apt-get", "-qq", *options, "update")
    plan = ["--reinstall", "--no-install-recommends", "--yes", "--download-only", "install", *packages]
    _run("apt-get", "-qq", *options, *plan)
    found = sorted((scratch / "archives").glob("*.deb"))
    names = {package.name.partition("_")[0] for package in found}
    if missing := set(packages) - names:
        message = f"{', '.join(sorted(missing))}: the archive has no such packages"
        raise NotAvailableError(message)
    return found


def _run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(command[:3])} ...: {done.stdout.strip().splitlines()[-1:]}"
        raise NotAvailableError(message)
    return done.stdout


if __name__ == "__main__":
    print(unpack(*sys.argv[1:]))
