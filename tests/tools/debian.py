"""Brings Debian packages into the cache without installing them, together with what they need and the machine lacks.

    python -m tests.tools.debian clang-14 libclang-rt-14-dev     prints the directory they were unpacked in

Packages can also come from another release of the same archive, or from a component that the machine does not use: then
they come alone. Nobody has to be root: apt works on lists of its own, and packages are unpacked, not installed.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools.cache import cache_dir

_METHOD = "2"
"""Counted up when the same packages come to be unpacked otherwise, so that what lies in caches is made anew."""


class NotAvailableError(Exception):
    """The packages cannot be had here; the message says why in one sentence."""


@dataclass(frozen=True)
class Release:
    """A release of Debian in the archive that the machine uses, whichever release the machine has itself."""

    codename: str
    component: str = "main"


def unpack(*packages: str, release: Release | None = None) -> Path:
    """Returns a directory with the packages' files, as they would lie under /.

    Raises:
        NotAvailableError: this is no Debian, or its archive cannot be reached.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        message = f"{', '.join(packages)}: this machine has no apt"
        raise NotAvailableError(message)
    cache = cache_dir("debian")
    origin = [release.codename, release.component] if release else []
    name = hashlib.sha256(" ".join([*sorted(packages), *origin, _METHOD]).encode()).hexdigest()[:16]
    root = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _fill(cache, root, packages, release)
    return root


def unpack_or_skip(*packages: str, release: Release | None = None) -> Path:
    """The same for a test, which is skipped loudly where the packages cannot be had."""
    try:
        return unpack(*packages, release=release)
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")


def _fill(cache: Path, root: Path, packages: tuple[str, ...], release: Release | None) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        unpacked = Path(scratch) / "root"
        unpacked.mkdir()
        for package in _download(Path(scratch), packages, release):
            _run("dpkg-deb", "--extract", str(package), str(unpacked))
        unpacked.rename(root)


def _download(scratch: Path, packages: tuple[str, ...], release: Release | None) -> list[Path]:
    """Every package that is asked for or needed, as apt has fetched and verified it."""
    options = ["-o", "Debug::NoLocking=1"]
    archives = scratch / "archives"
    for directory in (scratch / "lists", archives):
        (directory / "partial").mkdir(parents=True)
    options += ["-o", f"Dir::State::Lists={scratch / 'lists'}", "-o", f"Dir::Cache={scratch}"]
    plan = ["--reinstall", "--no-install-recommends", "--yes", "--download-only", "install"]
    if release:
        options += [
            "-o",
            f"Dir::Etc::SourceList={_sources(scratch, release)}",
            "-o",
            "Dir::Etc::SourceParts=/dev/null",
        ]
        plan = ["download"]
    _run("apt-get", "-qq", *options, "update")
    _run("apt-get", "-qq", *options, *plan, *packages, directory=archives)
    found = sorted(archives.glob("*.deb"))
    names = {package.name.partition("_")[0] for package in found}
    if missing := set(packages) - names:
        message = f"{', '.join(sorted(missing))}: the archive has no such packages"
        raise NotAvailableError(message)
    return found


def _sources(scratch: Path, release: Release) -> Path:
    """A list for apt: the archive from which the machine has its own release, and the keys of Debian's."""
    known = _run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)")
    own = [line.split() for line in known.splitlines()]
    archives = [uri for uri, codename, component in own if component == "main" and "-" not in codename]
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not (archives and keys.exists()):
        message = f"{release.codename}: apt on this machine knows no archive of Debian's"
        raise NotAvailableError(message)
    sources = scratch / "sources.list"
    sources.write_text(f"deb [signed-by={keys}] {archives[0]} {release.codename} {release.component}\n")
    return sources


def _run(*command: str, directory: Path | None = None) -> str:
    """Runs a command, in a directory of its own if given; returns what it printed."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=directory
    )
    if done.returncode:
        message = f"{' '.join(command[:3])} ...: {done.stdout.strip().splitlines()[-1:]}"
        raise NotAvailableError(message)
    return done.stdout


if __name__ == "__main__":
    print(unpack(*sys.argv[1:]))
