"""Builds the arbiter (src/) and what Python sees of it."""

import re
from pathlib import Path

from cffi import FFI

SOURCES = Path(__file__).resolve().parent / "src"
HEADERS = ("scheduler.h", "arbiter.h")


def declarations(header: Path) -> str:
    """Returns the part of a header between its cdef markers.

    Raises:
        ValueError: the markers are missing.
    """
    found = re.search(r"/\* cdef: begin \*/(.*?)/\* cdef: end \*/", header.read_text(), re.DOTALL)
    if found is None:
        message = f"{header}: no cdef markers"
        raise ValueError(message)
    return found.group(1)


ffibuilder = FFI()
for name in HEADERS:
    ffibuilder.cdef(declarations(SOURCES / name))
ffibuilder.set_source(
    "aliquot.arbiter._arbiter",
    '#include "arbiter.h"',
    sources=[f"arbiter/src/{source.name}" for source in sorted(SOURCES.glob("*.c"))],
    depends=[f"arbiter/src/{header.name}" for header in sorted(SOURCES.glob("*.h"))],
    include_dirs=["arbiter/src", "libshim/include"],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden"],
    libraries=["m"],
)
