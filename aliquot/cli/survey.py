"""What there is of each card, and what is taken: by this user's runs, other users' and other programs."""

from collections import Counter
from dataclasses import dataclass, replace

from aliquot.cli.claims import Claim
from aliquot.cli.machine import Card, read_cards
from aliquot.cli.runs import Registry, Run
from aliquot.cli.slices import Slice


@dataclass(frozen=True)
class Survey:
    """Cards, the runs of this user and the claims of all others, at one moment."""

    cards: tuple[Card, ...]
    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]

    @property
    def slices(self) -> tuple[Slice, ...]:
        """Everything that is promised of the cards."""
        return (*(run.slice for run in self.runs), *(claim.slice for claim in self.claims))

    def besides(self, run: Run) -> tuple[Slice, ...]:
        """Everything that is promised besides one run of this user."""
        own = tuple(one.slice for one in self.runs if one.id != run.id)
        return (*own, *(claim.slice for claim in self.claims))


def survey(registry: Registry) -> Survey:
    """Looks at the records and at the cards. To be called inside `registry.locked()`.

    What runs use is read before the cards are: what a run takes in between seems to be of an unknown program then,
    and too little is given out rather than too much.
    """
    runs = registry.runs()
    claims = registry.claims.others({run.id for run in runs})
    used = Counter[str]()
    for run in runs:
        used[run.slice.card] += registry.in_use_bytes(run) or 0
    for claim in claims:
        used[claim.slice.card] += claim.used_bytes
    cards = (replace(card, outside_bytes=max(0, card.used_bytes - used[card.uuid])) for card in read_cards())
    return Survey(tuple(cards), runs, claims)
