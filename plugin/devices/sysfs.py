"""Where cards and RDMA NICs hang on this machine, as Linux tells below /sys. What it does not tell is unknown."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aliquot.crds.gpu_node import Nic

MOST_NICS: Final = 64
"""As many as a GPUNode may list."""
_MOST_NAME: Final = 64
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_BUS_ID = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def pcie_root(sys_root: Path, bus_id: str) -> str:
    """The root complex above a device that NVML calls by this bus id; empty where that is not told."""
    found = _BUS_ID.fullmatch(bus_id.lower())
    if found is None:
        return ""
    name = f"{int(found['domain'], 16):04x}:{found['rest']}"
    return _root_of(sys_root / "bus" / "pci" / "devices" / name)


def rdma_nics(sys_root: Path) -> tuple[Nic, ...]:
    """The NICs that speak RDMA, by name; virtual functions are where their NIC is and not listed."""
    try:
        names = sorted(path.name for path in (sys_root / "class" / "infiniband").iterdir())
    except OSError:
        return ()
    return tuple(_read_all(sys_root / "class" / "infiniband", names))[:MOST_NICS]


def _read_all(directory: Path, names: list[str]) -> Iterator[Nic]:
    for name in names:
        device = directory / name / "device"
        if len(name) <= _MOST_NAME and device.exists() and not (device / "physfn").exists():
            yield Nic(name=name, numa_node=_numa_node(device), pcie_root=_root_of(device))


def _numa_node(device: Path) -> int:
    try:
        return max(-1, int((device / "numa_node").read_text()))
    except (OSError, ValueError):
        return -1


def _root_of(device: Path) -> str:
    """The first part of a device's real path that is a root complex."""
    try:
        parts = device.resolve(strict=True).parts
    except (OSError, RuntimeError):  # a ring of links is either, by Python's version
        return ""
    return next((part for part in parts if _ROOT.fullmatch(part)), "")
