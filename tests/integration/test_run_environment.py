"""Limits that the environment asks for: `aliquot run` keeps them or does not start the command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.shells import ALIQUOT, Shell

SIZE = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
print(driver.cuMemGetInfo()[2] >> 20)
"""

KEPT = [
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2g"}, [], "2Gi of memory, uncapped"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_SM_LIMIT": "30"}, [], "2Gi of memory, 30 % of its time"),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "4g", "CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"},
        [],
        "1Gi of memory, uncapped",
    ),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2g"}, ["--core", "20"], "2Gi of memory, 20 % of its time"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2g"}, ["--mem", "2Gi"], "2Gi of memory, uncapped"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_SM_LIMIT": "100"}, [], "2Gi of memory, uncapped"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2G"}, [], "2Gi of memory, uncapped"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2000000000"}, ["--mem", "2G"], "(2G is decimal, unlike 2Gi), uncapped"),
    ({"CUDA_DEVICE_MEMORY_LIMIT": "0"}, ["--mem", "3Gi"], "3Gi of memory, uncapped"),
]

REFUSED = [
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "2Gi"},
        [],
        "CUDA_DEVICE_MEMORY_LIMIT=2Gi is no size; write bytes or a number",
    ),
    ({"CUDA_DEVICE_SM_LIMIT": "30%"}, ["--mem", "2Gi"], "CUDA_DEVICE_SM_LIMIT=30% is no percentage"),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "1g"},
        ["--mem", "2Gi"],
        "CUDA_DEVICE_MEMORY_LIMIT asks for 1Gi and --mem for 2Gi",
    ),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "2G"},
        ["--mem", "2G"],
        "CUDA_DEVICE_MEMORY_LIMIT asks for 2Gi and --mem for 1908Mi (2G is decimal, unlike 2Gi); unset",
    ),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT": "2g"},
        ["--mem", "50%"],
        "CUDA_DEVICE_MEMORY_LIMIT asks for 2Gi and --mem for 50 % of the card; unset it, or leave --mem out",
    ),
    (
        {"CUDA_DEVICE_SM_LIMIT": "10"},
        ["--core", "30"],
        "CUDA_DEVICE_SM_LIMIT asks for 10 % and --core for 30 %; unset it, or leave --core out",
    ),
    (
        {"CUDA_DEVICE_MEMORY_LIMIT_1": "1g"},
        ["--core", "30"],
        "CUDA_DEVICE_MEMORY_LIMIT_1 names no card of the command, which has one, CUDA device 0; write CUDA_DEVICE_",
    ),
    ({"CUDA_DEVICE_SM_LIMITS": "30"}, ["--mem", "2Gi"], "CUDA_DEVICE_SM_LIMITS names no card of the command"),
]


@pytest.mark.parametrize(("variables", "options", "words"), KEPT, ids=[repr(row[:2]) for row in KEPT])
def test_limits_of_the_environment_are_those_of_the_run(
    shell: Shell, variables: dict[str, str], options: list[str], words: str
):
    """What is not said on the command line is taken from HAMi-core's variables."""
    shell.environment |= variables
    done = shell.aliquot("run", "--simulate", *options, "--", "true")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(f"{words}\n")


@pytest.mark.parametrize(("variables", "options", "words"), REFUSED, ids=[repr(row[:2]) for row in REFUSED])
def test_a_limit_that_cannot_be_kept_starts_nothing(
    shell: Shell, variables: dict[str, str], options: list[str], words: str
):
    """A limit that was meant and misspelt must not become no limit, nor another one."""
    shell.environment |= variables
    done = shell.aliquot("run", "--simulate", *options, "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_printed_path_of_the_library_gives_the_limit(shell: Shell):
    """The documented line, typed in a directory that has no library: the program sees 2048 MiB of 16384."""
    shell.environment["ALIQUOT"] = " ".join(ALIQUOT)
    shell.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(shell.runtime / "usage")
    script = (
        "library=$($ALIQUOT run --print-library) && "
        f'LD_PRELOAD=$library CUDA_DEVICE_MEMORY_LIMIT=2g "{sys.executable}" -c "$SIZE"'
    )
    shell.aliquot("cards", "--simulate")
    root = shell.runtime / "aliquot/simulated/machine"
    simulated = {"SIMGPU_DIR": str(root), "LD_LIBRARY_PATH": str(root / "driver"), "SIZE": SIZE}
    done = subprocess.run(
        ["sh", "-c", script],
        env={**shell.environment, **simulated, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=shell.runtime,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("2048\n", "")
