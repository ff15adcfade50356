"""`kubelet_internal_checkpoint`: which container holds which devices, in the real kubelet's JSON shape."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from aliquot.sandbox.cluster.objects import Obj

FILE_NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Allocation:
    """Devices of one resource that one container holds. `devices`: NUMA node (-1: none) → ids."""

    pod_uid: str
    container: str
    resource: str
    devices: dict[int, list[str]]
    response: bytes  # serialised ContainerAllocateResponse

    @property
    def ids(self) -> list[str]:
        """All ids, whatever their NUMA node."""
        return [device for ids in self.devices.values() for device in ids]


@dataclass
class Checkpoint:
    """All allocations, and the ids each resource last had."""

    allocations: list[Allocation] = field(default_factory=list)
    registered: dict[str, list[str]] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write the file (temporary file and rename)."""
        data: Obj = {
            "PodDeviceEntries": [_entry(allocation) for allocation in self.allocations],
            "RegisteredDevices": self.registered,
        }
        checksum = zlib.crc32(json.dumps(data).encode())
        temporary = directory / f".{FILE_NAME}.tmp"
        temporary.write_text(json.dumps({"Data": data, "Checksum": checksum}))
        temporary.replace(directory / FILE_NAME)

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Read the file; empty when there is none."""
        path = directory / FILE_NAME
        if not path.exists():
            return cls()
        data = json.loads(path.read_text())["Data"]
        allocations = [_allocation(entry) for entry in data["PodDeviceEntries"] or ()]
        return cls(allocations, data["RegisteredDevices"] or {})


def _entry(allocation: Allocation) -> Obj:
    return {
        "PodUID": allocation.pod_uid,
        "ContainerName": allocation.container,
        "ResourceName": allocation.resource,
        "DeviceIDs": {str(node): ids for node, ids in allocation.devices.items()},
        "AllocResp": base64.b64encode(allocation.response).decode(),
    }


def _allocation(entry: Obj) -> Allocation:
    return Allocation(
        entry["PodUID"],
        entry["ContainerName"],
        entry["ResourceName"],
        {int(node): list(ids) for node, ids in entry["DeviceIDs"].items()},
        base64.b64decode(entry["AllocResp"]),
    )
