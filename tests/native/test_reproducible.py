"""The same sources and the same compiler make the same files, wherever, whenever and by whomever they are built."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ZIG = f"{sys.executable} -m ziglang cc"
EPOCH = "1700000000"
OTHER = {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "USER": "somebody", "LOGNAME": "somebody"}
NOT_BUILT = ("tests", "docs", "bench")


def copy(target: Path) -> Path:
    """What is needed of the sources, in a directory of another name and length, with today's dates."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if Path(name).parts[0] not in NOT_BUILT and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name, follow_symlinks=False)
    return target


def run(command: list[str], directory: Path, *, umask: int = 0o022, **environment: str) -> str:
    """What a command prints that succeeds."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(libshim: Path, *, umask: int = 0o022, **environment: str) -> str:
    """The digests of a release build, which are those of its files."""
    told = run(
        ["make", "-s", "-C", "libshim", "release", f"ZIG={ZIG}"], libshim.parent, umask=umask, **environment
    )
    sums = dict(reversed(line.split()) for line in told.splitlines())
    built = libshim / "build/release"
    assert len(sums) == 6
    assert sums == {name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in sums}
    assert (built / "SHA256SUMS").read_text() == told
    return told


def test_release_builds_are_the_same_everywhere(tmp_path: Path):
    """Another directory, home, time zone, locale, user and umask, and nothing that an earlier build has left."""
    there = copy(tmp_path / "another" / "place")
    homes = {"HOME": str(tmp_path), "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "zig")}
    other = release(there / "libshim", umask=0o077, **OTHER, **homes)
    assert release(ROOT / "libshim") == other
    for line in other.splitlines():
        library = there / "libshim/build/release" / line.split()[1]
        assert str(tmp_path).encode() not in library.read_bytes(), library.name


def test_wheels_are_the_same_everywhere(tmp_path: Path):
    """With SOURCE_DATE_EPOCH, of another's umask, too: modes are those that pip is to install."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    digests = set()
    holds = {"aliquot/plugin/agent.py", "aliquot/cli/demo/manifests/crds/gpunodes.yaml"}
    for place, umask, environment in (
        ("one", 0o022, {}),
        ("the/other", 0o077, {**OTHER, "HOME": str(tmp_path)}),
    ):
        there, wheels = copy(tmp_path / place), tmp_path / f"wheels-{umask}"
        command = [*pip, "--no-build-isolation", "--wheel-dir", str(wheels), "."]
        run(command, there, umask=umask, SOURCE_DATE_EPOCH=EPOCH, **environment)
        (wheel,) = wheels.iterdir()
        assert holds <= set(zipfile.ZipFile(wheel).namelist())
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1
