"""What a process's first context is likely to cost on a card of a model, as tenants' samples tell.

A sample is what the driver says of a process less what its page says, so a tenant that takes memory past the
interceptor makes a context look dear. Hence the samples of a namespace's pods count for that namespace; for others
only once several namespaces have been sampled, and then the cheapest. Nothing outlives the agent.
"""

from collections import defaultdict
from typing import Final

from aliquot.units import MIB

MOST_BYTES: Final = 1024 * MIB
"""No driver takes more for a context; 300 to 700 MiB are usual."""
SEVERAL: Final = 2


class ContextCosts:
    """The cheapest sample by card model and namespace."""

    def __init__(self) -> None:
        self._cheapest: dict[str, dict[str, int]] = defaultdict(dict)

    def learn(self, model: str, namespace: str, cost_bytes: int) -> None:
        """A process of a pod of this namespace was seen to have this for its context."""
        if cost_bytes <= MOST_BYTES:
            seen = self._cheapest[model]
            seen[namespace] = min(cost_bytes, seen.get(namespace, cost_bytes))

    def of(self, model: str, namespace: str) -> int:
        """Bytes for a pod of this namespace; 0 while nothing is known."""
        seen = self._cheapest.get(model, {})
        return seen.get(namespace, min(seen.values()) if len(seen) >= SEVERAL else 0)
