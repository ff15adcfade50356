"""Which pool the cards of this node belong to, as the API server tells, also while it is away.

Pools and this node's labels are watched. What was seen last is kept in a file: an agent that starts while the API
server is away must not switch running tenants back to what holds without a pool.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from aliquot.crds.gpu_pool import GPUPool, PoolSpec, pool_of
from aliquot.crds.resources import GPU_POOLS
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE, Node
from aliquot.kube.reflector import Reflector
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.util.atomic_files import write_whole

log = logging.getLogger(__name__)


class _Seen(msgspec.Struct, frozen=True):
    """What the pools of this node's cards depend on."""

    labels: dict[str, str] = {}
    pools: tuple[GPUPool, ...] = ()


class Pools:
    """The pools of one node. Lives in one event loop."""

    def __init__(self, api: Api, node: OwnNode, file: Path) -> None:
        self._file = file
        self._seen = _load(file)
        self._heard: Callable[[], None] = lambda: None
        node.on_change(self._put_node)
        self._pools = Reflector(
            api,
            GPU_POOLS,
            on_add=lambda _: self._put_pools(),
            on_update=lambda _, __: self._put_pools(),
            on_delete=lambda _: self._put_pools(),
        )

    def on_change(self, heard: Callable[[], None]) -> None:
        """Has this called each time a pool or this node's labels have changed."""
        self._heard = heard

    def of(self, model: str) -> PoolSpec:
        """How this node's cards of a model are to be shared."""
        return pool_of(self._seen.pools, self._seen.labels, model)

    async def run(self) -> None:
        """Follows the API server until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pools.run())
            await self._pools.synced.wait()
            self._put_pools()  # there may be none left of those in the file

    def _put_node(self, node: Node) -> None:
        self._put(_Seen(node.metadata.labels, self._seen.pools))

    def _put_pools(self) -> None:
        pools = tuple(sorted(self._pools.store.values(), key=lambda pool: pool.metadata.name))
        if self._pools.synced.is_set():
            self._put(_Seen(self._seen.labels, pools))

    def _put(self, seen: _Seen) -> None:
        if seen == self._seen:
            return
        self._seen = seen
        try:
            write_whole(self._file, msgspec.json.encode(seen))
        except OSError as error:
            log.warning("pools not cached: %s", error)
        self._heard()


def _load(file: Path) -> _Seen:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Seen)
    except (OSError, *UNREADABLE) as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("pools as last seen cannot be read: %s", error)
        return _Seen()
