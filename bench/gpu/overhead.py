"""What a slice costs a program on a real card, in percent of a step.

Without the interceptor, with a memory limit, and with a core limit that is not reached.

    python bench/gpu/overhead.py            ALIQUOT_GPU_PYTHON names a Python that has PyTorch
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pynvml

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import library_path
from aliquot.libshim.usage_page import create_usage

PROGRAM = Path(__file__).with_name("torch_steps.py")
PYTHON = os.environ.get("ALIQUOT_GPU_PYTHON", sys.executable)
REPEATS = 5
BOUND_PERCENT = 1.0


def pages(directory: Path, uuid: str, core_percent: int) -> dict[str, str]:
    """The environment of a tenant with this share."""
    directory.mkdir()
    limit = CardLimit(uuid, 16 << 30, core_percent)
    create_control(directory / "control", Control("bench/gpu", (limit,)))
    create_usage(directory / "usage")
    return {
        "LD_PRELOAD": str(library_path()),
        "ALIQUOT_CONTROL_PAGE": str(directory / "control"),
        "ALIQUOT_USAGE_PAGE": str(directory / "usage"),
    }


def seconds(what: str, environment: Mapping[str, str]) -> float:
    """A step of `what`."""
    command = [PYTHON, PROGRAM, what]
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


def main() -> None:
    """Prints one JSON object a figure."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    card = {"card": pynvml.nvmlDeviceGetName(handle), "driver": pynvml.nvmlSystemGetDriverVersion()}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        cases = {
            "bare": {},
            "memory limit": pages(root / "memory", uuid, 0),
            "core limit": pages(root / "core", uuid, 99),
        }
        for what in ("train", "small"):
            figures: dict[str, list[float]] = {name: [] for name in cases}
            for _ in range(REPEATS):  # in turn, so that a change of clocks is nobody's alone
                for name, environment in cases.items():
                    figures[name].append(seconds(what, environment))
            bare = statistics.median(figures["bare"])
            for name in ("memory limit", "core limit"):
                percent = 100 * (statistics.median(figures[name]) / bare - 1)
                row = {"name": f"gpu.{what}.{name}", "value": round(percent, 2), "unit": "percent"}
                print(json.dumps({**row, "bound": BOUND_PERCENT, "step_s": bare, **card}), flush=True)


if __name__ == "__main__":
    main()
