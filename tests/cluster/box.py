"""A box for a node's processes: mounts and process ids of its own, gone as a whole when its first process ends.

What a kubelet and a container runtime write to fixed places of a machine (/var/lib/kubelet, /run, /etc/cni), the
mounts that they make and the kernel's settings that they change, they write, make and change in the box alone. The
network is the machine's.
"""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.cluster.control_plane import MORTAL
from tests.tools.debian import NotAvailableError

INIT = Path(__file__).with_name("box_init.py")
CGROUPS = Path("/sys/fs/cgroup")


class Box:
    """The namespaces; `root` is a directory of this machine that the box uses for what it writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._outer: subprocess.Popen[str] | None = None
        self._inner = 0

    def __enter__(self) -> Self:
        argv = [*MORTAL, "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        argv += ["--propagation", "private", sys.executable, str(INIT), str(self.root)]
        self._outer = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._outer.stdout
        assert self._outer.stderr
        if self._outer.stdout.readline() != "ready\n":
            reason = self._outer.stderr.read().strip().splitlines()[-1:]
            self.down()
            raise NotAvailableError(f"no namespaces of its own for a node: {' '.join(reason)}")
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text()
        self._inner = int(children.split()[0])
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End all that runs in the box."""
        if self._outer:
            self._outer.kill()
            self._outer.wait()

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs another one inside; it ends with whoever started it."""
        return ["nsenter", "--target", str(self._inner), "--mount", "--pid", "--", *MORTAL, *argv]

    def run(self, *argv: str) -> str:
        """Runs a command inside, and returns what it prints. Raises RuntimeError with its errors."""
        done = subprocess.run(self.command(argv), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv[:4])}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def bind(self, source: Path, place: Path) -> None:
        """Have a directory of the machine in another place, too, inside."""
        self.path(place).mkdir(parents=True, exist_ok=True)
        self.run("mount", "--bind", str(source), str(place))

    def path(self, inside: str | Path) -> Path:
        """Where a file of the box is found from outside."""
        return Path(f"/proc/{self._inner}/root") / Path(inside).relative_to("/")

    def processes(self) -> dict[int, str]:
        """Command lines of all processes inside, containers' included, by their ids inside."""
        found = dict[int, str]()
        for path in self.path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        return found
