"""On which cards nothing is seen of the work that a tenant says to have in flight.

Beside work that does not end the arbiter charges others for a part of the time in which they have the card, for
contexts take turns there. So the work must be there: who merely says so, or has work that waits for something else than
the card, takes no time from anybody.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

LEAST_PART = 0.1
"""Of the card's time: less than that has no work that takes turns with a few others."""
FOUND_AFTER_S = 2.0
"""So long all of it must be missing. The driver's samples come up to a second late."""
_MOST_S = LEAST_PART * FOUND_AFTER_S


@dataclass
class AbsentWork:
    """One tenant's. Work that is seen makes up for ten times as long in which none was."""

    missing_s: dict[str, float] = field(default_factory=dict)
    """By card, how much less it was seen to have than the least part, lately."""

    def enter(
        self, covered_s: Mapping[str, float], seen_s: Mapping[str, float], in_flight: Collection[str]
    ) -> None:
        """New samples cover so much of each card's time, and in that the driver saw the tenant work for so long.

        Of a card that they tell nothing of all is forgotten.
        """
        self.missing_s = {card: missing for card, missing in self.missing_s.items() if card in covered_s}
        for card, covered in covered_s.items():
            due = LEAST_PART * covered if card in in_flight else 0.0
            missing = self.missing_s.get(card, 0.0) + due - seen_s.get(card, 0.0)
            self.missing_s[card] = min(max(missing, 0.0), _MOST_S)

    @property
    def cards(self) -> frozenset[str]:
        """Those where its work is absent."""
        return frozenset(card for card, missing in self.missing_s.items() if missing >= _MOST_S)
