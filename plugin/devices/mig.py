"""MIG instances that exist on a card, and the device nodes that open them.

An instance is known by its UUID: its GPU-instance and compute-instance numbers are used again after it is
destroyed. To use one, a process needs the parent's device node and the two capability nodes of the
instance, whose minors the driver lists in `<proc>/driver/nvidia-caps/mig-minors` (`gpu0/gi1/access 12`,
`gpu0/gi1/ci0/access 13`).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aliquot.crds.gpu_node import MigInstance

MIB = 1 << 20
PROFILE_IN_NAME = re.compile(r"\bMIG (\S+)$")
MINOR_LINE = re.compile(r"^(?P<name>\S+) (?P<minor>\d+)$")


class MigError(Exception):
    """An instance cannot be handed out; names it and what is missing."""


def read_instances(nvml: Any, parent: Any) -> tuple[MigInstance, ...]:
    """The instances of a card by MIG index. NVML's errors are the caller's."""
    return tuple(read_instance(nvml, handle) for handle in instance_handles(nvml, parent))


def instance_handles(nvml: Any, parent: Any) -> Iterator[Any]:
    """The handles of the instances that exist; the driver's indexes have holes."""
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
            continue


def read_instance(nvml: Any, handle: Any) -> MigInstance:
    """One compute instance, with the memory it really has: a profile's name only rounds it."""
    return MigInstance(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        profile=profile_of(nvml, handle),
        memory_mib=int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB,
        gi=int(nvml.nvmlDeviceGetGpuInstanceId(handle)),
        ci=int(nvml.nvmlDeviceGetComputeInstanceId(handle)),
    )


def profile_of(nvml: Any, handle: Any) -> str:
    """The profile: the last word of the instance's name, else put together from its attributes."""
    named = PROFILE_IN_NAME.search(nvml.nvmlDeviceGetName(handle))
    if named:
        return named[1]
    attributes = nvml.nvmlDeviceGetAttributes(handle)
    slices, computes = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = "" if slices == computes else f"{computes}c."
    return f"{part}{slices}g.{round(attributes.memorySizeMB / 1024)}gb"


def read_minors(proc_root: Path) -> dict[str, int]:
    """Capability (`gpu0/gi1/access`) to the minor of its node. Raises MigError where the file is missing."""
    path = proc_root / "driver" / "nvidia-caps" / "mig-minors"
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise MigError(f"cannot read {path}: {error.strerror}") from error
    return {found["name"]: int(found["minor"]) for line in lines if (found := MINOR_LINE.match(line.strip()))}


def capability_nodes(minors: Mapping[str, int], parent_minor: int, instance: MigInstance) -> tuple[str, str]:
    """Names below /dev of an instance's two capability nodes. Raises MigError where the driver lists none."""
    gi = f"gpu{parent_minor}/gi{instance.gi}"
    nodes = []
    for name in (f"{gi}/access", f"{gi}/ci{instance.ci}/access"):
        if name not in minors:
            raise MigError(f"MIG instance {instance.uuid}: the driver lists no capability {name}")
        nodes.append(f"nvidia-caps/nvidia-cap{minors[name]}")
    return nodes[0], nodes[1]
