"""One of a user's runs has the cards' time leased to all of them: the one that holds the lock on <home>/arbiter.

The `aliquot` of every run waits for that lock in a thread. When its holder ends, killed or not, the kernel gives it to
the next one; until that one has looked around, each run is held to its share by its own clock, as its page says.
Pages are written under the registry's lock by whoever changes something, and the arbiter is told afterwards.
"""

import fcntl
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

from aliquot.cli.options import Refusal
from aliquot.cli.runs import Registry
from arbiter import Arbiter, ArbiterError, Terms
from libshim.pages import CardLimit

LOOK_EVERY_S = 0.1
COUNT_EVERY_LOOKS = 5
"""A run that nobody tells of, as one that ends after its `aliquot` was killed, is missed as late as this."""


@dataclass
class Lessor:
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


class Candidate:
    """A run's part in the election, once: `stand`, then `withdraw`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lessor = Lessor(registry)
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._office: IO[str] | None = None

    def stand(self) -> None:
        """Waits in a thread to be elected, and then leases. Without the lock's file nobody is."""
        with suppress(OSError):
            self._office = self._registry.arbiter_lock.open("a")
            threading.Thread(target=self._serve, args=[self._office], name="arbiter", daemon=True).start()

    def withdraw(self) -> None:
        """Leases nothing more; another can be elected when this returns, whatever the thread is about to do."""
        with self._turn:
            self._over.set()
            self._lessor.stop()
        if self._office:
            self._office.close()

    def _serve(self, office: IO[str]) -> None:
        with suppress(OSError, ValueError):  # of a file that was closed meanwhile
            fcntl.flock(office, fcntl.LOCK_EX)
            self._look_on()

    def _look_on(self) -> None:
        seen, looks = -1, 0
        while not self._over.wait(LOOK_EVERY_S if looks else 0):
            changed = self._registry.changed_ns()
            if changed != seen or looks % COUNT_EVERY_LOOKS == 0:
                self._look()
            seen, looks = changed, looks + 1

    def _look(self) -> None:
        """What cannot be read now is read later; who is leased time stays so meanwhile."""
        with suppress(Refusal, OSError):
            with self._registry.locked():
                limits = self._registry.settle()
            with self._turn:
                if not self._over.is_set():
                    self._lessor.follow(limits)


class Arbitration:
    """A run's part in it, from the start of its command to the end."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._candidate: Candidate | None = None

    def begin(self) -> None:
        """Stands for election."""
        self._candidate = Candidate(self._registry)
        self._candidate.stand()

    def end(self) -> None:
        """Leases nothing more."""
        if self._candidate:
            self._candidate.withdraw()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Leaves it to others meanwhile: this process is about to be stopped."""
        self.end()
        yield
        self.begin()
