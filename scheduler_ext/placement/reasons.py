"""Why a node does not get a pod, in words that are equal on every node of a kind.

kube-scheduler counts equal texts itself ("0/40 nodes are available: 31 short of memory on every card, 9
..."), so a text names no node, no card and no amount that differs between nodes. Each node gets the first
cause that holds, from what no eviction cures to what any would.
"""

from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from aliquot.scheduler_ext.cards.card_table import CardTable
from aliquot.scheduler_ext.cards.feasibility import Feasibility

QUOTA, GROUP, TURN = "quota", "group", "turn"
"""What else keeps a pod waiting, beside the names of reasons, where waiting pods are counted."""


_BOUND: Final = "(agent.slicesPerCard bounds them)"
"""Which value of the chart says how many slices there are; the agent's flag is `--slices-per-card`."""


class Reason(Enum):
    """A cause: its text for a request of one card, for one of several, and whether evicting pods cures it."""

    NO_AGENT = ("node has no Aliquot agent", "node has no Aliquot agent", False)
    RATE_LIMITED = ("node publishes other cards too often, so that none of them is used", "", False)
    FOREIGN = ("another device plugin serves this resource on the node", "", False)
    KEPT = ("node is kept free for a larger pod that has waited longer", "", False)
    HOST_KEPT = ("CPU or memory of the node is kept for a pod that others leave it for", "", False)
    NO_CARD = ("node has no card", "node has no card", False)
    UNHEALTHY = ("card unhealthy", "too few healthy cards", False)
    MIG = ("every card in MIG mode", "too few cards outside MIG mode", False)
    TOO_FEW = ("fewer cards than one container asks for", "", False)
    NOT_ALLOWED = (
        "no card of the model or UUID asked for",
        "too few cards of the model or UUID asked for",
        False,
    )
    NOT_NEAR = (
        "no card near an RDMA NIC",
        "too few cards near an RDMA NIC",
        False,
    )
    NOT_LINKED = ("no cards linked as demanded", "", False)
    TOO_SMALL = ("every card too small", "too few cards large enough", False)
    AGENT_AWAY = ("the node's Aliquot agent is away, its kubelet offers no slice", "", False)
    NOT_OFFERED = (f"node offers too few slices {_BOUND}", "", False)
    NOT_ALONE = ("no card wholly free", "too few cards wholly free", True)
    MEMORY = ("short of memory on every card", "short of memory on too many cards", True)
    COMPUTE = ("short of compute on every card", "short of compute on too many cards", True)
    SLICES = (f"no slice left on the node {_BOUND}", f"too few slices left on the node {_BOUND}", True)
    SLOTS = (f"no slice left on any card {_BOUND}", f"no slice left on too many cards {_BOUND}", True)
    LINKS_TAKEN = ("too few free cards linked as demanded", "", True)
    MIXED = ("short of memory or compute on every card", "short of memory or compute on too many cards", True)
    TOGETHER = ("containers do not fit together", "containers do not fit together", True)

    def __init__(self, one: str, several: str, curable: bool) -> None:
        self._one = one
        self._several = several
        self.curable = curable

    def text(self, cards: int) -> str:
        """The words for a request of this many cards per container."""
        return self._one if cards == 1 else self._several or self._one


ORDER = tuple(Reason)


def classify_host(table: CardTable, slices: int) -> npt.NDArray[np.int64]:
    """For every row the position in `ORDER` of why its kubelet has not so many slices; beyond all where it has."""
    offers_none = (table.whole_slices == 0) & (slices > 0)
    causes = [offers_none, table.whole_slices < slices, table.host_slices < slices]
    codes = [ORDER.index(one) for one in (Reason.AGENT_AWAY, Reason.NOT_OFFERED, Reason.SLICES)]
    chosen: npt.NDArray[np.int64] = np.select(causes, codes, len(ORDER))
    return chosen


def classify(table: CardTable, room: Feasibility, exclusive: bool, cards: int) -> npt.NDArray[np.int64]:
    """For every row the position in `ORDER` of the first cause that holds; meaningless where the slice fits.

    Args:
        table: The cluster.
        room: Where the container's slice has room.
        exclusive: Whether it wants its cards alone.
        cards: How many cards it wants.
    """
    causes = [
        (Reason.NO_CARD, ~table.exists.any(axis=0)),
        (Reason.TOO_FEW, np.count_nonzero(table.exists, axis=0) < cards),
        (Reason.UNHEALTHY, ~room.enough(table.healthy)),
        (Reason.MIG, ~room.enough(room.offered)),
        (Reason.NOT_ALLOWED, ~room.enough(room.allowed)),
        (Reason.NOT_NEAR, ~room.enough(room.near)),
        (Reason.TOO_SMALL, ~room.enough(room.big_enough)),
        (Reason.NOT_ALONE, ~room.enough(room.alone) & exclusive),
        (Reason.MEMORY, ~room.enough(room.memory)),
        (Reason.COMPUTE, ~room.enough(room.compute)),
        (Reason.SLOTS, ~room.enough(room.slot)),
    ]
    codes = [ORDER.index(reason) for reason, _ in causes]
    chosen: npt.NDArray[np.int64] = np.select([mask for _, mask in causes], codes, ORDER.index(Reason.MIXED))
    return chosen
