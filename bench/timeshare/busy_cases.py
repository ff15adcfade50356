"""What `bench/compute.py --busy` measures: shares, waits and idle cards while busy loops keep every core."""

from collections.abc import Iterator
from dataclasses import replace

from .cases import GREEDY, Case, Load, Mode, Question, Tenant, eights, greedy, priorities, text_of, wakes

PAIRS = ((60, 30), (70, 20), (50, 50), (90, 10), (30, 30))
LENGTHS_US = (200, 1000, 20_000)
FEW = 2
"""Loops a core up to which the narrow bounds hold."""


def _pair(shares: tuple[int, int], name: str, load: Load, mode: Mode = Mode.CAPPED) -> Case:
    word = "burst" if mode is Mode.BURST else "pair"
    tenants = tuple(Tenant(share, (load,), mode) for share in shares)
    return Case(f"{word}/{shares[0]}-{shares[1]}/{name}", tenants, Question.HELD)


def _shares() -> Iterator[Case]:
    for shares in PAIRS:
        for length in LENGTHS_US:
            yield _pair(shares, text_of(length), greedy(length))
        yield _pair(shares, "1ms", GREEDY, Mode.BURST)
    for length, nodes in ((20, 200), (100, 20)):
        yield _pair((60, 30), f"graph-{nodes}x{text_of(length)}", Load((length,), graph=nodes, sync=4))
    for case in eights():
        yield replace(case, question=Question.HELD)


def busy_cases(per_core: int) -> tuple[Case, ...]:
    """The table, for so many loops a core.

    Shares within 2 points, idle 3 percent, and 8 ms for who has priority; with more than two loops a core 5 points,
    8 percent, and 16 ms.
    """
    few = per_core <= FEW
    points, idle, late_ms = (2.0, 3.0, 8.0) if few else (5.0, 8.0, 16.0)
    held = (replace(case, bound=points, idle=idle) for case in _shares())
    urgent = (replace(case, bound=late_ms) for case in priorities())
    lent = (
        replace(case, bound=100 - idle) if case.question is Question.LENT else replace(case, points=points)
        for case in wakes()
    )
    return (*held, *lent, *urgent)
