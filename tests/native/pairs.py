"""Two programs on one simulated machine that share memory, and what such programs have at hand."""

import socket
import subprocess
import sys

from aliquot.sandbox.gpus import SimMachine
from tests.native.sims import PRELUDE, environment

MIB = 1024 * 1024

PROGRAM = """
import ctypes, os, socket
start()
MIB = 1 << 20
Kind = cuda.CUmemAllocationHandleType
FD = Kind.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
FABRIC = Kind.CU_MEM_HANDLE_TYPE_FABRIC
peer = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
def create(mib, types=FD):
    prop = cuda.CUmemAllocationProp()
    prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.requestedHandleTypes = types
    return check(cuda.cuMemCreate(mib * MIB, prop, 0))
def mapped(handle, mib):
    base = check(cuda.cuMemAddressReserve(mib * MIB, 0, 0, 0))
    check(cuda.cuMemMap(base, mib * MIB, 0, handle, 0))
    return base
def text(address, size=5):
    out = bytearray(size)
    check(cuda.cuMemcpyDtoH(out, address, size))
    return bytes(out)
def send_fd(fd):
    socket.send_fds(peer, [b"x"], [fd])
def receive_fd():
    return socket.recv_fds(peer, 1, 1)[1][0]
def raw(handle):
    return ctypes.string_at(handle.getPtr(), 64)
def filled(handle, data):
    ctypes.memmove(handle.getPtr(), data, 64)
    return handle
def used():
    free, total = check(cuda.cuMemGetInfo())
    return (total - free) >> 20
def say(word):
    print(word, flush=True)
def wait():
    sys.stdin.readline()
"""


class Pair:
    """Two programs on one machine, with a socket between them; each line to one lets it go on."""

    def __init__(self, machine: SimMachine, first: str, second: str) -> None:
        self.machine = machine
        ends = socket.socketpair()
        self.first, self.second = (
            subprocess.Popen(
                [sys.executable, "-c", PRELUDE + PROGRAM + program, str(end.fileno())],
                env=environment(machine), text=True, pass_fds=[end.fileno()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for program, end in zip((first, second), ends, strict=True)
        )  # fmt: skip
        for end in ends:
            end.close()

    def read(self, process: subprocess.Popen[str]) -> str:
        """The next line of one."""
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, process.communicate(timeout=30)[1]
        return line

    def go_on(self, process: subprocess.Popen[str]) -> None:
        """Lets one go on that waits."""
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def held(self) -> dict[str, int]:
        """MiB on the first card of each."""
        sizes = self.machine.processes(self.machine.cards[0].uuid)
        names = {self.first.pid: "first", self.second.pid: "second"}
        return {names[pid]: size // MIB for pid, size in sizes.items() if size}
