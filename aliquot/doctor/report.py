"""Findings for people: by group, the worst group and the worst finding first, what to do under each."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from aliquot.doctor.finding import Finding, Result

WORST_FIRST: Final = tuple(Result)
LABEL: Final = max(map(len, Result)) + 2


def lines(findings: Sequence[Finding], columns: int = 80) -> Iterator[str]:
    """What people read, in lines of at most so many columns where words allow it."""
    groups = dict.fromkeys(finding.group for finding in findings)
    ordered = sorted(groups, key=lambda group: min(_badness(f) for f in findings if f.group == group))
    for group in ordered:
        yield group.capitalize()
        for finding in sorted((f for f in findings if f.group == group), key=_badness):
            yield from _lines(finding, columns)
        yield ""
    yield summary(findings)


def summary(findings: Sequence[Finding]) -> str:
    """How many of which result: `2 failures, 1 warning, 3 not checked, 12 ok`."""
    numbers = Counter(finding.result for finding in findings)
    parts = (_counted(result, numbers[result]) for result in WORST_FIRST if numbers[result])
    return ", ".join(parts)


def _counted(result: Result, number: int) -> str:
    plural = "s" if result in (Result.FAILURE, Result.WARNING) and number != 1 else ""
    return f"{number} {result}{plural}"


def _badness(finding: Finding) -> int:
    return WORST_FIRST.index(finding.result)


def _lines(finding: Finding, columns: int) -> Iterator[str]:
    label = finding.result.upper() if finding.result is Result.FAILURE else str(finding.result)
    yield from _wrapped(f"{finding.check}: {finding.seen}", f"  {label:{LABEL}}", columns)
    if finding.remedy:
        yield from _wrapped(finding.remedy, " " * (LABEL + 2) + "-> ", columns)


def _wrapped(text: str, start: str, columns: int) -> list[str]:
    """A paragraph behind its start; names and commands are never broken within a word."""
    return textwrap.wrap(
        text,
        columns,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
