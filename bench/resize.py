"""How long it takes from an ask to its effect: a pod's annotation, and `aliquot resize`, to the control page.

Prints one JSON object a line: what, how many, and the times in milliseconds. Effect is the moment at which the control
page has the new limit; the process follows at its next call.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from aliquot.cli.demo.stack import Stack
from aliquot.libshim.control_page import read_control
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.pods import plain
from tests.integration.journey.stacks import one_node

ROUNDS = 200
GIB = 1 << 30
DEADLINE_NS = 30 * 10**9


def until(condition: Callable[[], bool]) -> float:
    """Waits for a condition without a pause; milliseconds."""
    begin = time.monotonic_ns()
    while not condition():
        assert time.monotonic_ns() - begin < DEADLINE_NS, "no effect"
    return (time.monotonic_ns() - begin) / 1e6


def tell(what: str, times_ms: list[float]) -> None:
    """Prints one line."""
    ordered = sorted(times_ms)
    figures = {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 1) for p in (50, 99)}
    print(json.dumps({"what": what, "rounds": len(times_ms), **{f"{k}_ms": v for k, v in figures.items()}}))


def limit_of(control: Path) -> int:
    """GiB in force."""
    return read_control(control).cards[0].memory_bytes // GIB


def annotations(stack: Stack) -> list[float]:
    """A running pod is asked to grow and shrink."""
    (node,) = stack.nodes.values()
    stack.kubectl.apply(plain("measured", mem="2Gi"))
    uid = stack.kubectl.wait_phase("measured", "Running")["metadata"]["uid"]
    control, times = node.tenants / uid / "main" / "control", []
    for number in range(ROUNDS):
        wanted = 4 + number % 2 * 4
        begin = time.monotonic_ns()
        asked = {"aliquot.dev/resize-gpu-mem": f"{wanted}Gi"}
        stack.kubectl.patch("pods", "measured", {"metadata": {"annotations": asked}})
        until(lambda wanted=wanted: limit_of(control) == wanted)
        times.append((time.monotonic_ns() - begin) / 1e6)
    return times


def commands(runtime: Path) -> list[float]:
    """A run is resized by the command, its start included."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    aliquot = [sys.executable, "-m", "aliquot.cli"]
    run = subprocess.Popen([*aliquot, "run", "--simulate", "--mem", "2Gi", "sleep", "1000"], env=environment)
    until(lambda: bool(list(runtime.glob("aliquot/simulated/runs/*/run.json"))))
    (control,) = runtime.glob("aliquot/simulated/runs/*/control")
    times = []
    for number in range(ROUNDS // 4):
        wanted = 4 + number % 2 * 4
        begin = time.monotonic_ns()
        command = subprocess.Popen(
            [*aliquot, "resize", "--simulate", str(run.pid), "--mem", f"{wanted}Gi"],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        until(lambda wanted=wanted: limit_of(control) == wanted)
        times.append((time.monotonic_ns() - begin) / 1e6)
        command.wait()
    run.terminate()
    run.wait()
    return times


def main() -> None:
    """Measures both."""
    with one_node((SimCard(),)) as stack:
        stack.start()
        tell("annotation to control page", annotations(stack))
    with tempfile.TemporaryDirectory() as directory:
        tell("aliquot resize to control page", commands(Path(directory)))


if __name__ == "__main__":
    main()
