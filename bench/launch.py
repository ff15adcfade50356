"""What a launch costs with and without the interceptor, on the simulated driver.

Read the added nanoseconds, not the ratios: a real driver's own launch takes microseconds. `capped` is a tenant with a
core limit that it does not reach, so every launch is measured and none waits.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from libshim.pages import CardLimit, Control, create_control, create_usage, library_path
from sandbox.gpus import SimCard, SimMachine

HERE = Path(__file__).resolve().parent
KERNEL = HERE.parent / "sandbox" / "kernels" / "spin.ptx"
BATCH, ROUNDS, REPEATS = 200, 200, 9


def pages(directory: Path, uuid: str, core_percent: int) -> dict[str, str]:
    """The environment of a tenant with this share."""
    directory.mkdir()
    limit = CardLimit(uuid, 1 << 30, core_percent)
    create_control(directory / "control", Control("bench/launch", (limit,)))
    create_usage(directory / "usage")
    return {
        "LD_PRELOAD": str(library_path()),
        "ALIQUOT_CONTROL_PAGE": str(directory / "control"),
        "ALIQUOT_USAGE_PAGE": str(directory / "usage"),
    }


def launch_ns(program: Path, environment: Mapping[str, str]) -> float:
    """Nanoseconds a launch, of one process."""
    command = [program, KERNEL, str(BATCH), str(ROUNDS)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


def main() -> None:
    """Prints one JSON object a figure: the median of several processes."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        machine = SimMachine(root / "machine", [SimCard()])
        machine.create()
        program = root / "launch"
        subprocess.run(["cc", "-O2", "-w", "-o", program, HERE / "launch.c", "-ldl"], check=True)
        uuid = machine.cards[0].uuid
        cases = {
            "bare": {},
            "no_slice": {"LD_PRELOAD": str(library_path())},
            "uncapped": pages(root / "uncapped", uuid, 0),
            "capped": pages(root / "capped", uuid, 99),
        }
        figures: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(REPEATS):  # in turn, so that a busy moment of this machine is nobody's alone
            for name, extra in cases.items():
                figures[name].append(launch_ns(program, {**machine.env(), **extra}))
    for name, values in figures.items():
        value = round(statistics.median(values), 1)
        print(json.dumps({"name": f"launch.{name}", "value": value, "unit": "ns", "better": "lower"}))


if __name__ == "__main__":
    main()
