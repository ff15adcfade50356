"""Asks the extender's parts why a pod waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.kube.listing import Listing
from aliquot.kube.objects import Node
from aliquot.kube.resources import NODES
from aliquot.scheduler_ext.explain.why import Why
from aliquot.scheduler_ext.state.node_constraints import Tenant
from tests.unit.scheduler_ext.clusters import Cluster, pod_document, read
from tests.unit.scheduler_ext.placing import GIB
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from aliquot.api.why import Answer
    from aliquot.kube.objects import Pod
    from aliquot.kube.resources import Resource


class Reader(World):
    """An API server that lists the tenants of a node."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster

    async def list(
        self, resource: Resource[Any], _namespace: str = "", /, *, field_selector: str = ""
    ) -> Listing[Any]:
        """One node, or the pods on it."""
        name = field_selector.partition("=")[2]
        if resource is NODES:
            return Listing("1", (msgspec.convert({"metadata": {"name": name}}, Node),))
        ledger, settled = self.cluster.ledger, self.cluster.settled
        there = [settled[entry.uid] for entry in ledger.on(name) if entry.uid in settled]
        return Listing("1", tuple(msgspec.convert(msgspec.to_builtins(pod), Tenant) for pod in there))


def ask(cluster: Cluster, pod: Pod | dict[str, Any], **stored: Any) -> Answer:
    """Why this pod waits, which the API server has."""
    made = pod if not isinstance(pod, dict) else read(pod)
    world = Reader(cluster)
    world.pods[made.metadata.name] = WorldPod(made, annotations=dict(made.metadata.annotations), **stored)
    why = Why(world, cluster.filter, cluster.known)
    return asyncio.run(why.answer(made.metadata.namespace, made.metadata.name))


def cards(name: str, count: int, gib: int = 16, model: str = "NVIDIA H200") -> GPUNodeStatus:
    """A node of equal cards."""
    return GPUNodeStatus(
        cards=tuple(Card(uuid=f"{name}-{n}", model=model, memory_mib=gib * GIB) for n in range(count))
    )


def foreign(
    limits: dict[str, str], scheduler: str = "default-scheduler", **annotations: str
) -> dict[str, Any]:
    """A pod with limits in other projects' names, as the API server stores it."""
    made = pod_document([{}])
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    made["spec"]["schedulerName"] = scheduler
    made["metadata"]["annotations"] = annotations
    return made
