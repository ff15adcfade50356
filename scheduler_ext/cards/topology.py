"""How the cards of one node hang together: the shape that many nodes share, read from what its agent publishes.

Names of PCIe roots and cards differ from node to node where the machines are alike, so a shape has positions only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from aliquot.api.links import UNKNOWN, Level, Link, read_links
from aliquot.crds.gpu_node import GPUNodeStatus
from aliquot.request.topology import Rdma

MOST_CARDS: Final = 16
"""As many as a container can have. The links of nodes with more are not looked at."""

_Where = TypeVar("_Where", int, str)
Groups = tuple[tuple[int, int], ...]
"""Cards that are near the same NICs, as a mask of their columns, and how many NICs those are."""


@dataclass(frozen=True)
class Shape:
    """How the cards of a node are linked with each other, and which are near NICs.

    Attributes:
        cards: How many there are.
        links: Of the second card to the first, of the third to the first and to the second, and so on.
        by_numa: The cards of each NUMA node that has NICs.
        by_pcie: The cards of each PCIe root that has NICs.
    """

    cards: int = 0
    links: tuple[Link, ...] = ()
    by_numa: Groups = ()
    by_pcie: Groups = ()

    @property
    def uniform(self) -> bool:
        """Whether all links are worth the same, so that it makes no difference which cards are chosen."""
        return len({link.worth for link in self.links}) < 2  # noqa: PLR2004 - nothing to tell apart

    @property
    def weakest(self) -> int:
        """The worth of its weakest link."""
        return min((link.worth for link in self.links), default=0)

    def groups(self, rdma: Rdma) -> Groups:
        """The cards that count as near, by the NICs they are near to."""
        if rdma is Rdma.NUMA:
            return self.by_numa
        if rdma is Rdma.PCIE:
            return self.by_pcie
        return self.by_pcie or self.by_numa if rdma is Rdma.NEAR else ()

    def near(self, rdma: Rdma) -> int:
        """The cards that count as near, as a mask of their columns."""
        return sum(cards for cards, _ in self.groups(rdma))


UNKNOWN_SHAPE: Final = Shape()


class _Place(NamedTuple):
    """Where a card or NIC is, and what a card says of its links."""

    numa_node: int
    pcie_root: str
    links: str = ""


def shape_of(status: GPUNodeStatus) -> Shape:
    """Read a node's shape; what is missing or makes no sense is unknown."""
    if not 0 < len(status.cards) <= MOST_CARDS:
        return UNKNOWN_SHAPE
    cards = tuple([_Place(card.numa_node, card.pcie_root, card.links) for card in status.cards])
    return _shape_of(cards, tuple([_Place(nic.numa_node, nic.pcie_root) for nic in status.nics]))


@lru_cache(maxsize=256)
def _shape_of(cards: tuple[_Place, ...], nics: tuple[_Place, ...]) -> Shape:
    """Worked out once for all nodes that say the same, as machines of a kind do."""
    shape = Shape(
        len(cards),
        tuple(_links(cards)),
        _grouped(cards, nics, lambda one: one.numa_node, -1),
        _grouped(cards, nics, lambda one: one.pcie_root, ""),
    )
    known = shape.by_numa or shape.by_pcie or any(link != UNKNOWN for link in shape.links)
    return shape if known else UNKNOWN_SHAPE


def _links(cards: Sequence[_Place]) -> Iterable[Link]:
    for number, card in enumerate(cards):
        for before, link in zip(cards, read_links(card.links, number), strict=False):
            yield link._replace(level=link.level or _shared(card, before))


def _shared(one: _Place, other: _Place) -> Level:
    """What can be told of two cards whose agent could not say: whether they share a root or a NUMA node."""
    if one.pcie_root and one.pcie_root == other.pcie_root:
        return Level.PHB
    if one.numa_node < 0 or other.numa_node < 0:
        return Level.UNKNOWN
    return Level.NODE if one.numa_node == other.numa_node else Level.SYS


def _grouped(
    cards: Sequence[_Place], nics: Sequence[_Place], place: Callable[[_Place], _Where], nowhere: _Where
) -> Groups:
    """Group cards by the place that they share with NICs."""
    found: dict[_Where, int] = {}
    for column, card in enumerate(cards):
        found[place(card)] = found.get(place(card), 0) | 1 << column
    counts = {where: sum(place(nic) == where for nic in nics) for where in found if where != nowhere}
    return tuple((found[where], count) for where, count in counts.items() if count)
