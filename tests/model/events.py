"""What can happen in a history.

An event names pods, nodes and replicas by number, and does nothing where there is no such thing. So any part of a
history is a history, which is how a failing one is made short.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.model.objects import CARD_GIB, Setup, Wish

QUIET: Final = "quiet"


@dataclass(frozen=True)
class Event:
    """One event: `after` so many seconds, its kind, its number in the history, and what the kind needs to know."""

    after: float
    kind: str
    number: int
    more: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return (
            f"#{self.number} after {self.after:g} s: {self.kind} {' '.join(map(_said, self.more))}".rstrip()
        )


@dataclass(frozen=True)
class Story:
    """A whole history before it is played."""

    seed: int
    features: frozenset[str]
    setup: Setup
    events: tuple[Event, ...]

    def only(self, numbers: frozenset[int]) -> Story:
        """The same with these events alone; the times between them stay as they were."""
        kept, waited = list[Event](), 0.0
        for event in self.events:
            waited += event.after
            if event.number in numbers:
                kept.append(replace(event, after=waited))
                waited = 0.0
        return replace(self, events=tuple(kept))

    def lines(self) -> list[str]:
        """The history for people."""
        setup = self.setup
        nodes = ", ".join(
            f"n{n}: {one.cards} cards of {CARD_GIB} GiB, {one.cpu} CPU"
            for n, one in enumerate(setup.machines)
        )
        quotas = [f"quota {name}: {json.dumps(spec)}" for name, spec in setup.quotas.items()]
        more = [f"flags {' '.join(setup.flags)}"] if setup.flags else []
        more += [f"memoryPercent {setup.overcommit}"] if setup.overcommit != 100 else []
        more += [] if setup.offers_empty else ["kube-scheduler before #135486"]
        return [nodes, *quotas, *more, *map(str, self.events)]


def _said(one: Any) -> str:
    if isinstance(one, dict):
        return json.dumps(one)
    return f"({one})" if isinstance(one, Wish) else str(one)
