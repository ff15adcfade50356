"""Short ways to write pods, cards and nodes in the tests of placement."""

import msgspec
from prometheus_client import CollectorRegistry

from aliquot.crds.gpu_node import HEALTHY, UNHEALTHY, Card, GPUNodeStatus
from aliquot.kube.objects import Node
from aliquot.request.pod_request import ContainerKind, ContainerRequest, PodRequest, SliceRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.handlers.resize import PatchApi, Resizer
from aliquot.scheduler_ext.http.metrics import ExtenderMetrics
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.ledger import Ledger

GIB = 1024
"""In MiB."""

INIT, SIDECAR, REGULAR = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.REGULAR


def part(
    gib: float | None = None, cores: int = 0, cards: int = 1, percent: int | None = None
) -> SliceRequest:
    """A slice of `gib` GiB, or of a percentage, on each of some cards."""
    mib = None if gib is None else int(gib * GIB)
    return SliceRequest(cards, mib, percent, cores)


def whole(cards: int = 1) -> SliceRequest:
    """Cards of one's own."""
    return SliceRequest(cards, None, 100, 100, exclusive=True)


def asks(wanted: SliceRequest | None, kind: ContainerKind = REGULAR, name: str = "") -> ContainerRequest:
    """One container."""
    return ContainerRequest(name or f"{kind}", kind, wanted)


def pod(*containers: ContainerRequest | SliceRequest, uid: str = "uid-1", name: str = "pod") -> PodRequest:
    """A pod of these containers; a bare slice stands for a regular container."""
    numbered = [
        c if isinstance(c, ContainerRequest) else asks(c, name=f"c{n}") for n, c in enumerate(containers)
    ]
    return PodRequest("default", name, uid, tuple(numbered))


def state(uuid: str, gib: float = 16, used: float = 0, **more: int) -> CardState:
    """A card as placement sees it, in GiB."""
    return CardState(uuid=uuid, usable_mib=int(gib * GIB), used_mib=int(used * GIB), **more)


def card(uuid: str, gib: float = 16, reserve_mib: int = 0, healthy: bool = True, mig: bool = False) -> Card:
    """A card as the node's agent publishes it."""
    health = HEALTHY if healthy else UNHEALTHY
    return Card(uuid=uuid, memory_mib=int(gib * GIB), reserve_mib=reserve_mib, health=health, mig_enabled=mig)


def node(*cards: Card, slices: int = 10) -> GPUNodeStatus:
    """What an agent publishes of its node."""
    return GPUNodeStatus(slices_per_card=slices, cards=tuple(cards))


ROOM = {"cpu": "64", "memory": "256Gi", "aliquot.dev/gpu": "20"}
"""What a node offers its pods."""


def node_object(name: str, *, cordoned: bool = False, ready: str = "True", **more: str) -> Node:
    """A node as the watch shows it."""
    body = {
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": ROOM | more, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, Node)


def resizer(api: PatchApi, ledger: Ledger, quotas: Quotas | None = None) -> Resizer:
    """A resizer whose counters nobody reads."""
    return Resizer(api, ledger, ExtenderMetrics(CollectorRegistry(), ledger).resizes, quotas)


def unburdened(kept: Placer) -> Placer:
    """A placer of the same experience that has kept nothing of any node, with a table that has lent nothing yet."""
    table = kept._table.twin()
    fresh = Placer(table)
    fresh.demand, fresh._version = kept.demand, kept._version
    assert kept._waste
    fresh._waste = ClusterFragmentation(table, kept._waste.typical, tuple(kept.demand.asked()))
    fresh._waste.prices, fresh._waste.flow = kept._waste.prices, kept._waste.flow
    return fresh
