"""Nodes that have just failed a pod: they are passed over for a while, if any other has room.

The choice of a node is deterministic, so a pod whose volume cannot be bound on the best node, or whose Binding is
refused there, would be sent to that very node for ever.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

PASSED_OVER_SECONDS = 60.0


@dataclass
class NodeBackoff:
    """Remembers failures by pod UID, on a monotonic clock in seconds; what is too old is forgotten."""

    clock: Callable[[], float] = time.monotonic
    seconds: float = PASSED_OVER_SECONDS
    _since: dict[tuple[str, str], float] = field(default_factory=dict)

    def note(self, uid: str, node: str) -> None:
        """The pod has been to this node in vain."""
        self._forget_old()
        self._since.pop((uid, node), None)
        self._since[uid, node] = self.clock()

    def nodes(self, uid: str) -> frozenset[str]:
        """Where this pod should not go now if it can go elsewhere."""
        self._forget_old()
        return frozenset(node for pod, node in self._since if pod == uid)

    def _forget_old(self) -> None:
        """The oldest come first, since noting again puts an entry last."""
        end = self.clock() - self.seconds
        while self._since and (oldest := next(iter(self._since.items())))[1] <= end:
            del self._since[oldest[0]]
