"""A check: its name, what it is about, and a function of the facts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from aliquot.doctor.facts.fact import NotKnownError
from aliquot.doctor.finding import Finding, Told, not_checked

F = TypeVar("F")


@dataclass(frozen=True)
class Check(Generic[F]):
    """One check of the facts `F`; `means` is a sentence for `docs/doctor.md`'s readers and for who reads the code."""

    name: str
    group: str
    means: str
    look: Callable[[F], Iterator[Told]]

    def run(self, facts: F) -> Iterator[Finding]:
        """Its findings, at least one; what could not be looked at is told as such."""
        told = tuple(self._told(facts)) or (not_checked("there was nothing to look at"),)
        for one in told:
            yield Finding(self.name, self.group, one.result, one.seen, one.remedy, one.objects)

    def _told(self, facts: F) -> Iterator[Told]:
        try:
            yield from self.look(facts)
        except NotKnownError as error:
            yield not_checked(str(error))


def run(checks: Sequence[Check[F]], facts: F) -> tuple[Finding, ...]:
    """The findings of all checks, in their order."""
    return tuple(finding for check in checks for finding in check.run(facts))
