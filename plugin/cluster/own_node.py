"""This node's own object, as the API server tells: who it is, and its labels."""

import asyncio
import logging
from collections.abc import Callable

from aliquot.kube.api import Api
from aliquot.kube.objects import Node
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import NODES
from aliquot.plugin.util.latest_value import LatestValue

log = logging.getLogger(__name__)


class OwnNode:
    """One node. Lives in one event loop.

    Attributes:
        uid: Of the Node that has this name now; empty while there is none, and until the API server has answered.
    """

    def __init__(self, api: Api, name: str) -> None:
        self.name = name
        self.uid = LatestValue("")
        self._heard: Callable[[Node], None] = lambda _: None
        self._reflector = Reflector(
            api,
            NODES,
            field_selector=f"metadata.name={name}",
            on_add=self.put,
            on_update=lambda _, now: self.put(now),
            on_delete=lambda _: self._none(),
        )

    def on_change(self, heard: Callable[[Node], None]) -> None:
        """Has this called with the Node each time it has changed."""
        self._heard = heard

    async def run(self) -> None:
        """Follows the API server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            await self._reflector.synced.wait()
            if not self.uid.value:
                self._none()

    def put(self, node: Node) -> None:
        """Takes over what the Node is now."""
        self.uid.set(node.metadata.uid)
        self._heard(node)

    def _none(self) -> None:
        log.warning("there is no Node %s: its cards are published when it joins", self.name)
        self.uid.set("")
