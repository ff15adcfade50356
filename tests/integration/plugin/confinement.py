"""Runs a node agent as its pod would have it: pid namespace and root of its own, few paths and few capabilities.

The root is a tmpfs, read-only in the end, with the programs of this machine in place of an image. The host's /proc is
at /host/proc, read-only, where the simulated driver looks, too; whatever else of the host is bound,
`ConfinedWorld.paths` lists.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.plugin.world import REPOSITORY, World

UNSHARE = ("unshare", "--pid", "--mount", "--cgroup", "--fork", "--kill-child")
SCRIPT = """
set -eu
root=$1 capabilities=$2; shift 2
mount -t tmpfs confined "$root"
bind() {
  [ -e "$2" ] || return 0
  if [ -L "$2" ]; then mkdir -p "$root$(dirname "$2")"; cp -a "$2" "$root$2"; return 0; fi
  if [ -d "$2" ]; then mkdir -p "$root$2"; else mkdir -p "$root$(dirname "$2")"; : > "$root$2"; fi
  mount --bind "$2" "$root$2"
  [ "$1" = rw ] || mount -o remount,ro,bind "$root$2"
}
while [ "$1" != -- ]; do bind "$1" "$2"; shift 2; done
shift
mkdir -p "$root/host/proc" "$root/proc"
mount --bind /proc "$root/host/proc"
mount -o remount,ro,bind "$root/host/proc"
mount -t proc proc "$root/proc"
mount -o remount,ro "$root"
cd /
exec chroot "$root" setpriv --no-new-privs --inh-caps=-all --bounding-set="$capabilities" \\
  env SIMGPU_PROC=/host/proc "$@"
"""
IMAGE = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/ssl", "/dev/null", "/dev/urandom")


def can_confine() -> bool:
    """Whether this machine lets us."""
    if os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv", "chroot"))):
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


@dataclass
class ConfinedWorld(World):
    """A node whose agent is confined.

    Attributes:
        capabilities: What it keeps; none of the others.
    """

    capabilities: Sequence[str] = ("sys_ptrace", "sys_nice")
    hidden: Sequence[Path] = field(default_factory=list)

    def paths(self) -> dict[Path, str]:
        """What it is given of the host."""
        for path in (self.state, self.root / "run", self.root / "cdi"):
            path.mkdir(exist_ok=True)
        given = {
            self.kubelet.plugins: "rw",
            self.kubelet.directory / "pod-resources": "ro",
            self.state: "rw",
            self.root / "run": "rw",
            self.root / "cdi": "rw",
            self.machine.root: "rw",  # the driver and its device nodes
            self.api.kubeconfig: "ro",
        }
        return {path: mode for path, mode in given.items() if path not in self.hidden}

    def command(self, *more: str) -> list[str]:
        """The agent's command line within its confinement."""
        inner = self.root / "confined"
        inner.mkdir(exist_ok=True)
        image = dict.fromkeys((*map(Path, IMAGE), Path(sys.prefix), Path(sys.base_prefix), REPOSITORY), "ro")
        image = {path: mode for path, mode in image.items() if not str(path).startswith("/usr/")}
        bound = [word for path, mode in {**image, **self.paths()}.items() for word in (mode, str(path))]
        kept = ",".join(["-all", *(f"+{name}" for name in self.capabilities)])
        agent = super().command("--proc", "/host/proc", *more)
        return [*UNSHARE, "sh", "-c", SCRIPT, "confine", str(inner), kept, *bound, "--", *agent]

    def inside(self, *argv: str) -> str:
        """What a program prints in the same confinement."""
        command = self.command()
        command[command.index("--") + 1 :] = argv
        done = subprocess.run(command, env=self.env(), capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    def env(self) -> dict[str, str]:
        """Nothing is written beside the code."""
        return {**super().env(), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(REPOSITORY)}
