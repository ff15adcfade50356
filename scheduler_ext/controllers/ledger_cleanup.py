"""Keeps the ledger tidy over time: ends old reservations, and asks after bindings nobody has confirmed."""

import asyncio
import logging
from collections.abc import Callable

from aliquot.kube.answers import ApiError
from aliquot.scheduler_ext.handlers.bind import Binder
from aliquot.scheduler_ext.state.ledger import Ledger, Stage

RESERVATION_SECONDS = 660.0
"""How long a reservation outlives its filter call: volume binding may take 10 minutes, and a minute more."""
SETTLE_SECONDS = 5.0
"""How long the watch may take to show a binding before the API server is asked."""

_log = logging.getLogger(__name__)


class LedgerCleanup:
    """Looks at what is not confirmed yet, again and again."""

    def __init__(
        self,
        ledger: Ledger,
        binder: Binder,
        clock: Callable[[], float],
        *,
        reservation_seconds: float = RESERVATION_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
        keeps: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Look at nothing yet.

        Args:
            ledger: Where the reservations are.
            binder: Asks after bindings.
            clock: Monotonic seconds.
            reservation_seconds: How long a reservation outlives its filter call.
            settle_seconds: How long the watch may take to show a binding.
            keeps: Whether something else ends a pod's reservation when its time is up.
        """
        self._keeps = keeps
        self._ledger = ledger
        self._binder = binder
        self._clock = clock
        self._reservation_seconds = reservation_seconds
        self._settle_seconds = settle_seconds

    async def run(self) -> None:
        """Tidy until cancelled."""
        while True:
            await self.tidy()
            await asyncio.sleep(min(1.0, self._settle_seconds))

    async def tidy(self) -> None:
        """Do what is due now."""
        for uid in self._ledger.expire(self._reservation_seconds, self._keeps):
            _log.info("reservation of pod %s has expired", uid)
        for entry in self._ledger.unconfirmed():
            waited = self._clock() - entry.since >= self._settle_seconds
            if waited and entry.stage in (Stage.UNCERTAIN, Stage.ASSUMED):
                try:
                    await self._binder.settle(entry)
                except ApiError as error:
                    _log.warning("cannot tell what became of pod %s: %s", entry.uid, error)
