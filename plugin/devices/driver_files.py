"""The driver's files on this host: what a container needs of them to use a card.

A driver's libraries must be those of the kernel module that is loaded, so containers are given the host's:
the ones that CUDA programs open (compute), those that watch cards (utility), and nothing for graphics.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aliquot.api.names import LIBRARY_DIR
from aliquot.plugin.devices.driver_root import NVML, DriverRoot

TRIPLET = f"{os.uname().machine}-linux-gnu"
CONTAINER_LIB_DIR = Path("/usr/lib") / TRIPLET
CONTAINER_BIN_DIR = Path("/usr/bin")
LIB_DIRS = (".", f"usr/lib/{TRIPLET}", "usr/lib64", "usr/lib", "lib64", f"lib/{TRIPLET}")
BIN_DIRS = ("usr/bin", "usr/local/bin", "bin")
LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so.*",
    "libnvidia-opencl.so.1",
    "libnvidia-cfg.so.1",
    "libnvidia-pkcs11.so.*",
    "libnvidia-pkcs11-openssl3.so.*",
    "libcudadebugger.so.1",
    "libnvcuvid.so.1",
    "libnvidia-encode.so.1",
    "libnvidia-opticalflow.so.1",
)
BINARIES = ("nvidia-smi",)
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


@dataclass(frozen=True)
class DriverFile:
    """One file of the driver: where it is on the host (no link) and where a container looks for it."""

    host: Path
    container: Path

    @property
    def names(self) -> tuple[Path, ...]:
        """Every path by which a container reaches a library: its soname, and the name with the driver's version."""
        return tuple(dict.fromkeys((self.container, self.container.with_name(self.host.name))))

    @property
    def behind(self) -> Path:
        """Where a library lies while a forwarder has its names: the name that the forwarder is linked to."""
        return Path(LIBRARY_DIR, self.container.name.replace(".so", "-real.so", 1))


class DriverFilesError(Exception):
    """The driver's main library is not below the directory it was said to be in."""


def find_driver_files(tree: DriverRoot) -> tuple[DriverFile, ...]:
    """Every file of the driver below a root that a container is to be given.

    Looked for anew each time, since a driver may be upgraded while the agent runs. Raises DriverFilesError.
    """
    libraries = tuple(
        found for pattern in LIBRARIES for found in find(tree, LIB_DIRS, pattern, CONTAINER_LIB_DIR)
    )
    if not any(file.container.name == LIBRARIES[0] for file in libraries):
        raise DriverFilesError(f"no {LIBRARIES[0]} below {tree.seen} (looked in {', '.join(LIB_DIRS)})")
    programs = (found for name in BINARIES for found in find(tree, BIN_DIRS, name, CONTAINER_BIN_DIR))
    return (*libraries, *programs)


def find(tree: DriverRoot, places: Iterable[str], pattern: str, container: Path) -> Iterator[DriverFile]:
    """The files that match, from the first directory that has any, each by the name that programs open."""
    for place in places:
        found = [DriverFile(host, container / name) for name, host in tree.glob(place, pattern)]
        if found:
            yield from found
            return


def nvml_files(tree: DriverRoot) -> Iterator[Path]:
    """Where this process sees NVML."""
    return (tree.visible(found.host) for found in find(tree, LIB_DIRS, NVML, CONTAINER_LIB_DIR))
