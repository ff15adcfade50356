"""The first process of a box: makes its mounts, says "ready", and reaps what is left to it.

It runs in mount and pid namespaces of its own, made by box.py; argument: a directory for what the box writes.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

LAYERED = ("/etc", "/opt", "/run", "/var")
"""Directories of the machine that the box sees, and can write to without the machine's seeing it."""
SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/random/boot_id",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What kubelets, network plugins and reboots set in the kernel: here they set files that stand before the kernel's."""
OWN = ("/var/lib/kubelet", "/var/lib/aliquot", "/var/lib/containerd", "/run/aliquot")
"""Places that must not lie on an overlay: overlays are mounted there, or files kept by their inode."""


def main(root: Path) -> None:
    """Sets the box up and waits until it is killed."""
    mount("--make-rshared", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "box", str(root))
    for directory in LAYERED:
        layer(Path(directory), root / "layers" / directory.strip("/"))
    for place in OWN:
        bind(root / "own" / place.replace("/", "_"), Path(place))
    for setting in SETTINGS:
        shadow(root / "settings" / setting.replace("/", "."), Path("/proc/sys") / setting)
    print("ready", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        reap()


def mount(*arguments: str) -> None:
    """Mounts, or ends the box with the reason."""
    subprocess.run(["mount", *arguments], check=True)


def layer(directory: Path, own: Path) -> None:
    """Puts an overlay on a directory: the machine's files below, the box's own on top."""
    for part in ("upper", "work"):
        (own / part).mkdir(parents=True)
    target = directory.resolve()
    options = f"lowerdir={target},upperdir={own / 'upper'},workdir={own / 'work'}"
    mount("-t", "overlay", "-o", options, "box", str(target))


def bind(own: Path, place: Path) -> None:
    """Puts an empty directory of the box's in a place."""
    own.mkdir(parents=True)
    place.mkdir(parents=True, exist_ok=True)
    mount("--bind", str(own), str(place))


def shadow(own: Path, setting: Path) -> None:
    """Puts a file with the setting's value before it."""
    if setting.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(setting.read_text())
        mount("--bind", str(own), str(setting))


def reap() -> None:
    """Takes notice of every child that has ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
