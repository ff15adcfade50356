"""What pods take of their node's CPU and memory, and of the slices that its kubelet has to give.

kube-scheduler sees to it that CPU and memory fit; placement wants to know because a free card is of no use on a node
whose CPU is gone. Slices are the extender's to count. All are read by Kubernetes' rule: each plain init container
beside the sidecars started before it, then all others together; a container's limit stands in where it requests
nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from aliquot.api.names import DEFAULT_NAMES
from aliquot.units import MIB, Quantity, QuantityError, parse_quantity


class HostShare(msgspec.Struct, frozen=True, gc=False):
    """CPU in thousandths of a core, memory in MiB, device ids of slices; rounded up."""

    cpu_milli: int = 0
    memory_mib: int = 0
    slices: int = 0

    def __add__(self, other: "HostShare") -> "HostShare":
        """The share of two that run at the same time."""
        return HostShare(
            self.cpu_milli + other.cpu_milli,
            self.memory_mib + other.memory_mib,
            self.slices + other.slices,
        )

    def __sub__(self, other: "HostShare") -> "HostShare":
        """What is left without another share."""
        return HostShare(
            self.cpu_milli - other.cpu_milli,
            self.memory_mib - other.memory_mib,
            self.slices - other.slices,
        )

    def __or__(self, other: "HostShare") -> "HostShare":
        """The share of two that never run at the same time."""
        return HostShare(
            max(self.cpu_milli, other.cpu_milli),
            max(self.memory_mib, other.memory_mib),
            max(self.slices, other.slices),
        )


NO_HOST: Final = HostShare()


class _Resources(Protocol):
    @property
    def limits(self) -> dict[str, Quantity]: ...
    @property
    def requests(self) -> dict[str, Quantity]: ...


class _Container(Protocol):
    @property
    def resources(self) -> _Resources: ...
    @property
    def restart_policy(self) -> str: ...


class _Spec(Protocol):
    @property
    def containers(self) -> Sequence[_Container]: ...
    @property
    def init_containers(self) -> Sequence[_Container]: ...


def host_share(spec: _Spec, slices: str = DEFAULT_NAMES.gpu) -> HostShare:
    """What a pod of this spec takes at its peak; a quantity that cannot be read counts as nothing.

    `slices` is the resource by which the kubelet counts device ids.
    """
    if len(spec.containers) == 1 and not spec.init_containers:
        return _share(spec.containers[0].resources, slices)
    lasting = peak = NO_HOST
    for container in spec.init_containers:
        share = _share(container.resources, slices)
        if container.restart_policy == "Always":
            lasting += share
        else:
            peak |= lasting + share
    for container in spec.containers:
        lasting += _share(container.resources, slices)
    return peak | lasting


def read_host(resources: dict[str, Quantity], slices: str = DEFAULT_NAMES.gpu) -> HostShare:
    """CPU, memory and slices of a list of resources, such as a node's allocatable ones."""
    return _host(resources.get("cpu", 0), resources.get("memory", 0), resources.get(slices, 0))


def _share(resources: _Resources, slices: str) -> HostShare:
    limits, requests = resources.limits, resources.requests
    return _host(
        requests.get("cpu", limits.get("cpu", 0)),
        requests.get("memory", limits.get("memory", 0)),
        requests.get(slices, limits.get(slices, 0)),
    )


@lru_cache(maxsize=4096)
def _host(cpu: Quantity, memory: Quantity, slices: Quantity) -> HostShare:
    """One object for all that write the same; of thousands of pods most are of few classes."""
    return HostShare(_amount(cpu, 1, 1000), _amount(memory, MIB, 1), _amount(slices, 1, 1))


def _amount(quantity: Quantity, unit: int, times: int) -> int:
    """A quantity in units, rounded up."""
    try:
        return -(-parse_quantity(quantity) * times // unit)
    except QuantityError:
        return 0
