"""Groups of pods get their places all or nothing.

kube-scheduler asks for one pod at a time, other pods between them. At the first call for a member the places of all
members that wait are taken in one go, which nothing can come between, or none is. The others find theirs
when they are asked for. Nobody is bound before as many as the group needs have come to bind: kube-scheduler may still
find something wrong with a node, and then all places are given back and none of the pods runs.

    wait for members --all fit--> held --asked for--> offered --bind comes--> ready --enough are--> admitted, bound
            ^                      |______________________________________________|
            +------ rest <---------------- time is up, a member has gone, or one finds no place

What is guaranteed: a group either has places for as many as it needs, or for none, so no two groups can wait for each
other's; one group at a time may save up (`partial_reservations`). A group that holds places holds them for its time
limit at most, and then rests for at least as long as it held them, twice as long each time it fails again, up to eight
times: others have at least every second minute. A bound pod is never unbound. After a restart the places are gone, and
the groups are placed anew.

What grows: the members of groups. A failed look costs one search for each kind of member.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from aliquot.api.pod_groups import GroupKey, group_of
from aliquot.kube.objects import Pod
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.fit import still_fits
from aliquot.scheduler_ext.gang.gang import Gang, Look
from aliquot.scheduler_ext.gang.partial_reservations import PATIENCE_SECONDS, Saver
from aliquot.scheduler_ext.gang.pod_groups import Terms
from aliquot.scheduler_ext.gang.registry import GangRegistry
from aliquot.scheduler_ext.gang.saved_places import SavedPlaces
from aliquot.scheduler_ext.gang.search import Finder, GangSearch
from aliquot.scheduler_ext.kube_scheduler.wire import FilterResult
from aliquot.scheduler_ext.placement.reasons import GROUP
from aliquot.scheduler_ext.state.ledger import Ledger, Stage
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPods, canonical
from aliquot.scheduler_ext.state.pods import PlacedPod

HOLD_SECONDS: Final = 60.0
"""How long the places of a group wait until enough members have come to bind."""
BIND_PATIENCE_SECONDS: Final = 3.0
"""How long a bind call waits for the others; after it kube-scheduler tries again, and the place is kept."""

_log = logging.getLogger(__name__)


class GangError(Exception):
    """A member may not be bound now; the message says why."""


class Gangs:
    """All groups of the cluster.

    Attributes:
        given_back: How often a group has given its places back.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: PendingPods,
        node_backoff: NodeBackoff,
        read: Callable[[Pod], PodRequest],
        *,
        clock: Callable[[], float] = time.monotonic,
        hold_seconds: float = HOLD_SECONDS,
        bind_patience: float = BIND_PATIENCE_SECONDS,
        saving_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Know no group yet.

        Args:
            ledger: Where places are held.
            waiting: Who waits, and is woken.
            node_backoff: Is told which nodes members have been to in vain.
            read: What a pod asks for; RequestError when that makes no sense.
            clock: Monotonic seconds.
            hold_seconds: How long places are held where the group does not say; 0 heeds no groups.
            bind_patience: How long a bind call waits for the others, in seconds.
            saving_seconds: How long a group finds no room before it saves up places; 0 lets none.
        """
        self._ledger = ledger
        self._waiting = waiting
        self._node_backoff = node_backoff
        self._clock = clock
        self._hold_seconds = hold_seconds
        self._bind_patience = bind_patience
        self.given_back = 0
        self._search = GangSearch(ledger, waiting)
        self._saved = SavedPlaces(ledger, waiting, self._search, clock, saving_seconds)
        self._groups = GangRegistry(ledger, waiting, read)

    def all(self) -> list[Gang]:
        """The groups."""
        return self._groups.all()

    def of(self, uid: str) -> Gang | None:
        """The group of a pod that is known to be in one."""
        return self._groups.of(uid)

    def finds_room(self, gang: Gang, finder: Finder) -> bool:
        """Whether a group that waits would find places for as many members as it needs now; nothing is reserved."""
        with self._waiting.trial(), self._saved.aside(gang.priority):
            return self._search.probe(gang, finder, gang.offered_nodes).enough

    def places(self, gang: Gang, finder: Finder) -> dict[str, Placement]:
        """Places for as many members as a group needs, by UID; none where it has not enough. None is reserved."""
        with self._waiting.trial(), self._saved.aside(gang.priority):
            look, found = self._search.arrangement(gang, finder, gang.offered_nodes)
        return found if look.enough else {}

    def take_turn(self, gang: Gang) -> None:
        """Others leave for this group: it keeps what becomes free, unless another saves up already."""
        self._saved.give_turn(gang)

    def goes_together(self, pod: Pod) -> bool:
        """Whether a pod that waits gets its place only with others; so it is for all that is known of a new group."""
        key = group_of(pod.metadata, pod.spec.scheduling_group)
        if key is None or not self._hold_seconds:
            return False
        gang = self._groups.get(key)
        return gang is None or self._together(gang)

    def breaks(self, uid: str) -> bool:
        """Whether a pod's group would have fewer members than it needs without it, and has enough with it."""
        gang = self._groups.of(uid)
        return gang is not None and gang.breaks_without(uid)

    def waits_for_others(self, pod: Pod) -> bool:
        """Whether room for this pod alone would be of no use: its group lacks others besides."""
        key = group_of(pod.metadata, pod.spec.scheduling_group)
        if key is None or not self._hold_seconds:
            return False
        gang = self._groups.get(key)
        return gang is None or gang.terms.members is None or gang.needed > 1

    def why(self, uid: str) -> str:
        """What keeps a member of a group without its place, in words; empty for a pod that goes alone or has one."""
        gang = self._groups.of(uid)
        if gang is None or not self._together(gang) or gang.reserved(uid):
            return ""
        return gang.obstacle(self._clock()) or gang.why

    def states(self) -> Counter[str]:
        """How many groups there are, by how far they have come."""
        there = (gang for gang in self.all() if len(gang.members) > len(gang.earlier))
        return Counter(map(self._state, there))

    def _state(self, gang: Gang) -> str:
        if not self._together(gang):
            return "running"
        if gang is self._saved.saver:
            return "saving"
        if gang.since is not None:
            return "holding"
        return "resting" if self._clock() < gang.rest else "waiting"

    @property
    def saver(self) -> Saver | None:
        """The group that keeps places before it has all that it needs, or the large pod that a node is kept for."""
        return self._saved.saver

    def keeps(self, uid: str) -> bool:
        """Whether a pod's place is held by its group, which says itself for how long."""
        gang = self._groups.of(uid)
        return gang is not None and gang.since is not None

    def differs(self, uid: str) -> bool:
        """Whether a member may have a place where others of its kind get none, or the other way round."""
        gang = self._groups.of(uid)
        return gang is not None and gang.look.enough

    def kept_from(self, uid: str, priority: int) -> str:
        """The node that is kept for a large pod, and not for the pod of this UID; empty where none is."""
        return self._saved.kept_from(uid, priority)

    def saved_below(self, priority: int) -> Iterable[str]:
        """The UIDs of pods whose places a group of lower priority has saved."""
        return self._saved.below(priority)

    def saved_aside(self, priority: int) -> AbstractContextManager[bool]:
        """What a group of lower priority has saved is free meanwhile; whether there is any."""
        return self._saved.aside(priority)

    # ---- what the watches say ----

    def put_terms(self, key: GroupKey, terms: Terms) -> None:
        """Take over what a PodGroup says; nothing, when it is gone."""
        self._groups.put_terms(key, terms)

    def see(self, pod: PlacedPod) -> None:
        """Take note of a pod as the watch shows it."""
        key = pod.group
        if key is None or not self._hold_seconds:
            return
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            self.depart(pod.metadata.uid)
        else:
            self._groups.put(key, pod)

    def depart(self, uid: str) -> None:
        """A pod is gone, or its work has failed; without enough members left the others give their places back."""
        gang = self._groups.drop(uid)
        if gang is not None:
            self._heed_losses(gang)

    # ---- what filter asks ----

    def answer(
        self, finder: Finder, pod: Pod, request: PodRequest, nodes: Sequence[str]
    ) -> FilterResult | None:
        """Answer filter for a member of a group; None for a pod that goes alone."""
        self._saved.finder = finder
        self._saved.take_more()
        gang = self._called(pod, nodes)
        if gang is None or not self._together(gang):
            return None
        why = gang.obstacle(self._clock())
        if why and not gang.rest:
            gang.short_since = None
        if not why:
            place = self._held_for(gang, request.uid, nodes) if gang.whole else None
            place = place or self._take(gang, finder, request.uid)
            if place is not None:
                gang.offered.add(request.uid)
                self._waiting.forget(request.uid)
                return FilterResult([place])
            why = gang.why
        alone = not gang.obstacle(self._clock()) and not self.waits_for_others(pod)
        reason = finder.reason_against(pod, request, nodes) if alone else GROUP
        self._waiting.refused(pod, request, nodes, reason, told=why)
        if gang.told != why:
            gang.told = why
            self._waiting.somebody_to_tell()
        return FilterResult([], FailedAndUnresolvableNodes=dict.fromkeys(nodes, why))

    def would_place(self, finder: Finder, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool | None:
        """Whether filter would name a node now; None for a pod that goes alone."""
        gang = self._called(pod, nodes)
        if gang is None or not self._together(gang):
            return None
        if gang.obstacle(self._clock()):
            return False
        if gang.reserved(request.uid):
            return True
        if gang.look.changes != self._waiting.changes:
            with self._waiting.trial(), self._saved.aside(gang.priority):
                look = self._search.probe(gang, finder, canonical(frozenset(nodes)))
            self._search.note(gang, look)
        return gang.look.enough and request.uid in gang.look.uids

    def _called(self, pod: Pod, nodes: Sequence[str]) -> Gang | None:
        return self._groups.called(pod, nodes) if self._hold_seconds else None

    @staticmethod
    def _together(gang: Gang) -> bool:
        """Whether its members may not go alone; while nobody says how many it needs they may not."""
        return gang.terms.members is None or gang.needed > 0

    def _held_for(self, gang: Gang, uid: str, nodes: Sequence[str]) -> str | None:
        """The node of the place that is held for a member; one that has been of no use is given up."""
        entry = self._ledger.entry(uid)
        if entry is None or not gang.reserved(uid):
            return None
        came = uid in gang.ready and uid not in gang.admitted
        in_vain = uid in gang.offered and not came
        if entry.node in nodes and gang.since is not None and not in_vain and not self._spoilt(uid):
            return entry.node
        if in_vain:
            self._node_backoff.note(uid, entry.node)
        self._ledger.release(uid)
        for progress in (gang.offered, gang.ready, gang.admitted):
            progress.discard(uid)
        return None

    def _take(self, gang: Gang, finder: Finder, uid: str) -> str | None:
        """Take places for all, or for none; the node of this member's."""
        look = gang.look
        if look.changes == self._waiting.changes and not look.enough:
            gang.why = gang.fit(look)
            return None
        if not self._try(gang, finder, gang.members[uid].nodes or ()):
            return None
        gang.since = self._clock() if gang.since is None else gang.since
        entry = self._ledger.entry(uid)
        if entry is None:
            gang.why = f"group {gang.key}: its other members have places; for this one there is none"
            return None
        return entry.node

    def _try(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> bool:
        """Beside the places that are held, then in place of those that nobody has come to bind to yet."""
        with self._waiting.trial(), self._search.aside(gang):
            look = self._place(gang, finder, nodes)
            if not look.enough:
                with self._saved.aside(gang.priority) as anything:
                    look = self._place(gang, finder, nodes) if anything else look
                    if not look.enough:
                        self._release(self._saved.not_kept(gang))
        self._search.note(gang, look)
        if look.enough:
            self._saved.has_all(gang)
            return True
        gang.short_since = self._clock() if gang.short_since is None else gang.short_since
        if gang.since is not None:
            self._give_back(gang, f"a member found no place, {gang.fit(look).partition(': ')[2]}")
            self._waiting.something_changed()
            self._search.note(gang, look)
        gang.why = gang.fit(look)
        return False

    def _place(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> Look:
        """Take places, at the expense of those that are held and that nobody has come to bind to."""
        placed, look = self._search.place_all(gang, finder, nodes)
        if gang.since is not None and not look.enough and len(gang.held) > len(placed):
            self._release(uid for uid in gang.held if uid not in gang.ready)
            gang.offered &= gang.ready
            _, look = self._search.place_all(gang, finder, nodes)
        return look

    def _release(self, uids: Iterable[str]) -> None:
        for uid in tuple(uids):
            self._ledger.release(uid)

    def _spoilt(self, uid: str) -> bool:
        """Whether the cards of a member's place cannot hold it any more: they are unhealthy, smaller or gone.

        Room that is held for others is more than there is until those have gone that leave it.
        """
        entry = self._ledger.entry(uid)
        if entry is None:
            return False
        held = [one.uid for one in self._ledger.on(entry.node) if one.stage is Stage.HELD and one.uid != uid]
        with self._waiting.trial(), self._ledger.without(*held):
            return not still_fits(entry.placement, self._ledger.cards_of(entry))

    def _heed_losses(self, gang: Gang) -> None:
        """Without as many places as it needs a group has none.

        A place may also come back to a group that has given up: of a write whose answer was lost, and which the API
        server knows nothing of.
        """
        if gang.since is None and (gang is self._saved.saver or not (gang.held and gang.needed)):
            return
        if not gang.whole:
            self._give_back(gang, "a member or its place has gone")
        elif gang.since is None:
            gang.since = self._clock()

    def _give_back(self, gang: Gang, why: str) -> None:
        _log.info("group %s gives %d places back: %s", gang.key, len(gang.held), why)
        in_vain = gang.offered - gang.ready
        for uid in in_vain:
            entry = self._ledger.entry(uid)
            if entry is not None:
                self._node_backoff.note(uid, entry.node)
        gang.give_back(self._clock(), why)
        self.given_back += 1

    # ---- what bind asks ----

    def holds_up(self, uid: str) -> bool:
        """Whether a pod may be bound only with others."""
        gang = self._groups.of(uid)
        return gang is not None and self._together(gang)

    async def admit(self, uid: str, node: str) -> None:
        """Return when a pod may be bound to this node: at once for one that goes alone.

        Raises:
            GangError: not enough members have come, or its place is gone.
        """
        gang = self._groups.of(uid)
        if gang is None or not self._together(gang):
            return
        self._release(one for one in gang.held if self._spoilt(one))
        self._heed_losses(gang)
        entry = self._ledger.entry(uid)
        if entry is None or entry.node != node or gang.since is None:
            raise GangError(f"group {gang.key} holds no place on {node} for this pod any more; try again")
        if uid in gang.admitted:
            return
        gang.ready.add(uid)
        gang.offered.add(uid)
        if sum(map(gang.reserved, gang.ready)) >= gang.needed:
            _log.info("group %s is admitted", gang.key)
            gang.since = self._clock()
            gang.admit()
            return
        await self._wait(gang, uid)

    async def _wait(self, gang: Gang, uid: str) -> None:
        least, decided = gang.terms.members or 0, gang.decided
        try:
            async with asyncio.timeout(self._bind_patience):
                await decided.wait()
        except TimeoutError:
            come = least - gang.needed + sum(map(gang.reserved, gang.ready))
            what = f"{come} of the {least} members that it needs have come to bind"
            raise GangError(f"group {gang.key}: {what}; this pod's place is kept, try again") from None
        if uid not in gang.admitted:
            raise GangError(f"group {gang.key} has given its places back: {gang.given_back}")

    # ---- what time says ----

    async def run(self) -> None:
        """Heed time limits until cancelled."""
        while True:
            self.tidy()
            await asyncio.sleep(min(1.0, self._hold_seconds or 1.0))

    def tidy(self) -> None:
        """Do what is due now."""
        now = self._clock()
        self._saved.tidy(self.all(), now)
        for gang in self.all():
            gang.note_below(now)
            self._heed_losses(gang)
            if gang.since is not None:
                self._tidy(gang, now)
            elif gang.rest and now >= gang.rest:
                gang.rest = 0.0
                self._waiting.something_changed()

    def _tidy(self, gang: Gang, now: float) -> None:
        seconds = gang.terms.seconds or self._hold_seconds
        if now - (gang.since or 0.0) < seconds:
            return
        held, come = gang.held, sum(map(gang.reserved, gang.ready))
        if held and gang.needed:
            self._give_back(gang, f"after {seconds:g} s {come} of its {len(held)} places had been come for")
        else:
            gang.forget_progress()
