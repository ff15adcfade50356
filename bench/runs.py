"""What a run costs to start, and how soon its time is leased: at its start, and after the one that leases was killed.

Prints one JSON object a line: what, how many, the times in milliseconds, and where there is one the bound. A start is
`aliquot run … true` to its end, beside that of a Python that does nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.greedy import holders, read_heartbeat
from tests.integration.shells import ALIQUOT, Shell

STARTS = 30
TAKEOVERS = 20
TAKEOVER_MS = 1000
PATIENCE_NS = 30 * 10**9
RUN = [*ALIQUOT, "run", "--simulate", "--mem", "1Gi", "--core", "20"]


def tell(what: str, times_ms: list[float], bound_ms: float | None = None) -> None:
    """Prints one line."""
    ordered = sorted(times_ms)
    figures = {
        f"p{p}_ms": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 1) for p in (50, 99)
    }
    bound = {"bound_ms": bound_ms, "met": ordered[-1] <= bound_ms} if bound_ms else {}
    print(json.dumps({"what": what, "rounds": len(ordered), **figures, **bound}), flush=True)


def timed(command: list[str], shell: Shell) -> float:
    """Runs a command to its end; milliseconds."""
    begin = time.monotonic_ns()
    subprocess.run(command, env=shell.environment, check=True)
    return (time.monotonic_ns() - begin) / 1e6


def starts(shell: Shell) -> None:
    """In turn, so that both have the same neighbours."""
    pairs = [
        (timed([*RUN, "true"], shell), timed([sys.executable, "-c", "pass"], shell)) for _ in range(STARTS)
    ]
    tell("aliquot run, start to end", [run for run, _ in pairs])
    tell("python, start to end", [python for _, python in pairs])


class Runs:
    """Runs that do nothing, of which one leases."""

    def __init__(self, shell: Shell, stack: ExitStack) -> None:
        self.shell = shell
        self._stack = stack
        self._living: list[subprocess.Popen[bytes]] = []

    def start(self) -> Path:
        """One more; returns its control page, which it has by then."""
        run = subprocess.Popen(
            [*RUN, "--card", "0", "cat"], env=self.shell.environment, stdin=subprocess.PIPE
        )
        self._stack.callback(run.communicate)
        self._stack.callback(run.kill)
        self._living.append(run)
        while True:
            for path in self.shell.runtime.glob("aliquot/simulated/runs/*/run.json"):
                if f'"pid":{run.pid},' in path.read_text():
                    return path.with_name("control")
            os.sched_yield()

    def kill_who_leases(self) -> tuple[int, int]:
        """With its command; returns the instant before, and one at which it was dead."""
        (run,) = (one for one in self._living if [one.pid] == holders(self.shell))
        self._living.remove(run)
        begin = time.monotonic_ns()
        run.kill()
        run.communicate()
        return begin, time.monotonic_ns()


def until_leased(page: Path, since_ns: int, after_ns: int) -> float:
    """Waits for a heartbeat after an instant; milliseconds since another."""
    deadline_ns = time.monotonic_ns() + PATIENCE_NS
    while (beat := read_heartbeat(page)) <= after_ns:
        assert time.monotonic_ns() < deadline_ns, "nobody leases"
        time.sleep(0.001)
    return (beat - since_ns) / 1e6


def leases(shell: Shell) -> None:
    """A second run starts, the first, which leases, is killed, and so on."""
    begun, taken = [], []
    with ExitStack() as stack:
        runs = Runs(shell, stack)
        until_leased(runs.start(), 0, 0)
        for _ in range(TAKEOVERS):
            page, now = runs.start(), time.monotonic_ns()
            begun.append(until_leased(page, now, 0))
            taken.append(until_leased(page, *runs.kill_who_leases()))
    tell("from a run's pages to its first lease", begun, TAKEOVER_MS)
    tell("from the kill of the one that leases to another's lease", taken, TAKEOVER_MS)


def main() -> None:
    """Both, for a user with no runs."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as runtime:
        shell = Shell(Path(runtime))
        subprocess.run([*RUN, "true"], env=shell.environment, check=True)  # makes the simulated machine
        starts(shell)
        leases(shell)


if __name__ == "__main__":
    main()
