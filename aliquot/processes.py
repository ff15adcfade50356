"""Which processes of this machine are alive, as tenants' pages and cgroups name them.

A usage page names a process by its pid in its own namespace, that namespace's inode and its start time;
the host sees another pid. One walk over /proc gives a table to look such names up in. A process that a
container started but that has not used a card yet is in no page; it is found by its cgroup, whose path
holds the pod's UID.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
START_TIME_FIELD = 19
_SYS_PTRACE = 19
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
        names: Processes, as their own namespaces know them.
        pod_uids: Pods that have one.
        veiled: Pid and start time of those whose namespace this process may not look at.
    """

    names: frozenset[ProcessName]
    pod_uids: frozenset[str]
    veiled: frozenset[tuple[int, int]] = frozenset()

    def has(self, name: ProcessName) -> bool:
        """Whether a process lives; one that could be it does, too."""
        return name in self.names or (name.pid, name.start_time) in self.veiled


def read_processes(proc: Path = PROC) -> ProcessTable:
    """Everything alive now that this process may look at; what ends while we look is left out."""
    names: set[ProcessName] = set()
    uids: set[str] = set()
    veiled: set[tuple[int, int]] = set()
    for directory in process_directories(proc):
        try:
            pid, start_time = _innermost_pid_and_start(directory)
            uids.update(uid.replace("_", "-") for uid in POD_UID.findall((directory / "cgroup").read_text()))
        except (OSError, ValueError, IndexError):
            continue
        try:
            names.add(ProcessName(pid, _namespace(directory), start_time))
        except PermissionError:
            veiled.add((pid, start_time))
        except OSError:
            continue
    return ProcessTable(frozenset(names), frozenset(uids), frozenset(veiled))


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
        found = POD_UID.search((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    return found[1].replace("_", "-") if found else None


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
