"""How amounts are written, the same in every command: `2Gi`, `1536Mi`, `30 %`, `30 to 60 %`, `uncapped`."""

from collections.abc import Iterator, Sequence

from aliquot.cli.runs.slices import Slice
from aliquot.request.core_policy import CoreMode
from aliquot.units import MIB, format_bytes


def size(size_bytes: int) -> str:
    """An amount of memory in whole MiB, rounded down, with the largest suffix that needs no fraction."""
    return format_bytes(max(0, size_bytes) // MIB * MIB)


def core(share: Slice) -> str:
    """What a slice has of its card's time, and how far it may burst."""
    if not share.core_percent:
        return "uncapped"
    terms = share.core_terms
    if terms.mode is CoreMode.BURST:
        return f"{share.core_percent} to {terms.most_percent} %"
    return f"{share.core_percent} %"


def limits(share: Slice) -> str:
    """Both limits of a slice: `2Gi, 30 %`."""
    return f"{size(share.memory_bytes)}, {core(share)}"


def pids(supervisor: int | None, processes: Sequence[int]) -> str:
    """By which processes a run is known: its `aliquot`, or where that was killed those that it left."""
    return str(supervisor) if supervisor is not None else " ".join(map(str, processes)) or "?"


def one_line(text: str, longest: int | None = None) -> str:
    """The text without what would move the cursor; runs of blanks become one, and what is too long is cut."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if longest is None or len(line) <= longest else line[: longest - 3] + "..."


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of the same length as lines, each column as wide as its widest entry; wide things are to stand last."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
