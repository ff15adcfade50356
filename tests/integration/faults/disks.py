"""Small file systems that can be filled and made read-only; they end with the process that holds them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM = "4m"
HOLD = 'for disk; do mount -t tmpfs -o "size=$0" disk "$disk"; done; echo held; exec sleep infinity'
IN_A_NAMESPACE = ("unshare", "--mount", "--kill-child", "--fork")


def can_mount() -> bool:
    """Whether this machine lets us."""
    try:
        done = subprocess.run(
            [*IN_A_NAMESPACE, "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


class Disk:
    """A file system of a mount namespace, at a path that leads there from outside."""

    def __init__(self, holder: int, point: Path) -> None:
        self._holder, self._point = holder, point
        self.path = Path(f"/proc/{holder}/root{point}")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not a byte more fits."""
        filler = self.path / ".filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Nothing is made, changed or removed but in files that are open already."""
        self._mount("mount", "--bind", str(self._point), str(self._point))
        self._mount("mount", "-o", "remount,bind,ro", str(self._point))
        try:
            yield
        finally:
            self._mount("umount", str(self._point))

    def _mount(self, *command: str) -> None:
        subprocess.run(["nsenter", "--target", str(self._holder), "--mount", *command], check=True)


@contextmanager
def disks(root: Path, *names: str, room: str = ROOM) -> Iterator[dict[str, Disk]]:
    """File systems below a directory, each under its name, with as much room."""
    points = [root / f"{name}.disk" for name in names]
    for point in points:
        point.mkdir()
    command = [*IN_A_NAMESPACE, "sh", "-ec", HOLD, room, *map(str, points)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            (holder,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            made = {name: Disk(int(holder), point) for name, point in zip(names, points, strict=True)}
            for name, disk in made.items():
                (root / name).symlink_to(disk.path)
            yield made
        finally:
            process.kill()
