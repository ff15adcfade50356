"""A program that locks its container's pages to bits, and has every slot of its usage page say that it is at work."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from aliquot.libshim._pages import ffi, lib

SLOTS_AT: int = ffi.offsetof("aq_usage_page", "slots")
_PROGRAM = """
import fcntl, os, struct, time
FIRST = 1 << 20
def lock(file, kind, start, length):
    fcntl.fcntl(file, 37, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))  # F_OFD_SETLK
def work():
    end = time.monotonic_ns() >> END_UNIT_SHIFT << END_SHIFT & 0xFFFFFFFF
    return struct.pack("I60x", end | IN_FLIGHT_AND_WAITING)
files = os.open(USAGE, os.O_RDWR), os.open(CONTROL, os.O_RDONLY)
os.pwrite(files[0], SLOT * COUNT_OF_SLOTS, SLOTS_AT)
for file, kind in zip(files, (fcntl.F_WRLCK, fcntl.F_RDLCK)):
    lock(file, kind, FIRST, 2 * LOCKS)
    for start in range(2 * LOCKS - 2, 0, -2):
        lock(file, fcntl.F_UNLCK, FIRST + start, 1)
print("ready", flush=True)
while True:
    os.pwrite(files[0], work() * COUNT_OF_SLOTS, WORKS_AT)
    time.sleep(0.01)
"""


def claimed(pid: int = 2, pid_namespace: int = 2, start_time: int = 2) -> bytes:
    """A slot of a usage page that names a process, as a living one does; its owner is none."""
    slot = ffi.new("aq_usage_slot *")
    slot.owner = slot.presence = 2
    slot.pid, slot.pid_namespace, slot.start_time = pid, pid_namespace, start_time
    return bytes(ffi.buffer(slot))


def program(usage: str | PathLike[str], control: str | PathLike[str], count: int) -> str:
    """The program's text; `count` is the number of locks on each page. It prints "ready" and goes on."""
    constants = {
        "USAGE": os.fspath(usage),
        "CONTROL": os.fspath(control),
        "LOCKS": count,
        "SLOT": claimed(),
        "SLOTS_AT": SLOTS_AT,
        "COUNT_OF_SLOTS": lib.AQ_MAX_SLOTS,
        "WORKS_AT": lib.AQ_USAGE_SIZE,
        "END_SHIFT": lib.AQ_WORK_END_SHIFT,
        "END_UNIT_SHIFT": lib.AQ_WORK_END_UNIT_SHIFT,
        "IN_FLIGHT_AND_WAITING": lib.AQ_WORK_IN_FLIGHT | lib.AQ_WORK_WAITING,
    }
    return "\n".join(f"{name} = {value!r}" for name, value in constants.items()) + _PROGRAM


@contextmanager
def locking(usage: Path, control: Path, count: int) -> Iterator[None]:
    """The program at work, with all its locks held."""
    command = [sys.executable, "-c", program(usage, control, count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()
