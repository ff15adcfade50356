"""The nodes that are closed to a pod now, whatever room their cards have, and why."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aliquot.scheduler_ext.placement.reasons import ORDER, Reason


@dataclass(frozen=True)
class ClosedNodes:
    """Nodes of the whole cluster, or of some more that are imagined.

    Attributes:
        foreign: Another device plugin serves there what the pod asks for.
        barred: A quota keeps the pod out, in which words.
        full: Their CPU or memory is kept for pods that others leave them for.
        kept: The node that is kept free for a larger pod; empty where there is none.
    """

    foreign: AbstractSet[str]
    barred: Mapping[str, str]
    full: AbstractSet[str]
    kept: str

    def open_of(self, nodes: Sequence[str]) -> Sequence[str]:
        """Those of the nodes that are open; the very same where none is closed."""
        foreign, barred, full, kept = self.foreign, self.barred, self.full, self.kept
        if not (foreign or barred or full or kept):
            return nodes
        return [n for n in nodes if not (n in foreign or n in barred or n in full or n == kept)]

    def reasons(self, nodes: Sequence[str]) -> dict[str, Reason]:
        """Why some of these are closed; those that a quota closes have no reason but its words."""
        found = dict.fromkeys(self.full, Reason.HOST_KEPT) | {self.kept: Reason.KEPT}
        found |= dict.fromkeys(self.foreign, Reason.FOREIGN)
        return {node: found[node] for node in nodes if node in found and node not in self.barred}

    def nearest(self, nodes: Sequence[str]) -> Reason:
        """The reason of that one which comes nearest to having room, where none of these is open."""
        return max(self.reasons(nodes).values(), key=ORDER.index, default=Reason.FOREIGN)
