"""Processes of a host, as its /proc shows them."""

from pathlib import Path

from aliquot.node.processes import ProcessName

POD, OTHER = "579440e0-a5b1-4921-8e8c-c63689d36b11", "0e3fd2a5-2f5c-4d0e-9d5c-4c9d7f1f2f66"
HOST_CGROUP = "0::/system.slice/sshd.service"


def process(proc: Path, pid: int, cgroup: str) -> ProcessName:
    """A process that started 100 ticks after the machine, in a pid namespace of its own."""
    directory = proc / str(pid)
    (directory / "ns").mkdir(parents=True)
    (directory / "stat").write_text(f"{pid} (python) S {' '.join(['0'] * 18)} 100 0\n")
    (directory / "status").write_text(f"NSpid:\t{pid}\t7\n")
    (directory / "cgroup").write_text(f"{cgroup}\n")
    (directory / "ns" / "pid").touch()
    return ProcessName(7, (directory / "ns" / "pid").stat().st_ino, 100)
