"""How late this machine wakes sleeping threads. Shares of time measured beside late wake-ups say nothing."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "native" / "wakes.c"
QUIET_US = 2000.0
"""The 99th percentile of delays, in microseconds, up to which a machine counts as quiet."""


def compile_program(target: Path, *arguments: object) -> Path:
    """Compiles a C program of this directory's neighbours; returns the target."""
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(target)]
    subprocess.run([*command, *map(str, arguments), "-lpthread"], check=True)
    return target


@contextmanager
def watched(program: Path) -> Iterator[list[float]]:
    """Measures wake-ups meanwhile; their 99th percentile, in microseconds, is in the list afterwards.

    Args:
        program: The compiled `SOURCE`.
    """
    found: list[float] = []
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield found
        finally:
            output, _ = process.communicate()  # it ends with its input
            found.append(float(output))
