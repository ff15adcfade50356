"""How often a node may publish other cards than before.

Whoever has taken a node can write one status after the other, each of them valid, and each with cards and links that no
node had before. What the scheduler tables of cards and links is worked out anew for each. A node that changes more
often than any machine does has no cards for the scheduler until it publishes the same again; others are used as before.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from aliquot.crds.gpu_node import GPUNodeStatus

_log = logging.getLogger(__name__)
MOST_AT_ONCE: Final = 10
SECONDS_EACH: Final = 60.0
"""After so long a node may change once more."""


@dataclass
class _Account:
    said: int
    left: float
    since: float


class StatusRateLimit:
    """Counts the changes of each node's cards; health, MIG and what is promised are none.

    To have no cards is none either: an object that was just made says so, and there is nothing to work out. A node that
    is made anew with the cards that it had before has not changed.

    Attributes:
        over: The nodes whose last status with cards was not taken over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has changed yet; `clock`: monotonic seconds."""
        self.over: set[str] = set()
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def allows(self, node: str, status: GPUNodeStatus) -> bool:
        """Whether a node's status may be taken over now; a new one is charged for."""
        if not status.cards:
            return True
        said, now = hash(_lasting(status)), self._clock()
        account = self._accounts.setdefault(node, _Account(said, MOST_AT_ONCE, now))
        account.left = min(MOST_AT_ONCE, account.left + (now - account.since) / SECONDS_EACH)
        account.since = now
        if account.said != said:
            if account.left < 1:
                self._refuse(node)
                return False
            account.said, account.left = said, account.left - 1
        self.over.discard(node)
        return True

    def forget(self, node: str) -> None:
        """A node's object is gone; what it has used lately is not, or the object would be made anew each time."""
        self.over.discard(node)
        account = self._accounts.get(node)
        if account is not None and self._clock() - account.since > MOST_AT_ONCE * SECONDS_EACH:
            del self._accounts[node]

    def _refuse(self, node: str) -> None:
        if node not in self.over:
            self.over.add(node)
            _log.warning(
                "node %s publishes other cards too often; none of them is used until it publishes the same for %d s. "
                "Look at the log of its agent, and at who writes its GPUNode",
                node,
                SECONDS_EACH,
            )


def _lasting(status: GPUNodeStatus) -> tuple[object, ...]:
    """What cards are and how they are linked, without how they are at the moment."""
    cards = [
        msgspec.structs.replace(card, health="", reason="", mig_enabled=False, mig=())
        for card in status.cards
    ]
    return status.slices_per_card, *map(msgspec.structs.astuple, cards), status.nics
