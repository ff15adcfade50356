"""How well linked the cards are that pods get, and what is left, while pods of 1, 2, 4 and 8 cards come and go.

On clusters of four kinds of machines, by four ways to choose: the first node and cards with room; FragAware that looks
at no links (`none`); `best-effort`, the default; and `best-links`. All see the same pods at the same times. Then what a
choice costs in processor time at 5,000 nodes. One JSON object a line.
"""

import argparse
import heapq
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations

from aliquot.api.links import Level, Link, write_links
from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.request.host_resources import HostShare
from aliquot.request.pod_request import ContainerKind, ContainerRequest, PodRequest, SliceRequest
from aliquot.request.topology import Topology
from aliquot.scheduler_ext.cards.topology import Shape, shape_of
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.ledger import Ledger

CARDS, NODES, PODS, WARM = 8, 32, 1600, 600
SIZES, WEIGHTS = (1, 2, 4, 8), (50, 25, 15, 10)
LOAD = 0.9
BIG, TRIES = 5000, 15
CUBE = ((0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4))
"""Of the hybrid cube mesh, where two NVLinks go; one goes across each square and from card n to card n + 4."""
WAYS = ("first fit", "none", "best-effort", "best-links")


def _pairs() -> Iterator[tuple[int, int]]:
    return combinations(range(CARDS), 2)


def _near(one: int, other: int) -> Level:
    return Level.NODE if one // 4 == other // 4 else Level.SYS


def kinds() -> dict[str, dict[tuple[int, int], Link]]:
    """The links of each kind of machine."""
    return {
        "switches": {p: Link(Level.PIX if p[0] // 2 == p[1] // 2 else _near(*p)) for p in _pairs()},
        "quads": {p: Link(_near(*p), 4 if p[0] // 4 == p[1] // 4 else 0) for p in _pairs()},
        "cube": {p: Link(_near(*p), _in_cube(*p)) for p in _pairs()},
        "nvswitch": {p: Link(_near(*p), 18) for p in _pairs()},
    }


def _in_cube(one: int, other: int) -> int:
    if (one, other) in CUBE or (other, one) in CUBE:
        return 2
    return 1 if one // 4 == other // 4 or other - one == 4 else 0


def status(links: dict[tuple[int, int], Link], name: str) -> GPUNodeStatus:
    """What a node of this kind publishes."""
    cards = tuple(
        Card(
            uuid=f"{name}-{n}",
            index=n,
            memory_mib=81920,
            links=write_links(links[before, n] for before in range(n)),
        )
        for n in range(CARDS)
    )
    return GPUNodeStatus(cards=cards)


class Judge:
    """Says how good sets of one shape are."""

    def __init__(self, shape: Shape) -> None:
        self._weakest = {
            chosen: min(self._worth(shape, *pair) for pair in combinations(chosen, 2))
            for size in SIZES[1:]
            for chosen in combinations(range(CARDS), size)
        }
        self.best = {
            size: max(worth for chosen, worth in self._weakest.items() if len(chosen) == size)
            for size in SIZES[1:]
        }
        self.groups = cache(self._groups)

    @staticmethod
    def _worth(shape: Shape, one: int, other: int) -> int:
        return shape.links[other * (other - 1) // 2 + one].worth

    def quality(self, chosen: tuple[int, ...]) -> float:
        """The worth of the weakest link, as a part of what the best set of as many cards has."""
        return self._weakest[chosen] / self.best[len(chosen)]

    def _groups(self, free: frozenset[int], size: int) -> int:
        """How many disjoint sets that are as well linked as any lie within some cards."""
        found = 0
        for chosen in combinations(sorted(free), size):
            if self._weakest[chosen] == self.best[size]:
                found = max(found, 1 + self.groups(free - set(chosen), size))
        return found


@dataclass
class Tally:
    """What came of one way to choose."""

    quality: list[float] = field(default_factory=list)
    fours: list[float] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)
    refused: int = 0


class Churn:
    """A cluster in which pods come and go, by one way to choose."""

    def __init__(self, links: dict[tuple[int, int], Link], way: str) -> None:
        self._ledger = Ledger(time.monotonic)
        self.names = [f"n{n:03}" for n in range(NODES)]
        for name in self.names:
            self._ledger.put_node(name, status(links, name))
        self._placer = Placer(self._ledger.table)
        self._way = way
        self._judge = Judge(shape_of(status(links, "any")))
        self.free = {name: frozenset(range(CARDS)) for name in self.names}
        self._has: dict[str, tuple[str, frozenset[int]]] = {}
        self.tally = Tally()

    def come(self, uid: str, cards: int, counted: bool) -> bool:
        """A pod arrives; whether it found a place."""
        found = self._first_fit(cards) if self._way == WAYS[0] else self._placed(uid, cards)
        if found is None:
            self.tally.refused += counted
            return False
        name, chosen = found
        self.free[name] -= chosen
        self._has[uid] = (name, chosen)
        if counted and cards > 1:
            self.tally.quality.append(self._judge.quality(tuple(sorted(chosen))))
        return True

    def go(self, uid: str) -> None:
        """A pod ends."""
        name, chosen = self._has.pop(uid)
        self.free[name] |= chosen
        self._ledger.release(uid)

    def look(self) -> None:
        """Count what is free."""
        free = list(self.free.values())
        for size, counts in ((4, self.tally.fours), (2, self.tally.pairs)):
            possible = sum(len(cards) // size for cards in free)
            intact = sum(self._judge.groups(cards, size) for cards in free)
            counts.append(intact / possible if possible else 1.0)
        self.tally.allocated.append(100 - 100 * sum(map(len, free)) / (NODES * CARDS))

    def _first_fit(self, cards: int) -> tuple[str, frozenset[int]] | None:
        for name in self.names:
            if len(self.free[name]) >= cards:
                return name, frozenset(sorted(self.free[name])[:cards])
        return None

    def _placed(self, uid: str, cards: int) -> tuple[str, frozenset[int]] | None:
        request = whole(uid, cards, Topology(self._way))
        placement = self._placer.choose(request, self.names).placement
        if placement is None:
            return None
        self._ledger.reserve(request, placement)
        shares = placement.containers[0].cards
        return placement.node, frozenset(int(share.uuid.rpartition("-")[2]) for share in shares)


def whole(uid: str, cards: int, topology: Topology | None) -> PodRequest:
    """A pod of whole cards."""
    wanted = SliceRequest(cards, None, 100, 100, exclusive=True, topology=topology)
    return PodRequest("default", uid, uid, (ContainerRequest("main", ContainerKind.REGULAR, wanted),))


def run(links: dict[tuple[int, int], Link], way: str, seed: int) -> Tally:
    """The same pods for every way: who comes when, how many cards, and for how long."""
    dice, churn = random.Random(seed), Churn(links, way)  # noqa: S311 - figures, no secrets
    mean = sum(size * weight for size, weight in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
    longevity, ends = LOAD * NODES * CARDS / mean, []
    now = 0.0
    for n in range(PODS):
        now += dice.expovariate(1.0)
        (cards,), lasts = dice.choices(SIZES, WEIGHTS), dice.expovariate(1 / longevity)
        while ends and ends[0][0] <= now:
            churn.go(heapq.heappop(ends)[1])
        if churn.come(f"u{n}", cards, n >= WARM):
            heapq.heappush(ends, (now + lasts, f"u{n}"))
        if n >= WARM and n % 10 == 0:
            churn.look()
    return churn.tally


def tell(name: str, value: float, unit: str, better: str = "higher") -> None:
    """One figure."""
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "better": better}), flush=True)


def churn(seeds: int) -> None:
    """Print what each way comes to on each kind of machine."""
    for kind, links in kinds().items():
        for way in WAYS:
            found = [run(links, way, seed) for seed in range(1, seeds + 1)]
            name = f"topology.{kind}.{way.replace(' ', '_').replace('-', '_')}"
            quality = [q for tally in found for q in tally.quality]
            tell(f"{name}.link", statistics.fmean(quality), "of the best")
            tell(f"{name}.best", sum(q == 1 for q in quality) / len(quality), "of the sets")
            tell(f"{name}.fours", statistics.fmean(x for t in found for x in t.fours), "of those possible")
            tell(f"{name}.pairs", statistics.fmean(x for t in found for x in t.pairs), "of those possible")
            tell(f"{name}.allocated", statistics.fmean(x for t in found for x in t.allocated), "%")
            tell(f"{name}.refused", statistics.fmean(t.refused for t in found), "pods", "lower")


def wired_half_full() -> Ledger:
    """5,000 nodes of one kind, half of the cards in use."""
    dice, ledger, links = random.Random(1), Ledger(time.monotonic), kinds()["switches"]  # noqa: S311
    for n in range(BIG):
        ledger.put_node(f"n{n:04}", status(links, f"n{n:04}"))
        for column in range(CARDS):
            ledger.table.slots[column, n] = ledger.table.used[column, n] = dice.random() < 0.5
    return ledger


def cost() -> None:
    """Print what a choice costs, by turns with links and without: of a new class, and of one that is known."""
    ledger = wired_half_full()
    placer, names = Placer(ledger.table), sorted(ledger.table.nodes())
    for size in SIZES:
        placer.demand.note(whole(f"seen-{size}", size, None))
    for size in SIZES:
        placer.look(whole("tables", size, Topology.BEST_EFFORT), names)  # are made once a kind of machine
        new, known = defaultdict(list), defaultdict(list)
        for n in range(TRIES):
            for way in (Topology.NONE, Topology.BEST_EFFORT):
                request = replace(whole(f"{way}{size}-{n}", size, way), host=HostShare(1000 + n, 4096))
                new[way].append(timed(placer, request, names))
                ledger.table.put_host(names[n], HostShare(96000, 1 << 20), HostShare(96000 - n, 1 << 20))
                known[way].append(timed(placer, request, names))
        for way in (Topology.NONE, Topology.BEST_EFFORT):
            name = f"topology.cost.{way.replace('-', '_')}.{size}"
            tell(f"{name}.new_class", statistics.median(new[way]), "ms", "lower")
            tell(f"{name}.known_class", statistics.median(known[way]), "ms", "lower")


def timed(placer: Placer, request: PodRequest, names: list[str]) -> float:
    """Milliseconds of processor time of one choice."""
    start = time.process_time()
    placer.look(request, names)
    return (time.process_time() - start) * 1000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    churn(given.seeds)
    cost()


if __name__ == "__main__":
    main()
