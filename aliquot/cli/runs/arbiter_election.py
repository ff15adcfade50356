"""One of a user's runs has the cards' time leased to all of them: the one that holds the lock on <home>/arbiter.

The `aliquot` of every run waits for that lock in a thread. When its holder ends, killed or not, the kernel gives it to
the next one; until that one has looked around, each run is held to its share by its own clock, as its page says.
Pages are written under the registry's lock by whoever changes something, and the arbiter is told afterwards.
"""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from aliquot.cli.options import Refusal
from aliquot.cli.runs.registry import Registry

if TYPE_CHECKING:
    from aliquot.cli.runs.arbiter_host import ArbiterHost

LOOK_EVERY_S = 0.1
COUNT_EVERY_LOOKS = 5
"""A run that nobody tells of, as one that ends after its `aliquot` was killed, is missed as late as this."""


class Candidate:
    """A run's part in the election, once: `stand`, then `withdraw`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lessor: ArbiterHost | None = None
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._lock_file: IO[str] | None = None

    def stand(self) -> None:
        """Waits in a thread to be elected, and then leases. Without the lock's file nobody is."""
        with suppress(OSError):
            self._lock_file = self._registry.arbiter_lock.open("a")
            threading.Thread(target=self._serve, args=[self._lock_file], name="arbiter", daemon=True).start()

    def withdraw(self) -> None:
        """Leases nothing more; another can be elected when this returns, whatever the thread is about to do."""
        with self._turn:
            self._over.set()
            if self._lessor:
                self._lessor.stop()
        if self._lock_file:
            self._lock_file.close()

    def _serve(self, office: IO[str]) -> None:
        try:
            with suppress(OSError, ValueError):  # of a file that was closed meanwhile
                fcntl.flock(office, fcntl.LOCK_EX)
                self._take_lock_file()
                self._look_on()
        finally:
            self.withdraw()  # who does not look any more must not keep others from it

    def _take_lock_file(self) -> None:
        """Only who is elected takes the time to load an arbiter, when its command runs already."""
        from aliquot.cli.runs.arbiter_host import ArbiterHost

        with self._turn:
            self._lessor = ArbiterHost(self._registry)

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
                if self._lessor and not self._over.is_set():
                    self._lessor.follow(limits)


class ArbiterElection:
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
