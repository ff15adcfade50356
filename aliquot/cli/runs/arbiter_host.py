"""Leases the cards' time to runs, as their pages say."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field

from aliquot.arbiter import Arbiter, ArbiterError, Terms
from aliquot.cli.runs.registry import Registry
from aliquot.libshim.control_page import CardLimit


@dataclass
class ArbiterHost:
    """An arbiter and the runs it leases time to. It has no thread while there are none."""

    registry: Registry
    _arbiter: Arbiter = field(default_factory=Arbiter)
    _terms: dict[str, Terms] = field(default_factory=dict)
    _beats: bool = False

    @property
    def leased(self) -> AbstractSet[str]:
        """Who is leased time, by id."""
        return self._terms.keys()

    def follow(self, limits: Mapping[str, CardLimit]) -> None:
        """Leases time to these runs, by id, as their pages say."""
        wanted = {run: _terms_of(limit) for run, limit in limits.items() if limit.core_share_bp}
        for run in self.leased - wanted.keys():
            self._arbiter.leave(run)
            del self._terms[run]
        for run, terms in wanted.items():
            if self._terms.get(run) != terms:
                self._enter(run, terms)
        self._beat(wanted=bool(self._terms))

    def stop(self) -> None:
        """Leases nothing more: each run has its share as a hard cap at once."""
        self._arbiter.close()

    def _enter(self, run: str, terms: Terms) -> None:
        """A run whose pages are of no use keeps to its share by itself."""
        directory = self.registry.directory(run)
        with suppress(ArbiterError, OSError):
            self._arbiter.enter(run, directory / "control", directory / "usage", (terms,))
            self._terms[run] = terms

    def _beat(self, *, wanted: bool) -> None:
        if wanted and not self._beats:
            self._arbiter.start()
        elif self._beats and not wanted:
            self._arbiter.stop()
        self._beats = wanted


def _terms_of(limit: CardLimit) -> Terms:
    return Terms(limit.uuid, limit.core_share_bp, limit.core_most_percent, limit.priority)
