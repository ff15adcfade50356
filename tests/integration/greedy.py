"""Programs in runs that want a card all the time, what the card says that they had of it, and who leases it to them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from aliquot.cli.runs.simulate import mark_ready
from aliquot.libshim._pages import ffi
from aliquot.libshim.control_page import CardTime, read_times
from aliquot.sandbox.gpus import SimCard, SimMachine
from bench.timeshare.run import KERNELS, programs
from tests.integration.shells import ALIQUOT, WAIT_S, Shell

FOR_MS = 120_000
WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
SAY_PID = 'echo $$; exec "$@"'


class Greedy:
    """A run whose program launches kernels of 1 ms as fast as they are taken, once it is let go."""

    def __init__(self, shell: Shell, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = int(self._line())
        """The program's, where `process` is its `aliquot`."""
        assert self._line() == "ready"
        (self.pages,) = (
            run.parent
            for run in shell.runtime.glob("aliquot/*/runs/*/run.json")
            if f'"pid":{process.pid},' in run.read_text()
        )

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        """Has it begin now."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{time.monotonic_ns()}\n")
        self.process.stdin.flush()

    def time(self) -> CardTime:
        """What an arbiter says that it had."""
        return read_times(self.pages / "control")[0]


class Bench:
    """A simulated machine of one user, and greedy programs on its first card."""

    def __init__(self, shell: Shell, load: Path) -> None:
        self.shell = shell
        root = shell.runtime / "aliquot" / "simulated" / "machine"
        self.machine = SimMachine(root, [SimCard(), SimCard()])
        self.machine.create()
        mark_ready(root)
        self._load = [str(load), str(KERNELS), "kernel_us=1000", f"for_ms={FOR_MS}"]
        self._stack = ExitStack()

    def greedy(self, *options: str, before: Sequence[str] = ()) -> Greedy:
        """Starts one; it waits to be let go."""
        command = ["--card", "0", *options, "--", "sh", "-c", SAY_PID, "sh", *before, *self._load]
        process = self.shell.start(*command)
        self._stack.callback(_kill, process)
        one = Greedy(self.shell, process)
        self._stack.callback(_kill_program, one.pid)
        return one

    def waiting(self, *options: str, shell: Shell | None = None) -> subprocess.Popen[str]:
        """Starts a run, of the same user unless told, whose program waits for the end of its input."""
        command = [*ALIQUOT, "run", "--mem", "1Gi", "--card", "0", *options, "--", sys.executable, "-c", WAIT]
        process = subprocess.Popen(
            command,
            env=(shell or self.shell).environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # as a shell with job control has it
        )
        self._stack.callback(_kill, process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    def percent(self, *tenants: Greedy, seconds: float = 1.0) -> list[float]:
        """What each has of the card in the next so many seconds."""
        begin = time.monotonic_ns()
        time.sleep(seconds)
        end = time.monotonic_ns()
        record = self.machine.record(self.machine.cards[0].uuid, begin, end)
        return [100 * record.busy_ns(one.pid) / (end - begin) for one in tenants]

    def end(self) -> None:
        """Kills what is left."""
        self._stack.close()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(WAIT_S)
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


def _kill_program(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def greedy_load() -> Iterator[Path]:
    """The compiled program."""
    with programs() as made:
        yield made.load


def holders(shell: Shell) -> list[int]:
    """Who has the lock of the one that leases: `aliquot` processes, by the kernel's word."""
    inodes = {f"{path.stat().st_ino}" for path in shell.runtime.glob("aliquot/*/arbiter")}
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    # "1: FLOCK ADVISORY WRITE 4711 00:1a:42 0 EOF"; one who waits has "->" as its second word.
    return [int(words[4]) for words in locks if words[1] == "FLOCK" and words[5].rpartition(":")[2] in inodes]


def read_heartbeat(page: Path) -> int:
    """When an arbiter last said in a page that it is there."""
    with page.open("rb") as file:
        return int.from_bytes(
            os.pread(file.fileno(), 8, ffi.offsetof("aq_control_page", "heartbeat_ns")), "little"
        )
