"""Feeds the ledger from the cluster: pods, nodes and the cards their agents publish.

Pods are read into a struct of the few fields the ledger needs, which keeps the copy of a large cluster small
and leaves nothing to stumble over in the rest of a pod.
"""

import asyncio

from aliquot.inventory import GPUNode
from aliquot.kube.api import Api
from aliquot.kube.objects import KubeObject, KubeStruct, Node
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import GPU_NODES, NODES, Resource
from scheduler_ext.bind import placement_of
from scheduler_ext.foreign import ForeignAgents
from scheduler_ext.ledger import Ledger


class _Bound(KubeStruct, frozen=True, kw_only=True):
    node_name: str = ""


class _Phase(KubeStruct, frozen=True, kw_only=True):
    phase: str = ""


class PlacedPod(KubeObject, frozen=True, kw_only=True):
    """A pod as far as the ledger is concerned."""

    spec: _Bound = _Bound()
    status: _Phase = _Phase()


_PODS = Resource("", "v1", "pods", PlacedPod)


class Feed:
    """Keeps the ledger in step with the cluster while `run()` runs."""

    def __init__(self, api: Api, ledger: Ledger, foreign: ForeignAgents) -> None:
        self._ledger = ledger
        self._foreign = foreign
        self._cards = Reflector(
            api, GPU_NODES, on_add=self._put_cards, on_update=self._change_cards, on_delete=self._drop_cards
        )
        self._nodes = Reflector(
            api, NODES, on_add=foreign.put_node, on_update=self._change_node, on_delete=self._drop_node
        )
        self._pods = Reflector(
            api, _PODS, on_add=self.put_pod, on_update=self._change_pod, on_delete=self._drop_pod
        )

    def missing(self) -> str:
        """What has not been read once yet, in words; before that nothing may be promised."""
        waiting = [name for name, reflector in self._all().items() if not reflector.synced.is_set()]
        return f"{', '.join(waiting)} not read yet" if waiting else ""

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all().values():
                group.create_task(reflector.run())

    def _all(self) -> dict[str, Reflector[GPUNode] | Reflector[Node] | Reflector[PlacedPod]]:
        return {"gpunodes": self._cards, "nodes": self._nodes, "pods": self._pods}

    def put_pod(self, pod: PlacedPod) -> None:
        """Take over what a pod says of itself."""
        uid = pod.metadata.uid
        if pod.status.phase in ("Succeeded", "Failed"):
            self._ledger.depart(uid)
        elif pod.spec.node_name:
            self._ledger.confirm(uid, placement_of(pod.metadata.annotations, uid, pod.spec.node_name))

    def _change_pod(self, _old: PlacedPod, new: PlacedPod) -> None:
        self.put_pod(new)

    def _drop_pod(self, pod: PlacedPod) -> None:
        self._ledger.depart(pod.metadata.uid)

    def _put_cards(self, node: GPUNode) -> None:
        self._ledger.put_node(node.metadata.name, node.status)

    def _change_cards(self, old: GPUNode, new: GPUNode) -> None:
        if old.status != new.status:
            self._put_cards(new)

    def _drop_cards(self, node: GPUNode) -> None:
        self._ledger.drop_node(node.metadata.name)

    def _change_node(self, _old: Node, new: Node) -> None:
        self._foreign.put_node(new)

    def _drop_node(self, node: Node) -> None:
        self._foreign.drop_node(node.metadata.name)
