"""Makes a failing history short: it leaves out events for as long as the same kind of finding remains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.model.events import QUIET
from tests.model.history import Outcome, play

if TYPE_CHECKING:
    from tests.model.events import Story

MOST_TRIALS: Final = 150


def shrunk(story: Story, outcome: Outcome) -> tuple[Story, Outcome]:
    """The shortest history that was found, and what comes of it."""
    kind, trials = outcome.findings[0].kind, 0
    numbers = [event.number for event in story.events]
    size = max(1, len(numbers) // 2)
    while True:
        at, shorter = 0, False
        while at < len(numbers) and trials < MOST_TRIALS:
            fewer = numbers[:at] + numbers[at + size :]
            trials += 1
            tried = play(story.only(frozenset(fewer))) if _ends_quiet(story, fewer) else Outcome()
            if tried.findings and tried.findings[0].kind == kind:
                numbers, outcome, shorter = fewer, tried, True
            elif tried.findings:
                print(f"  beside that: events {','.join(map(str, fewer))}: {tried.findings[0]}")
                at += size
            else:
                at += size
        if trials >= MOST_TRIALS or (size == 1 and not shorter):
            return story.only(frozenset(numbers)), outcome
        size = max(1, size // 2)


def _ends_quiet(story: Story, numbers: list[int]) -> bool:
    """A history that ends with an event has no end to judge."""
    kept = [event for event in story.events if event.number in set(numbers)]
    return bool(kept) and kept[-1].kind == QUIET
