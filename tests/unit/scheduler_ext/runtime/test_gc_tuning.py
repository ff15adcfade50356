"""The garbage collector leaves the ledger alone while it is of use, and takes it afterwards."""

import asyncio
import gc

from aliquot.scheduler_ext.runtime.gc_tuning import GcTuning


class Reading:
    """A cluster that is being read."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def read(self) -> None:
        """Wait until the test says so."""
        await self.done.wait()


def test_what_has_been_read_is_collected_only_after_the_end():
    """Nothing is collected while the cluster is read; what is there then is frozen until the replica ends."""

    async def scene() -> None:
        feed = Reading()
        task = asyncio.create_task(GcTuning([feed]).run())
        await turns()
        assert not gc.isenabled()
        feed.done.set()
        await turns()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def turns() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    before = gc.get_freeze_count()
    asyncio.run(scene())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_replica_that_ends_while_it_reads_leaves_the_collector_on():
    """However early it is deposed."""

    async def scene() -> None:
        task = asyncio.create_task(GcTuning([Reading()]).run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scene())
    assert gc.isenabled()
