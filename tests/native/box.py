"""Containers for the native tests: a small root, what a CDI spec adds to it, and processes in it.

Each process runs in a mount namespace of its own, so the spec's mounts are real ones. That takes root, or user
namespaces that anybody may make.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aliquot.api.names import LIBRARY_PATH
from aliquot.node.cdi import ContainerEdits

OTHER_USER = 65534


@cache
def unshare() -> tuple[str, ...]:
    """The command that makes a mount namespace here; empty where nobody lets us."""
    ways = [("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount")]
    for way in ways if os.geteuid() == 0 else ways[1:]:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return way
    return ()


def system(name: str) -> str:
    """Where a program of the administrator's is."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert found, f"there is no {name} here"
    return found


@dataclass(frozen=True)
class Box:
    """A container's root directory, and what is mounted into it: container path → host path."""

    root: Path
    mounts: Mapping[str, str]
    env: Mapping[str, str]

    def run(self, command: Sequence[str], *, user: int = 0, **extra: str) -> str:
        """Runs a program to its end; returns what it printed, "does not start" if the loader gave it up."""
        env = [f"{name}={value}" for name, value in {**self.env, **extra}.items()]
        enter = [
            "env",
            "-i",
            *env,
            system("chroot"),
            *([f"--userspec={user}:{user}"] if user else []),
            self.root,
        ]
        script = "\n".join([*self._steps(), f"exec {shlex.join(map(str, [*enter, *command]))}"])
        done = subprocess.run(
            [*unshare(), "sh", "-euc", script], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode == 127 and f"Error relocating {LIBRARY_PATH}" in done.stderr:
            return "does not start"
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _steps(self) -> Iterator[str]:
        yield "mount --make-rprivate /"
        for inside, outside in {**self.mounts, "/proc": "/proc", "/dev/null": "/dev/null"}.items():
            target = self.root / inside.lstrip("/")
            yield shlex.join(["mount", "--rbind", outside, str(target)])
        yield shlex.join([system("ldconfig"), "-r", str(self.root)])


def make_box(root: Path, files: Mapping[str, Path], edits: ContainerEdits, mounts: Mapping[str, str]) -> Box:
    """A root with `files` (path in it → program or library), the C library they need, and places to mount at."""
    for inside, source in files.items():
        put(root / inside.lstrip("/"), source)
    libraries = {one for source in files.values() for one in needed(source)}
    for library in libraries:
        put(root / str(library).lstrip("/"), library)
    everything = {mount.container_path: mount.host_path for mount in edits.mounts}
    everything |= {node.path: node.host_path for node in edits.device_nodes} | dict(mounts)
    for inside, outside in {**everything, "/proc": "/proc", "/dev/null": "/dev/null"}.items():
        place(root / inside.lstrip("/"), directory=Path(outside).is_dir())
    (root / "etc").mkdir(exist_ok=True)
    driver = [Path(path) for path in everything if path.startswith("/usr/lib/")]
    places = sorted({str(path.parent) for path in (*libraries, *driver)})
    (root / "etc" / "ld.so.conf").write_text("\n".join([*places, ""]))
    return Box(root, everything, dict(pair.split("=", 1) for pair in edits.env))


def place(target: Path, *, directory: bool) -> None:
    """Something to mount over."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if directory else target.touch()


def put(target: Path, source: Path) -> None:
    """Copies a file with its mode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def needed(program: Path) -> Iterator[Path]:
    """The libraries that the loader finds for a program here."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    for word in told.stdout.split() if told.returncode == 0 else ():
        if word.startswith("/"):
            yield Path(word)
