"""Builds the scoring of nodes (src/) and what Python sees of it."""

import re
from pathlib import Path

from cffi import FFI

SOURCES = Path(__file__).resolve().parent / "src"


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
ffibuilder.cdef(declarations(SOURCES / "scoring.h"))
ffibuilder.set_source(
    "aliquot.scheduler_ext.scoring._scoring",
    '#include "scoring.h"',
    sources=[f"scheduler_ext/scoring/src/{source.name}" for source in sorted(SOURCES.glob("*.c"))],
    depends=[f"scheduler_ext/scoring/src/{header.name}" for header in sorted(SOURCES.glob("*.h"))],
    include_dirs=["scheduler_ext/scoring/src"],
    # Sums without fused steps: the same on every machine, so that all replicas choose alike.
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-ffp-contract=off"],
    libraries=["m"],
)
