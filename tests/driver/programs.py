"""The C programs of this folder, compiled. They live as long as the test run."""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}")


@cache
def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="aliquot-driver-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def compile_c(target: Path, sources: Sequence[Path], *options: str | Path) -> Path:
    """Compiles a program; libraries and linker options come behind the sources."""
    subprocess.run(["cc", *_FLAGS, "-o", target, *sources, *options], check=True)
    return target


@cache
def program(name: str, *others: str) -> Path:
    """<name>.c with other files of this folder."""
    sources = [SOURCES / f"{source}.c" for source in (name, *others)]
    return compile_c(_directory() / name, sources, "-ldl")


@cache
def plugin(library: Path) -> Path:
    """lookups_plugin.c, linked to a library of the driver's."""
    target = _directory() / f"{library.name}-plugin.so"
    return compile_c(
        target, [SOURCES / "lookups_plugin.c"], "-shared", "-fPIC", "-Wl,--no-as-needed", library, "-ldl"
    )
