"""Keeps the garbage collector off what stays.

A ledger of a large cluster is hundreds of thousands of objects that are no garbage. A collection goes through all of
them: several times while they are read, and later in the middle of a call, for a tenth of a second.

At the same moment what reading took is given back, and from then on memory is kept that calls will soon ask for again
(`aliquot.node.malloc_tuning`).
"""

import asyncio
import gc
from collections.abc import Sequence
from typing import Protocol

from aliquot.node.malloc_tuning import give_back_freed_memory, keep_freed_memory


class Feed(Protocol):
    """What reads the cluster."""

    async def read(self) -> None:
        """Return once all has been read."""


class GcTuning:
    """Has nothing collected until the cluster has been read, and nothing of that afterwards."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        """Change nothing yet.

        Args:
            feeds: What reads.
        """
        self._feeds = feeds

    async def run(self) -> None:
        """Hold until cancelled; a replica that begins anew leaves garbage, which is collected then."""
        gc.disable()
        try:
            for feed in self._feeds:
                await feed.read()
            gc.freeze()
            gc.enable()
            give_back_freed_memory()
            keep_freed_memory()
            await asyncio.Event().wait()
        finally:
            gc.enable()
            gc.unfreeze()
