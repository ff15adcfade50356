"""Whether what a command printed is what a document says.

`...` stands for anything within its line, and alone on a line for any number of lines. Blanks count as one, blank lines
not at all. Ages (`25s`, `3d4h`) are as good as other ages, the random ends of pods' names (`-5f7c9b6c4-8kx2j`,
`-7w5xk`) as others, and ids of runs (`run kx7f:`, `resize kx7f`) as others. Everything else is compared as it stands.
"""

import difflib
import re
from collections.abc import Sequence

ANYTHING = "..."
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes makes names of these alone."""
_LOOSE = re.compile(
    r"(?P<anything>\.\.\.)|(?P<run>(?<=\brun )[a-z][a-z0-9]{3}(?=:)|(?<=\bresize )[a-z][a-z0-9]{3}(?= ))|"
    rf"(?P<name>(?:-{_RANDOM}{{8,10}})?-{_RANDOM}{{5}}\b)"
    r"|(?P<age>(?<=\s)(?:\d+[dhms])+(?=\s|$))|(?P<blank>\s+)"
)
_PATTERNS = {
    "anything": r".*?",
    "name": rf"(?:-{_RANDOM}{{8,10}})?-{_RANDOM}{{5}}\b",
    "age": r"(?:\d+[dhms])+",
    "run": r"[a-z][a-z0-9]{3}",
    "blank": r"\s+",
}


def matches(expected: Sequence[str], printed: str) -> bool:
    """Whether a command's lines are the expected ones."""
    wanted = "".join(
        r"(?:.*\n)*?" if line.strip() == ANYTHING else f"{_pattern(line)}\n" for line in _lines(expected)
    )
    return re.fullmatch(wanted, "".join(f"{line}\n" for line in _lines(printed.splitlines()))) is not None


def difference(expected: Sequence[str], printed: str) -> str:
    """A diff from what was expected to what was printed, without what may differ."""
    rest, shown = _lines(printed.splitlines()), list[str]()
    for line in _lines(expected):
        same = next((each for each in rest if re.fullmatch(_pattern(line), each)), line)
        shown.append(line if line.strip() == ANYTHING else same)
    return "\n".join(difflib.unified_diff(shown, rest, "expected", "printed", lineterm="", n=3))


def _lines(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip()]


def _pattern(line: str) -> str:
    pieces, end = list[str](), 0
    for loose in _LOOSE.finditer(line):
        pieces += [re.escape(line[end : loose.start()]), _PATTERNS[loose.lastgroup or ""]]
        end = loose.end()
    return "".join([*pieces, re.escape(line[end:])])
