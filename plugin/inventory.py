"""Publishes what this node has as its GPUNode object.

The status is written when it changes and compared now and then, so that an object somebody deleted or
edited comes back. The API server may be away for as long as it likes: nothing on the node waits for this.
"""

import asyncio
import contextlib
import logging

from aliquot.inventory import HEALTHY, KIND, UNHEALTHY, GPUNode, GPUNodeStatus
from aliquot.inventory import Card as InventoryCard
from aliquot.kube.api import Api, ApiError
from aliquot.kube.backoff import Backoff
from aliquot.kube.resources import GPU_NODES
from aliquot.links import write_links
from aliquot.names import API_GROUP, API_VERSION
from plugin.cards import Card
from plugin.watched import Watched

log = logging.getLogger(__name__)

COMPARE_EVERY_S = 60.0


class Publisher:
    """Keeps one GPUNode as it should be."""

    def __init__(self, api: Api, node: str, status: Watched[GPUNodeStatus]) -> None:
        self._api = api
        self._node = node
        self._status = status
        self.published = False

    async def run(self) -> None:
        """Publishes until cancelled."""
        backoff, said = Backoff(), ""
        while True:
            wanted = self._status.value
            try:
                await self._publish(wanted)
                self.published, said = True, ""
                backoff.reset()
                await self._pause(wanted)
            except ApiError as error:
                if str(error) != said:
                    log.warning("inventory of node %s not published: %s; trying on", self._node, error)
                said = str(error)
                await asyncio.sleep(backoff.next())

    async def _publish(self, wanted: GPUNodeStatus) -> None:
        try:
            current = await self._api.get(GPU_NODES, self._node)
        except ApiError as error:
            if not error.not_found:
                raise
            current = await self._create()
        if current.status != wanted:
            await self._api.patch_status(GPU_NODES, self._node, wanted)
            log.info("published %d card(s) of node %s", len(wanted.cards), self._node)

    async def _create(self) -> GPUNode:
        body = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "metadata": {"name": self._node},
        }
        return await self._api.create(GPU_NODES, body)

    async def _pause(self, published: GPUNodeStatus) -> None:
        """Returns when there is something else to publish, or it is time to compare."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMPARE_EVERY_S):
                async for status in self._status.changes():
                    if status != published:
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
