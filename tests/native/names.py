"""The names of the driver's functions: those we list, those we hook, and all that anybody here knows."""

import re
from pathlib import Path

import pynvml
from cuda import bindings

LIBSHIM = Path(__file__).resolve().parents[2] / "libshim"
LISTS = {"libcuda.so.1": "cuda.def", "libnvidia-ml.so.1": "nvml.def"}
PREFIX = {"libcuda.so.1": "cu", "libnvidia-ml.so.1": "nvml"}


def listed(soname: str) -> set[str]:
    """The committed list of what a library exports."""
    return set(
        re.findall(r"^AQ_FORWARD\((\w+)\)", (LIBSHIM / "forwarder" / LISTS[soname]).read_text(), re.MULTILINE)
    )


def hooked(soname: str) -> set[str]:
    """The rows of the hook table that belong to a library."""
    rows = "".join(path.read_text() for path in (LIBSHIM / "src" / "hooks").glob("*.def"))
    return {
        symbol
        for symbol in re.findall(r"^AQ_HOOK\((\w+)", rows, re.MULTILINE)
        if symbol.startswith(PREFIX[soname])
    }


def known() -> set[str]:
    """Every name that the simulated driver and NVIDIA's Python packages know."""
    simulated = (LIBSHIM.parent / "sandbox" / "driver" / "entries").glob("*.def")
    names = set(re.findall(r"ENTRY\(\w+, (cu\w+)", "".join(path.read_text() for path in simulated)))
    packaged = Path(bindings.__path__[0]) / "cydriver.pxd"
    names |= set(re.findall(r"^\s*cdef .*?\b(cu[A-Z]\w*)\s*\(", packaged.read_text(), re.MULTILINE))
    return names | nvml_names()


def nvml_names() -> set[str]:
    """What nvidia-ml-py looks up."""
    return set(re.findall(r'_nvmlGetFunctionPointer\(["\'](nvml\w+)["\']', Path(pynvml.__file__).read_text()))
