"""Writes what pip may install into the images: each package by version, and by the hashes of its wheels.

    python deploy/images/lock.py        rewrites requirements.txt and tools.txt beside it

What is wanted says pyproject.toml, in which version constraints.txt. Hashes are those that the index gives for the
wheels that pip would choose on Debian 12, for both processors; the wheels themselves are not downloaded.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PROCESSORS: Final = ("x86_64", "aarch64")
GLIBC: Final = ("_2_28", "_2_24", "_2_17", "2014")
"""Of manylinux, as wheels name it; Debian 12 has 2.36."""
PYTHON: Final = "3.11"
HEADER: Final = (
    "# Written by deploy/images/lock.py; tests/deploy/test_images.py compares it with constraints.txt.\n"
)
TOOLS: Final = ("cffi", "pip", "setuptools", "wheel", "ziglang")
"""What builds the package, and its interceptor for any glibc."""


def wanted() -> tuple[str, ...]:
    """What the package depends on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return tuple(project["dependencies"])


def resolve(requirements: Iterable[str], processor: str) -> Mapping[str, str]:
    """The hash of the wheel of each package, by `name==version`, that pip would install on such a machine."""
    platforms = [f"--platform=manylinux{glibc}_{processor}" for glibc in GLIBC]
    abis = ["--implementation=cp", f"--python-version={PYTHON}", "--abi=cp311", "--abi=abi3", "--abi=none"]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--target",
            scratch,
        ]
        pinned = [
            "--only-binary=:all:",
            "--constraint",
            str(ROOT / "constraints.txt"),
            "--report",
            str(report),
        ]
        subprocess.run([*command, *pinned, *platforms, *abis, *requirements], check=True)
        found = json.loads(report.read_text())["install"]
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}": one["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for one in found
    }


def lock(requirements: Iterable[str]) -> str:
    """A file that pip reads with --require-hashes."""
    requirements = tuple(requirements)
    hashes: dict[str, set[str]] = defaultdict(set)
    for processor in PROCESSORS:
        for package, digest in resolve(requirements, processor).items():
            hashes[package].add(f"--hash=sha256:{digest}")
    lines = (
        " \\\n    ".join((package, *sorted(hashes[package]))) for package in sorted(hashes, key=str.lower)
    )
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    for file, requirements in (("requirements.txt", wanted()), ("tools.txt", TOOLS)):
        (HERE / file).write_text(lock(requirements))
