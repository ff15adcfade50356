"""Publishes what this node has as its GPUNode object.

The status is written when it changes and compared now and then, and whenever a kubelet is new, so that an object
somebody deleted or edited comes back, and a node that was removed is whole when it joins again. It belongs to its Node:
while there is none nothing is published, and when that is deleted Kubernetes collects what was. The API server may be
away for as long as it likes: nothing on the node waits for this.

The summary changes with every pod, and thousands of nodes may get pods at the same time. A change of the summary alone
is therefore written after a second in which more changes are gathered, and at most once in `EVERY_S`.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from aliquot.api.links import write_links
from aliquot.api.names import API_GROUP, API_VERSION
from aliquot.crds.gpu_node import HEALTHY, KIND, UNHEALTHY, GPUNode, GPUNodeStatus
from aliquot.crds.gpu_node import Card as InventoryCard
from aliquot.crds.resources import GPU_NODES
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.kube.resources import NODES
from aliquot.plugin.cluster.node_summary import NodeSummary
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.devices.nvml_cards import Card
from aliquot.plugin.util.latest_value import LatestValue

log = logging.getLogger(__name__)

T = TypeVar("T")

COMPARE_EVERY_S = 60.0
EVERY_S = 30.0
"""Between two writes of which the second says no more than that other pods are there."""
GATHER_S = 1.0
"""From the first such change to the write that has it and those that follow."""


class GpuNodePublisher:
    """Keeps one GPUNode as it should be."""

    def __init__(
        self,
        api: Api,
        node: OwnNode,
        status: LatestValue[GPUNodeStatus],
        summaries: NodeSummary,
        every_s: float = EVERY_S,
    ) -> None:
        """Publish nothing yet.

        Args:
            api: The API server.
            node: The Node that the cards belong to.
            status: The cards, without the summary.
            summaries: What is promised of them.
            every_s: Seconds from one write to the next that changes the summary alone.
        """
        self._api = api
        self._node = node
        self._status = status
        self._summaries = summaries
        self._every_s = every_s
        self._written_at = -every_s
        self._doubted = asyncio.Event()
        self.published = False

    def compare(self) -> None:
        """Has what is published compared soon."""
        self._doubted.set()

    async def run(self) -> None:
        """Publishes until cancelled."""
        backoff, said = Backoff(), ""
        while True:
            cards, owner = self._status.value, self._node.uid.value
            wanted = replace(cards, summary=self._summaries.of(cards))
            try:
                if owner:
                    await self._publish(wanted, owner)
                self.published, said = bool(owner), ""
                backoff.reset()
                await self._pause(cards, wanted, owner)
            except ApiError as error:
                if str(error) != said:
                    log.warning("inventory of node %s not published: %s; trying on", self._node.name, error)
                said = str(error)
                await asyncio.sleep(backoff.next())

    async def _publish(self, wanted: GPUNodeStatus, owner: str) -> None:
        name = self._node.name
        try:
            current = await self._api.get(GPU_NODES, name)
        except ApiError as error:
            if not error.not_found:
                raise
            current = await self._create(owner)
        if [reference.uid for reference in current.metadata.owner_references] != [owner]:
            await self._api.patch(GPU_NODES, name, {"metadata": self._owned_by(owner)})
        if current.status != wanted:
            await self._api.patch_status(GPU_NODES, name, wanted)
            if replace(current.status, summary=wanted.summary) == wanted:
                self._written_at = time.monotonic()
            else:
                log.info("published %d card(s) of node %s", len(wanted.cards), name)

    async def _create(self, owner: str) -> GPUNode:
        body = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "metadata": {"name": self._node.name, **self._owned_by(owner)},
        }
        return await self._api.create(GPU_NODES, body)

    def _owned_by(self, owner: str) -> Mapping[str, Any]:
        """Metadata that names the Node of this UID as the owner."""
        node = {"apiVersion": NODES.version, "kind": "Node", "name": self._node.name, "uid": owner}
        return {"ownerReferences": [node]}

    async def _pause(self, cards: GPUNodeStatus, published: GPUNodeStatus, owner: str) -> None:
        """Returns when there is something else to publish, or another Node, or it is time to compare."""
        waits = [
            asyncio.create_task(wait)
            for wait in (
                other_than(cards, self._status),
                self._other_summary(published),
                other_than(owner, self._node.uid),
                self._doubted.wait(),
            )
        ]
        try:
            await asyncio.wait(waits, timeout=COMPARE_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._doubted.clear()
            for wait in waits:
                wait.cancel()

    async def _other_summary(self, published: GPUNodeStatus) -> None:
        """Returns when the summary has changed and it is time to write it."""
        await self._summaries.other_than(published)
        due_s = self._written_at + self._every_s - time.monotonic()
        await asyncio.sleep(max(GATHER_S, due_s))


async def other_than(known: T, watched: LatestValue[T]) -> None:
    """Returns when something has another value than the one that is known."""
    async for value in watched.changes():
        if value != known:
            return


def describe(card: Card, reserve_mib: int, reason: str, pcie_root: str = "") -> InventoryCard:
    """A card as the cluster sees it; `reason` is empty for one that is well."""
    return InventoryCard(
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        memory_mib=card.memory_mib,
        reserve_mib=reserve_mib,
        numa_node=card.numa_node,
        bus_id=card.bus_id,
        pcie_root=pcie_root,
        links=write_links(card.links),
        health=UNHEALTHY if reason else HEALTHY,
        reason=reason,
        mig_enabled=card.mig_enabled,
        mig=card.mig,
    )
