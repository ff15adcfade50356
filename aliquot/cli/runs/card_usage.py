"""What there is of each card, and what is taken: by this user's runs, other users' and other programs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from aliquot.cli.runs.claims import Claim
from aliquot.cli.runs.machine import Card, read_cards
from aliquot.cli.runs.registry import Registry, Run
from aliquot.cli.runs.slices import Slice


@dataclass(frozen=True)
class CardUsage:
    """Cards, the runs of this user and the claims of all others, at one moment.

    Attributes:
        used: What each of this user's runs uses, in bytes, by its id.
    """

    cards: tuple[Card, ...]
    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    used: Mapping[str, int]

    @property
    def slices(self) -> tuple[Slice, ...]:
        """Everything that is promised of the cards."""
        return (*(run.slice for run in self.runs), *(claim.slice for claim in self.claims))

    @property
    def taken(self) -> tuple[Slice, ...]:
        """The same with what is used beyond a slice that was made smaller: it is nobody else's yet."""
        return self._taken(self.runs)

    def besides(self, run: Run) -> tuple[Slice, ...]:
        """Everything that is taken besides one run of this user."""
        return self._taken(one for one in self.runs if one.id != run.id)

    def _taken(self, runs: Iterable[Run]) -> tuple[Slice, ...]:
        own = (_at_least(run.slice, self.used[run.id]) for run in runs)
        return (*own, *(_at_least(claim.slice, claim.used_bytes) for claim in self.claims))


def survey(registry: Registry) -> CardUsage:
    """Looks at the records and at the cards. To be called inside `registry.locked()`.

    What runs use is read before the cards are: what a run takes in between seems to be of an unknown program then,
    and too little is given out rather than too much.
    """
    runs = registry.runs()
    claims = registry.claims.others({run.id for run in runs})
    by_run = {run.id: registry.in_use_bytes(run) or 0 for run in runs}
    used = Counter[str]()
    for run in runs:
        used[run.slice.card] += by_run[run.id]
    for claim in claims:
        used[claim.slice.card] += claim.used_bytes
    cards = (replace(card, outside_bytes=max(0, card.used_bytes - used[card.uuid])) for card in read_cards())
    return CardUsage(tuple(cards), runs, claims, by_run)


def _at_least(share: Slice, used_bytes: int) -> Slice:
    return msgspec.structs.replace(share, memory_bytes=max(share.memory_bytes, used_bytes))
