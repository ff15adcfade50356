"""What a node has: the GPUNode object that every node agent writes and the extender reads.

One cluster-scoped object a node, of the node's name; the agent owns its status. The schema that the API
server enforces is `deploy/crds/gpunodes.yaml`.
"""

import sys
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from aliquot.api.names import API_GROUP, API_VERSION
from aliquot.kube.objects import KubeObject, KubeStruct

KIND: Final = "GPUNode"
PLURAL: Final = "gpunodes"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
NonNegative = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""As the schema has it: so large that no machine reaches it, so small that all of a cluster fits 64 bits in bytes."""
NumaNode = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class MigInstance(KubeStruct, frozen=True, kw_only=True):
    """A MIG instance that exists on a card; `gi` and `ci` are NVML's instance ids."""

    uuid: str
    profile: str
    memory_mib: NonNegative = msgspec.field(name="memoryMiB")
    gi: NonNegative = 0
    ci: NonNegative = 0


class Nic(KubeStruct, frozen=True, kw_only=True):
    """A network card that speaks RDMA; `numa_node` is -1 and `pcie_root` empty where the machine does not say."""

    name: str
    numa_node: NumaNode = -1
    pcie_root: str = ""


class Card(KubeStruct, frozen=True, kw_only=True, gc=False):
    """A physical card.

    Memory is in MiB; `reserve_mib` of it is never given away; `cores` is percent of compute.
    `numa_node` is -1 and `pcie_root` empty where the machine does not say. `reason` tells why a card is unhealthy.
    `links` has a word for each card that is listed before this one, as `aliquot.api.links` spells them.
    """

    uuid: str
    index: NonNegative = 0
    model: str = ""
    memory_mib: NonNegative = msgspec.field(name="memoryMiB")
    reserve_mib: NonNegative = msgspec.field(default=0, name="reserveMiB")
    cores: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    numa_node: NumaNode = -1
    bus_id: str = ""
    pcie_root: str = ""
    links: str = ""
    health: str = HEALTHY
    reason: str = ""
    mig_enabled: bool = False
    mig: tuple[MigInstance, ...] = ()

    def __post_init__(self) -> None:
        # Placements name the card by the same text, and tens of thousands of cards are of few models.
        msgspec.structs.force_setattr(self, "uuid", sys.intern(self.uuid))
        msgspec.structs.force_setattr(self, "model", sys.intern(self.model))
        msgspec.structs.force_setattr(self, "health", sys.intern(self.health))
        msgspec.structs.force_setattr(self, "memory_mib", _same(self.memory_mib))

    @property
    def usable_mib(self) -> int:
        """Memory that slices may take together."""
        return max(0, self.memory_mib - self.reserve_mib)

    @property
    def healthy(self) -> bool:
        """Whether new tenants may be put on it."""
        return self.health == HEALTHY


@lru_cache(maxsize=256)
def _same(mib: int) -> int:
    """One object for all cards that have as much."""
    return mib


class Summary(KubeStruct, frozen=True, kw_only=True):
    """What the cards of a node hold together: for people and `kubectl get gpunodes`; no decision is made by it.

    Amounts are Kubernetes quantities. `memory` is what slices may have in all, `promised` what placements take of it,
    `free` what a guaranteed slice could still get on healthy cards, `largest_free_slice` the same of one card.
    `healthy` is written `7/8`.
    """

    cards: int = 0
    healthy: str = "0/0"
    memory: str = "0"
    promised: str = "0"
    free: str = "0"
    largest_free_slice: str = "0"


class GPUNodeStatus(KubeStruct, frozen=True, kw_only=True):
    """What the agent says of its node; older agents write no summary."""

    slices_per_card: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    cards: tuple[Card, ...] = ()
    nics: tuple[Nic, ...] = ()
    summary: Summary | None = None


class GPUNode(KubeObject, frozen=True, kw_only=True):
    """One node's cards."""

    api_version: str = f"{API_GROUP}/{API_VERSION}"
    kind: str = KIND
    status: GPUNodeStatus = GPUNodeStatus()
