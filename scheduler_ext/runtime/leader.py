"""Opens and keeps the office of a replica that has been elected.

Between the election and the first answer the ledger is brought to what the API server says at that moment: only then
is everything counted that the leader before has written. What only a leader may do, besides answering, is done by
workers that begin then. None of it is ever closed: a deposed leader begins anew, with an empty ledger.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from aliquot.kube.answers import ApiError
from aliquot.kube.backoff import Backoff
from aliquot.scheduler_ext.runtime.election import Election

LONGEST_PAUSE_S = 1.0

_log = logging.getLogger(__name__)


class Worker(Protocol):
    """What works beside the server."""

    async def run(self) -> None:
        """Work until cancelled."""


class Leadership:
    """The leader's."""

    def __init__(
        self, election: Election, catch_up: Callable[[], Awaitable[None]], workers: Sequence[Worker]
    ) -> None:
        """Wait for the election.

        Args:
            election: Who leads.
            catch_up: Brings the ledger up to date; ApiError when that fails.
            workers: What only the leader does.
        """
        self._election = election
        self._catch_up = catch_up
        self._workers = workers
        self._open = False

    def closed(self) -> str:
        """Why this replica cannot answer itself at this moment; an empty text while it can."""
        return self._election.closed() or ("" if self._open else "the leader is reading who holds what")

    async def run(self) -> None:
        """Open once elected, and keep open until cancelled."""
        backoff = Backoff(most=LONGEST_PAUSE_S)
        await self._election.begin()
        while not self._open:
            try:
                await self._catch_up()
                self._open = True
            except ApiError as error:
                _log.warning("the leader cannot read who holds what: %s", error)
                await asyncio.sleep(backoff.next())
        _log.info("the leader has read who holds what, and answers")
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(worker.run())
