"""Keeps the places of a group that has its turn, and the node that a large pod waits for (`partial_reservations`)."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from aliquot.scheduler_ext.gang.gang import Gang, Look
from aliquot.scheduler_ext.gang.large_pods import LargePods
from aliquot.scheduler_ext.gang.partial_reservations import PartialReservations, Saver
from aliquot.scheduler_ext.gang.search import Finder, GangSearch
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods

_log = logging.getLogger(__name__)


class SavedPlaces:
    """What is kept for the one that saves up.

    Attributes:
        finder: Where pods would go; None before the first call.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: PendingPods,
        search: GangSearch,
        clock: Callable[[], float],
        seconds: float,
    ) -> None:
        """Keep nothing yet.

        Args:
            ledger: Where places are held.
            waiting: Who waits.
            search: Finds groups their places.
            clock: Monotonic seconds.
            seconds: How long a group finds no room before it saves up places; 0 lets none.
        """
        self.finder: Finder | None = None
        self._ledger = ledger
        self._waiting = waiting
        self._search = search
        self._clock = clock
        self._saving = PartialReservations(seconds)
        self._large = LargePods(waiting, clock)

    @property
    def saver(self) -> Saver | None:
        """Whose turn it is."""
        return self._saving.saver

    def kept_from(self, uid: str, priority: int) -> str:
        """The node that is kept for a large pod, and not for the pod of this UID; empty where none is."""
        node = self._saving.kept_from(uid, priority)
        return "" if node in self._ledger.no_saving else node

    def below(self, priority: int) -> Iterable[str]:
        """The UIDs of pods whose places a group of lower priority has saved."""
        saver = self._saving.gang
        return tuple(saver.held) if saver is not None and saver.priority < priority else ()

    @contextlib.contextmanager
    def aside(self, priority: int) -> Iterator[bool]:
        """What a group of lower priority has saved is free meanwhile; whether there is any."""
        saver, finder = self._saving.gang, self.finder
        if saver is None or finder is None or saver.priority >= priority or not saver.held:
            yield False
            return
        with self._waiting.trial():
            self._release(saver)
        try:
            yield True
        finally:
            self._take_places(saver, finder)

    def take_more(self) -> None:
        """Let the group that saves up take what has become free, before anybody else is answered."""
        gang = self._saving.gang
        if gang is None or self.finder is None or gang.look.changes == self._waiting.changes:
            return
        self._take_places(gang, self.finder)
        if gang.whole:
            gang.since = self._clock()
            self.has_all(gang)

    def has_all(self, gang: Gang) -> None:
        """A group has found as many places as it needs."""
        gang.short_since, gang.saved, gang.too_large = None, 0, False
        if gang is self._saving.saver:
            self._saving.end(self._clock(), in_vain=False)
        self._waiting.something_changed()

    def give_turn(self, gang: Gang) -> None:
        """It is this group's turn, unless another saves up, or nothing may be kept for it."""
        if self._may_save(gang) and self._saving.begin(gang, self._clock()):
            self._begin_turn(gang)

    def tidy(self, gangs: Iterable[Gang], now: float) -> None:
        """End the turn that is over, and begin the next."""
        before = self._saving.saver
        if before is not None and (self._saving.over(now) or not self._may_save(before)):
            self._end_turn(before)
            served = not isinstance(before, Gang) and self._waiting.get(before.request.uid) is None
            self._saving.end(now, in_vain=not served)
            before = None
        savers: list[Saver] = [*gangs, *self._large.all()]
        chosen = self._saving.choose(filter(self._may_save, savers), self._could_fit, now)
        if chosen is not None:
            if before is not None:
                self._end_turn(before)
            _log.info("%s saves up places", chosen)
            self._begin_turn(chosen)
        self.take_more()

    def _may_save(self, one: Saver) -> bool:
        """Whether it may go to any node on which places may be kept."""
        nodes = self._ledger.no_saving
        return not nodes or not nodes.issuperset(one.offered_nodes)

    def _could_fit(self, one: Saver) -> bool:
        """Whether a group or a large pod would have room if no other pod were in the cluster."""
        if self.finder is None:
            return False
        if isinstance(one, Gang):
            return self._search.could_fit(one, self.finder)
        closed = self.finder.closed_for_good(one.pod) | self._ledger.no_saving
        one.node = self._large.choose_node(one, self._ledger.table, closed)
        return bool(one.node) and not self.finder.beyond_quotas([one.request])

    def _begin_turn(self, one: Saver) -> None:
        if isinstance(one, Gang):
            one.look = Look()

    def _end_turn(self, one: Saver) -> None:
        """What was saved is free."""
        if isinstance(one, Gang):
            _log.info("%s gives up %d places that it has saved", one, len(one.held))
            self._release(one)
        else:
            self._waiting.something_changed()

    def _take_places(self, gang: Gang, finder: Finder) -> None:
        with self._waiting.trial():
            _, look = self._search.place_all(gang, finder, gang.offered_nodes)
            if not gang.whole:
                for uid in self.not_kept(gang):
                    self._ledger.release(uid)
        self._search.note(gang, look)

    def not_kept(self, gang: Gang) -> list[str]:
        """The UIDs of members whose places a group gives up that has not found all: all, but for what it saves up."""
        if gang is not self.saver:
            return list(gang.held)
        entries = filter(None, map(self._ledger.entry, gang.held))
        return [entry.uid for entry in entries if entry.node in self._ledger.no_saving]

    def _release(self, gang: Gang) -> None:
        for uid in gang.held:
            self._ledger.release(uid)
