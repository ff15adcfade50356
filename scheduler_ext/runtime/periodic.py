"""Work that comes round again and again beside the answers to kube-scheduler, which have the time first."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aliquot.scheduler_ext.state.pending_pods import Feed

PAUSE_SECONDS: Final = 1.0
"""Between rounds."""
PAUSES_PER_ROUND: Final = 10
"""A long round is followed by a pause so many times as long: the work takes no more than a tenth of the time."""


async def run_rounds(
    work: Callable[[], Awaitable[None]], feeds: Iterable[Feed], clock: Callable[[], float]
) -> None:
    """Do the work until cancelled; begin once these feeds have read the cluster. `clock`: monotonic seconds."""
    for feed in feeds:
        await feed.read()
    while True:
        start = clock()
        await work()
        await asyncio.sleep(max(PAUSE_SECONDS, (clock() - start) * PAUSES_PER_ROUND))
