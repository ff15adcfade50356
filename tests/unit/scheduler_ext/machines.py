"""Nodes of known wiring, and the definition of the best set of cards word for word, for the tests of topology."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

from aliquot.api.links import Level, Link, write_links
from aliquot.crds.gpu_node import Card, GPUNodeStatus, Nic
from aliquot.request.topology import Rdma, Topology
from aliquot.scheduler_ext.cards.topology import Shape

Pairs = dict[frozenset[int], Link]


def wired(
    cards: int, link: Pairs, *, numa: Sequence[int] = (), roots: Sequence[str] = (), nics: Sequence[Nic] = ()
) -> GPUNodeStatus:
    """A node whose agent publishes these links."""
    published = [
        Card(
            uuid=f"g{n}",
            index=n,
            memory_mib=16384,
            numa_node=numa[n] if numa else -1,
            pcie_root=roots[n] if roots else "",
            links=write_links(link[frozenset((before, n))] for before in range(n)),
        )
        for n in range(cards)
    ]
    return GPUNodeStatus(cards=tuple(published), nics=tuple(nics))


def pairs_of(cards: int, near: Link, far: Link, group: int) -> Pairs:
    """Links within groups of neighbouring cards, and between them."""
    return {
        frozenset(two): near if two[0] // group == two[1] // group else far
        for two in combinations(range(cards), 2)
    }


def quads(cards: int = 8, **more: object) -> GPUNodeStatus:
    """Groups of four cards with four NVLinks between every two; PCIe between groups."""
    link = pairs_of(cards, Link(Level.NODE, 4), Link(Level.SYS), 4)
    return wired(cards, link, numa=[n // 4 for n in range(cards)], **more)  # type: ignore[arg-type]


def twins(cards: int = 8) -> GPUNodeStatus:
    """Pairs of cards below a PCIe switch, two pairs on each NUMA node."""
    link = {
        frozenset((one, other)): Link(
            Level.PIX if one // 2 == other // 2 else Level.NODE if one // 4 == other // 4 else Level.SYS
        )
        for one, other in combinations(range(cards), 2)
    }
    return wired(cards, link, numa=[n // 4 for n in range(cards)])


def link_between(shape: Shape, one: int, other: int) -> Link:
    """How two cards are linked."""
    low, high = sorted((one, other))
    return shape.links[high * (high - 1) // 2 + low]


def links_within(shape: Shape, chosen: Iterable[int]) -> list[Link]:
    """All links between cards of a set."""
    return [link_between(shape, *two) for two in combinations(sorted(chosen), 2)]


def meets(link: Link, least: Topology) -> bool:
    """Whether a link is what a pod demands."""
    return {
        Topology.NUMA: link.level >= Level.NODE,
        Topology.BRIDGE: link.level >= Level.PHB,
        Topology.SWITCH: link.level >= Level.PXB,
        Topology.NVLINK: link.nvlinks > 0,
    }.get(least, True)


def rest(shape: Shape, left: Iterable[int]) -> int:
    """What cards are worth to those who come later: the most that disjoint sets come to, for each size."""

    @cache
    def most(cards: frozenset[int], size: int) -> int:
        found = 0
        for chosen in combinations(sorted(cards), size):
            weakest = min(link.worth for link in links_within(shape, chosen))
            found = max(found, size * weakest + most(cards - set(chosen), size))
        return found

    return sum(most(frozenset(left), size) for size in (2, 4, 8))


def best(shape: Shape, size: int) -> int:
    """The worth of the weakest link of the best set of so many cards."""
    sets = combinations(range(shape.cards), size)
    return max((min(link.worth for link in links_within(shape, chosen)) for chosen in sets), default=0)


def lack(shape: Shape, chosen: Sequence[int]) -> float:
    """How many of a set's cards its weakest link wastes."""
    weakest, most = min(link.worth for link in links_within(shape, chosen)), best(shape, len(chosen))
    return len(chosen) * (1 - weakest / most) if most else 0.0


def lacking(shape: Shape, left: Iterable[int], size: int) -> float:
    """How many cards are wasted, or left over, if sets of one size are made of these as well as can be."""
    most = best(shape, size)

    @cache
    def found(cards: frozenset[int]) -> float:
        """The cards of disjoint sets, each for as much as its weakest link is worth."""
        sets = combinations(sorted(cards), size)
        return max((size - lack(shape, c) + found(cards - set(c)) for c in sets), default=0.0)

    cards = frozenset(left)
    return len(cards) // size * size - found(cards) if most else 0.0


def score(
    shape: Shape, chosen: Sequence[int], empty: Iterable[int], rdma: Rdma = Rdma.NONE
) -> tuple[float, ...]:
    """What sets are compared by; the greatest is the best, and of equals the one whose columns come first."""
    loads = [sum(cards >> n & 1 for n in chosen) / nics for cards, nics in shape.groups(rdma)]
    near = sum(shape.near(rdma) >> n & 1 for n in chosen)
    worths = [link.worth for link in links_within(shape, chosen)]
    later = rest(shape, set(empty) - set(chosen))
    first = [-n for n in sorted(chosen)]
    return (near, -max(loads, default=0), min(worths, default=0), sum(worths), later, *first)
