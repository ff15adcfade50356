"""The part of sysfs that tells where a pretend machine's cards and network cards hang: links and small files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NO_ROOT = "pci0000:00"
"""The root complex of what is said to have none."""


@dataclass(frozen=True)
class PciPlace:
    """A device of the bus: its id as NVML writes it, what is above it, and its NUMA node (-1: none)."""

    bus_id: str
    path: str = ""
    numa_node: int = -1


@dataclass(frozen=True)
class SimNic:
    """A network card that speaks RDMA; `physical` names the one that a virtual function belongs to."""

    name: str
    place: PciPlace
    physical: str = ""


def write_sysfs(root: Path, cards: Sequence[PciPlace], nics: Sequence[SimNic]) -> None:
    """Write the tree below what stands for /sys."""
    for place in (*cards, *(nic.place for nic in nics)):
        _write_device(root, place)
    for nic in nics:
        device = root / "bus" / "pci" / "devices" / _name(nic.place)
        _link(root / "class" / "infiniband" / nic.name / "device", device)
        for physical in (one for one in nics if one.name == nic.physical):
            _link(device / "physfn", root / "bus" / "pci" / "devices" / _name(physical.place))


def _name(place: PciPlace) -> str:
    """A bus id as sysfs writes it: four digits of the domain, and no capitals."""
    domain, _, rest = place.bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _write_device(root: Path, place: PciPlace) -> None:
    device = root / "devices" / (place.path or NO_ROOT) / _name(place)
    device.mkdir(parents=True, exist_ok=True)
    (device / "numa_node").write_text(f"{place.numa_node}\n")
    _link(root / "bus" / "pci" / "devices" / _name(place), device)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent.resolve()))
