"""The threads that watch and hand over ask the kernel for a short time slice, and for nothing else."""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.arbiter import Arbiter
from tests.native.sims import wait_for
from tests.native.spinners import spinning
from tests.native.tenants import Tenant

SHORT_NS = 100_000
GIB = 1 << 30
_SYS_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}[platform.machine()]


class _Attributes(ctypes.Structure):
    """The kernel's `struct sched_attr` in its first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Scheduling:
    """How the kernel schedules a thread; a slice of 0 is that of a kernel on which threads choose none."""

    policy: int
    nice: int
    slice_ns: int


def scheduling(thread: int) -> Scheduling:
    """Asks the kernel."""
    found = _Attributes()
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.syscall(_SYS_SCHED_GETATTR, thread, ctypes.byref(found), ctypes.sizeof(found), 0)
    assert not failed, os.strerror(ctypes.get_errno())
    return Scheduling(found.policy, found.nice, found.runtime)


def thread_named(process: int, name: str) -> int:
    """The thread of a process that calls itself so, which is the last that it does before it begins."""
    directory = Path("/proc") / str(process) / "task"

    def found() -> list[int]:
        tasks = directory.iterdir()
        return [int(task.name) for task in tasks if (task / "comm").read_text() == f"{name}\n"]

    wait_for(lambda: len(found()) == 1, name)
    return found()[0]


def of_program(tenant: Tenant, *prefix: str) -> tuple[Scheduling, Scheduling]:
    """Of a program that has launched a kernel: its own thread, and ours in it."""
    with spinning(tenant, *prefix) as spinner:
        spinner.do("1 1000 1 0")
        return scheduling(spinner.pid), scheduling(thread_named(spinner.pid, "aliquot-core"))


def shortened(of: Scheduling) -> Scheduling:
    """The same with a short slice, where the kernel knows of slices."""
    if not of.slice_ns:
        pytest.skip("threads choose their slice from Linux 6.12 on")
    return Scheduling(of.policy, of.nice, SHORT_NS)


@pytest.mark.parametrize("prefix", [(), ("nice", "-n", "5")], ids=["as it is", "nice"])
def test_the_thread_that_watches_has_a_short_slice(tenant: Callable[..., Tenant], prefix: tuple[str, ...]):
    """And the niceness of its program, whose own threads keep their slices."""
    own, ours = of_program(tenant(GIB, 30), *prefix)
    assert ours == shortened(own)
    assert own.slice_ns > SHORT_NS
    assert own.nice == os.getpriority(os.PRIO_PROCESS, 0) + (5 if prefix else 0)


def test_a_program_of_another_class_keeps_it(tenant: Callable[..., Tenant]):
    """Who has chosen to wait has the thread that watches it wait, too."""
    own, ours = of_program(tenant(GIB, 30), "chrt", "--batch", "0")
    assert own.policy == os.SCHED_BATCH
    assert ours == own


@pytest.mark.parametrize("name", ["aliquot-arbiter", "aliquot-probe"])
def test_threads_of_the_arbiter_have_short_slices(name: str):
    """The thread whose process they are in keeps its own."""
    arbiter = Arbiter()
    arbiter.start()
    try:
        own, ours = scheduling(os.getpid()), scheduling(thread_named(os.getpid(), name))
    finally:
        arbiter.stop()
    assert ours == shortened(own)
    assert own.slice_ns > SHORT_NS


REAL_TIME = """
import os
from pathlib import Path
from aliquot.arbiter import Arbiter
arbiter = Arbiter()
had = arbiter.start(real_time=True)
tasks = Path("/proc/self/task").iterdir()
policies = [os.sched_getscheduler(int(task.name)) for task in tasks]
arbiter.stop()
print(had, policies.count(os.SCHED_FIFO))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: needs root")
@pytest.mark.parametrize(
    ("prefix", "told"),
    [((), "True 1"), (("setpriv", "--bounding-set", "-sys_nice"), "False 0")],
    ids=["allowed", "not allowed"],
)
def test_the_arbiter_has_real_time_priority_where_it_may(prefix: tuple[str, ...], told: str):
    """The probe is as late as tenants are. Where the priority is refused the arbiter runs without, and says so."""
    command = [*prefix, sys.executable, "-c", REAL_TIME]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
