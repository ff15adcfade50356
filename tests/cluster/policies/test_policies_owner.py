"""What an agent publishes belongs to its Node, in the eyes of Kubernetes' own garbage collector."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.kube.api import Api
from aliquot.plugin.cluster.gpu_node import GpuNodePublisher
from aliquot.plugin.cluster.node_summary import NodeSummary
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.plugin.util.latest_value import LatestValue
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.manifests import TEAM
from tests.cluster.policies.world import World

pytestmark = pytest.mark.cluster

PATIENCE_S = 180.0
NODE, GPU_NODES = "aliquot-trial-node-c", "gpunodes.aliquot.dev"
STATUS = GPUNodeStatus(cards=(Card(uuid="GPU-c", memory_mib=16384),))


@contextmanager
def publisher(kubeconfig: Path, cache: Path) -> Iterator[None]:
    """The part of an agent that publishes, with the rights of one."""

    async def publish() -> None:
        async with Api.from_kubeconfig(kubeconfig) as api, asyncio.TaskGroup() as group:
            node, summaries = (
                OwnNode(api, NODE),
                NodeSummary(Pods(api, NODE, cache), NodeLedger({"GPU-c": Capacity(16384)})),
            )
            publisher = GpuNodePublisher(api, node, LatestValue(STATUS), summaries)
            works = [group.create_task(work) for work in (node.run(), publisher.run())]
            await asyncio.to_thread(over.wait)
            for work in works:
                work.cancel()

    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(publish()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def join(admin: Kubectl) -> str:
    """Makes the Node, and what else belongs to it; returns its UID."""
    made = admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    uid = str(made["metadata"]["uid"])
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}
    metadata = {"name": f"of-{uid}", "namespace": TEAM, "ownerReferences": [owner]}
    admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    return uid


def leave(admin: Kubectl) -> None:
    """Deletes the Node."""
    admin.delete("nodes", NODE, "")


def is_whole(stored: Obj, uid: str) -> bool:
    """Whether a GPUNode belongs to this Node, and has its cards."""
    (owner,) = stored["metadata"]["ownerReferences"]
    return owner["uid"] == uid and bool(stored.get("status", {}).get("cards"))


def test_a_gpunode_goes_with_its_node_and_comes_with_the_next(controlled: World, tmp_path: Path):
    """Collected where the node stays away; where it is back at once, it is there when all of the old one is gone."""
    admin = controlled.admin
    old = join(admin)
    with publisher(controlled.agent_on(NODE, "agent-c"), tmp_path):
        admin.wait_for(GPU_NODES, NODE, lambda one: is_whole(one, old), PATIENCE_S, "")
        leave(admin)
        admin.wait_gone(GPU_NODES, NODE, PATIENCE_S, "")
        old = join(admin)
        admin.wait_for(GPU_NODES, NODE, lambda one: is_whole(one, old), PATIENCE_S, "")
        leave(admin)
        new = join(admin)
        admin.wait_gone("configmaps", f"of-{old}", PATIENCE_S, TEAM)
        admin.wait_for(GPU_NODES, NODE, lambda one: is_whole(one, new), PATIENCE_S, "")
    leave(admin)
    admin.wait_gone(GPU_NODES, NODE, PATIENCE_S, "")
