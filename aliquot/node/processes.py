"""Which processes of this machine are alive, and whose they are.

A process belongs to the pod whose UID is in the path of its cgroup: the kernel tells that path, and no container can
change it. A usage page names a process by its pid in its own namespace, that namespace's inode and its start time; the
host sees another pid. One walk over /proc gives a table to look such names up in. A page that names processes of other
pods, or of the host, names nobody.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PROC = Path("/proc")
START_TIME_FIELD = 19
_SYS_PTRACE = 19
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
POD_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


@dataclass(frozen=True)
class ProcessName:
    """A process as its own namespace knows it; `start_time` is field 22 of /proc/PID/stat, in clock ticks."""

    pid: int
    pid_namespace: int
    start_time: int


@dataclass(frozen=True)
class ProcessTable:
    """Who was alive at one moment.

    Attributes:
        owners: The UID of each process's pod, empty where it is in none, by its name.
        veiled: Pid, start time and pod of those whose namespace this process may not look at.
        by_cgroup: Whether containers have cgroups; where they have none, pages alone tell whose a process is.
    """

    owners: Mapping[ProcessName, str] = field(default_factory=dict)
    veiled: frozenset[tuple[int, int, str]] = frozenset()
    by_cgroup: bool = True

    @cached_property
    def pod_uids(self) -> frozenset[str]:
        """Pods that have a process."""
        return frozenset(self.owners.values()) | {uid for _, _, uid in self.veiled}

    def has(self, name: ProcessName, pod_uid: str) -> bool:
        """Whether a pod has this process, which lives; one that could be it does, too."""
        if not self.by_cgroup:
            return name in self.owners or any((name.pid, name.start_time) == one[:2] for one in self.veiled)
        return self.owners.get(name) == pod_uid or (name.pid, name.start_time, pod_uid) in self.veiled


@dataclass(frozen=True)
class Processes:
    """The processes of this machine.

    Attributes:
        proc: Where all of them are seen.
        by_cgroup: Whether containers have cgroups that name their pods.
    """

    proc: Path = PROC
    by_cgroup: bool = True

    def read(self) -> ProcessTable:
        """Everything alive now that this process may look at; what ends while we look is left out."""
        owners: dict[ProcessName, str] = {}
        veiled: set[tuple[int, int, str]] = set()
        for directory in process_directories(self.proc):
            try:
                pid, start_time = _innermost_pid_and_start(directory)
                owner = _pod_in((directory / "cgroup").read_text())
            except (OSError, ValueError, IndexError):
                continue
            try:
                owners[ProcessName(pid, _namespace(directory), start_time)] = owner
            except PermissionError:
                veiled.add((pid, start_time, owner))
            except OSError:
                continue
        return ProcessTable(owners, frozenset(veiled), self.by_cgroup)


def _pod_in(cgroup: str) -> str:
    """The UID in the text of /proc/PID/cgroup; empty where there is none."""
    found = POD_UID.search(cgroup)
    return found[1].replace("_", "-") if found else ""


def process_directories(proc: Path) -> Iterator[Path]:
    """The directory of each process."""
    return (entry for entry in proc.iterdir() if entry.name.isdigit())


def name_of(directory: Path) -> ProcessName:
    """The name of one process. Raises OSError, ValueError or IndexError if it has ended.

    A zombie holds no memory, unless only its first thread has ended.
    """
    pid, start_time = _innermost_pid_and_start(directory)
    return ProcessName(pid, _namespace(directory), start_time)


def _innermost_pid_and_start(directory: Path) -> tuple[int, int]:
    fields = (directory / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in "ZX" and len(list((directory / "task").iterdir())) <= 1:
        raise ValueError("the process has ended")
    return innermost_pid(directory), int(fields[START_TIME_FIELD])


def _namespace(directory: Path) -> int:
    """The inode of a process's pid namespace, for which one must be allowed to trace the process."""
    return (directory / "ns" / "pid").stat().st_ino


def may_trace(proc: Path = Path("/proc")) -> bool:
    """Whether this process has the capability to look at other users' processes (CAP_SYS_PTRACE)."""
    lines = (proc / "self" / "status").read_text().splitlines()
    (held,) = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    return bool(held >> _SYS_PTRACE & 1)


def pod_of(pid: int, proc: Path = PROC) -> str | None:
    """The UID of the pod that a process of this machine belongs to, by its cgroup; None: of none, or it has ended."""
    try:
        return _pod_in((proc / str(pid) / "cgroup").read_text()) or None
    except OSError:
        return None


def container_of(pid: int, proc: Path = PROC) -> str:
    """The runtime's id of the container that a process of this machine is in, by its cgroup; empty: it is in none."""
    try:
        found = CONTAINER_ID.findall((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return ""
    return found[0] if found else ""


def identity_of(pid: int, proc: Path = PROC) -> tuple[int, int, int] | None:
    """A process of this machine as usage pages name it: pid, namespace, start time; None if it has ended."""
    try:
        name = name_of(proc / str(pid))
    except (OSError, ValueError, IndexError):
        return None
    return (name.pid, name.pid_namespace, name.start_time)


def innermost_pid(directory: Path) -> int:
    """The process's pid in its own namespace: the last number of the NSpid line."""
    for line in (directory / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return int(directory.name)
