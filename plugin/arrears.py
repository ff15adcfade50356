"""How much of its cards' time a tenant keeps quiet about: what the driver saw it use, less what it said."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SLACK = 0.05
"""Of all time: two that measure the same differ by so much."""
SLACK_OF_SEEN = 0.1
DOUBT_S = 0.6
"""A piece of work that takes longer is not said before it ends, and is taken for silence until then."""
FORGIVEN_AFTER_S = 60.0


@dataclass
class Arrears:
    """One tenant's; what is kept quiet is forgotten as fast as two honest measurements may differ."""

    silent_s: dict[str, float] = field(default_factory=dict)
    clean_s: float = FORGIVEN_AFTER_S
    """For how long nothing was wrong."""

    def enter(self, passed_s: float, seen_s: Mapping[str, float], said_s: Mapping[str, float]) -> None:
        """While some time passed, the driver saw it use this of each card, and it said this."""
        for card, said in said_s.items():
            more = seen_s.get(card, 0.0) * (1 - SLACK_OF_SEEN) - said - SLACK * passed_s
            self.silent_s[card] = max(0.0, self.silent_s.get(card, 0.0) + more)
        self.clean_s += passed_s
        if max(self.silent_s.values(), default=0.0) > DOUBT_S:
            self.clean_s = 0.0

    def damaged(self) -> None:
        """What it says makes no sense."""
        self.clean_s = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether it keeps too much quiet, or did not long ago."""
        return self.clean_s < FORGIVEN_AFTER_S
