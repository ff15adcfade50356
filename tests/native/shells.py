"""Tenants' programs that a test drives line by line (clients/driver_shell.c), and native test programs."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.tenants import Tenant

CLIENTS = Path(__file__).with_name("clients")
LIBSHIM = Path(__file__).resolve().parents[2] / "libshim"

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2
OUT = "&"


@cache
def program(name: str, *sources: str, optimise: str = "-O2") -> Path:
    """Compiles clients/<name>.c, with files of libshim/src if need be. The program lives as long as the test run."""
    directory = tempfile.mkdtemp(prefix="aliquot-clients-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    target = Path(directory) / name
    flags = ["-std=c11", "-D_GNU_SOURCE", optimise, "-g", "-Wall", "-Wextra", "-Werror"]
    include = [f"-I{LIBSHIM / 'include'}", f"-I{LIBSHIM / 'src'}"]
    files = [CLIENTS / f"{name}.c", *(LIBSHIM / "src" / source for source in sources)]
    subprocess.run(["cc", *flags, *include, "-o", target, *files, "-ldl", "-lpthread"], check=True)
    return target


@cache
def library(name: str) -> Path:
    """Compiles clients/<name>.c as a shared library."""
    target = Path(tempfile.mkdtemp(prefix="aliquot-clients-")) / f"lib{name}.so"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    flags = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", target, CLIENTS / f"{name}.c"], check=True)
    return target


def two_cards(root: Path) -> SimMachine:
    """A machine of two cards of 16 GiB, for the tests of a whole module: each has a tenant of its own."""
    machine = SimMachine(root, [SimCard(memory_mib=16384), SimCard(memory_mib=16384)])
    machine.create()
    return machine


class Shell:
    """A CUDA process in a tenant's slice (or, with `bare`, outside of any)."""

    def __init__(
        self,
        tenant: Tenant,
        *,
        bare: bool = False,
        prefix: Sequence[str | Path] = (),
        files: Sequence[int] = (),
        **extra: str,
    ) -> None:
        """Starts the program, by the command `prefix` if given, with open `files` and `extra` in its environment."""
        env = {**os.environ, **tenant.machine.env(), **extra} if bare else tenant.env(**extra)
        self.process = subprocess.Popen(
            [*prefix, program("driver_shell")],
            env=env,
            pass_fds=files,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.process.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid

    def say(self, line: str) -> None:
        """Sends a line without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Returns the next answer."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        """Sends a line and returns its answer."""
        self.say(line)
        return self.hear()

    def call(self, name: str, *arguments: object) -> tuple[int, ...]:
        """Calls a driver function: its status, then the words it wrote to the arguments given as OUT."""
        answer = self.ask(" ".join([name, *map(str, arguments)])).split()
        assert answer[0] != "-", f"the driver has no {name}"
        return tuple(map(int, answer))

    def ok(self, name: str, *arguments: object) -> int:
        """Calls a driver function that must succeed; its first output, or 0."""
        status, *outputs = self.call(name, *arguments)
        assert status == SUCCESS, f"{name}{arguments}: {status}"
        return outputs[0] if outputs else 0

    def begin(self, device: int = 0) -> Self:
        """Makes the device's primary context current."""
        self.ok("cuInit", 0)
        self.ok("cuCtxSetCurrent", self.ok("cuDevicePrimaryCtxRetain", OUT, device))
        return self

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes as cuMemGetInfo tells them."""
        status, available, total = self.call("cuMemGetInfo_v2", OUT, OUT)
        assert status == SUCCESS
        return available, total
