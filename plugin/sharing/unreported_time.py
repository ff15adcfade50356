"""How much of its cards' time a tenant keeps quiet about: what the driver saw it use, less what it said."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

SLACK = 0.05
"""Of all time: two that measure the same differ by so much."""
SLACK_OF_SEEN = 0.1
DOUBT_S = 0.6
"""Longer than this nobody is silent by chance."""
LONGEST_S = 60.0
"""For so long work may be said to be in flight, and nothing else. It is said to have been had when it ends."""
FORGIVEN_AFTER_S = 60.0


@dataclass
class UnreportedTime:
    """One tenant's; what is kept quiet is forgotten as fast as two honest measurements may differ."""

    silent_s: dict[str, float] = field(default_factory=dict)
    in_flight_s: dict[str, float] = field(default_factory=dict)
    """For how long a piece of work has been in flight of which nothing was said."""
    clean_s: float = FORGIVEN_AFTER_S
    """For how long nothing was wrong."""

    def enter(
        self,
        passed_s: float,
        seen_s: Mapping[str, float],
        said_s: Mapping[str, float],
        in_flight: Collection[str] = (),
    ) -> None:
        """While some time passed, the driver saw it use this of each card, and it said this; these it still uses."""
        self.clean_s += passed_s
        for card, said in said_s.items():
            more = seen_s.get(card, 0.0) * (1 - SLACK_OF_SEEN) - said - SLACK * passed_s
            self.silent_s[card] = max(0.0, self.silent_s.get(card, 0.0) + more)
            if self.silent_s[card] > DOUBT_S + self._awaited_s(
                card, passed_s, working=card in in_flight and not said
            ):
                self.clean_s = 0.0

    def _awaited_s(self, card: str, passed_s: float, *, working: bool) -> float:
        """How much may be said later. At the look at which it should be said, it may have been too late for it."""
        before = self.in_flight_s.get(card, 0.0)
        now = self.in_flight_s[card] = before + passed_s if working else 0.0
        return now or before if before <= LONGEST_S else 0.0

    def damaged(self) -> None:
        """What it says makes no sense."""
        self.clean_s = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether it keeps too much quiet, or did not long ago."""
        return self.clean_s < FORGIVEN_AFTER_S
