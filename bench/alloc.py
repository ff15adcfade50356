"""What the interceptor adds to cuMemAlloc + cuMemFree, with 1 to 10,000 blocks live; on the simulated driver.

Prints one JSON object a line. Bare and guarded runs alternate, so that both see the same machine.
"""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from libshim.pages import CardLimit, Control, create_control, create_usage, library_path
from sandbox.gpus import SimCard, SimMachine

LIVE = (1, 100, 1_000, 10_000)
ROUNDS = 50_000
PROCESSES = 7
GIB = 1 << 30


def build(directory: Path) -> Path:
    """Compiles the measuring program."""
    program = directory / "alloc"
    source = Path(__file__).parent / "native" / "alloc.c"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, source, "-ldl"], check=True)
    return program


def environments(directory: Path) -> dict[str, dict[str, str]]:
    """The environment without and with the interceptor, on a card of 16 GiB of which the slice has 8."""
    machine = SimMachine(directory / "machine", [SimCard(memory_mib=16384)])
    machine.create()
    control, usage = directory / "control", directory / "usage"
    create_control(control, Control("bench/alloc/main", (CardLimit(machine.cards[0].uuid, 8 * GIB),)))
    create_usage(usage)
    bare = {**os.environ, **machine.env()}
    pages = {"ALIQUOT_CONTROL_PAGE": str(control), "ALIQUOT_USAGE_PAGE": str(usage)}
    return {"bare": bare, "guarded": {**bare, **pages, "LD_PRELOAD": str(library_path())}}


def measure(program: Path, environment: dict[str, str], live: int) -> float:
    """Median nanoseconds of one pair in one process."""
    command = [str(program), str(live), str(ROUNDS)]
    return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def report(name: str, value: float, unit: str) -> None:
    """Prints one figure."""
    print(json.dumps({"name": name, "value": round(value, 2), "unit": unit, "better": "lower"}), flush=True)


def main() -> None:
    """Measures every number of live blocks and prints the figures."""
    added = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        program, kinds = build(directory), environments(directory)
        for live in LIVE:
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(PROCESSES):
                for kind, environment in kinds.items():
                    times[kind].append(measure(program, environment, live))
            bare, guarded = (statistics.median(times[kind]) for kind in kinds)
            added[live] = guarded - bare
            report(f"alloc_free.bare.{live}_live", bare, "ns")
            report(f"alloc_free.guarded.{live}_live", guarded, "ns")
            report(f"alloc_free.added.{live}_live", added[live], "ns")
    report("alloc_free.added.10000_to_1", added[10_000] / added[1], "ratio")


if __name__ == "__main__":
    main()
