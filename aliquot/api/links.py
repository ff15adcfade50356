"""How two cards of a node are linked, and the words in which a GPUNode says so.

`NODE`, `PIX18`: what of the machine the two share, in the words of `nvidia-smi topo -m`, and behind it the number of
NVLinks between them, if any. A card lists a word for each card before it. Whatever cannot be read is an unknown link.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

NVLINK_WORTH: Final = 100
"""Of one NVLink; more than anything that PCIe is worth."""
MOST_NVLINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS: between two cards there cannot be more."""


class Level(IntEnum):
    """The nearest that two cards have in common; the value is what that is worth."""

    UNKNOWN = 0
    SYS = 10
    """The machine: from one NUMA node to another."""
    NODE = 20
    """A NUMA node with several host bridges."""
    PHB = 30
    """A PCIe host bridge."""
    PXB = 40
    """PCIe switches, several on the way."""
    PIX = 50
    """One PCIe switch."""
    INT = 60
    """A board."""


class Link(NamedTuple):
    """How two cards are linked."""

    level: Level
    nvlinks: int = 0

    @property
    def worth(self) -> int:
        """Links compare by this: NVLinks first, and between as many the nearer."""
        return NVLINK_WORTH * self.nvlinks + self.level

    def __str__(self) -> str:
        """The word."""
        level = "?" if self.level is Level.UNKNOWN else self.level.name
        return f"{level}{self.nvlinks or ''}"


UNKNOWN: Final = Link(Level.UNKNOWN)
_WORD = re.compile(r"(\?|SYS|NODE|PHB|PXB|PIX|INT)([0-9]{0,2})")


def write_links(links: Iterable[Link]) -> str:
    """Write a card's links to the cards before it; nothing where all are unknown."""
    words = [str(link) for link in links]
    return "" if all(word == "?" for word in words) else " ".join(words)


def read_links(text: str, count: int) -> tuple[Link, ...]:
    """Read a card's links to the `count` cards before it; a list of another length says nothing."""
    words = text.split()
    if len(words) != count:
        return (UNKNOWN,) * count
    return tuple(_read(word) for word in words)


def _read(word: str) -> Link:
    found = _WORD.fullmatch(word)
    if found is None:
        return UNKNOWN
    level = Level.UNKNOWN if found[1] == "?" else Level[found[1]]
    return Link(level, min(int(found[2] or 0), MOST_NVLINKS))
