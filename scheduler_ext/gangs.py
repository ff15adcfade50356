"""Groups of pods get their places all or nothing.

kube-scheduler asks for one pod at a time, other pods between them. At the first call for a member the places of all
members that wait are taken in one go, which nothing can come between, or none is. The others find theirs
when they are asked for. Nobody is bound before as many as the group needs have come to bind: kube-scheduler may still
find something wrong with a node, and then all places are given back and none of the pods runs.

    wait for members --all fit--> held --asked for--> offered --bind comes--> ready --enough are--> admitted, bound
            ^                      |______________________________________________|
            +------ rest <---------------- time is up, a member has gone, or one finds no place

What is guaranteed: a group either has places for as many as it needs, or for none, so no two groups can wait for each
other's; one group at a time may save up (`saving`). A group that holds places holds them for its time limit at most,
and then rests for at least as long as it held them, twice as long each time it fails again, up to eight times: others
have at least every second minute. A bound pod is never unbound. After a restart the places are gone, and the groups are
placed anew.

What grows: the members of groups. A failed look costs one search for each kind of member.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from aliquot.kube.objects import Pod
from aliquot.placement import Placement
from aliquot.request import PodRequest, RequestError
from scheduler_ext.fit import still_fits
from scheduler_ext.gang import Gang, Look, Member
from scheduler_ext.groups import UNSAID, GroupKey, Terms, group_of, terms_of
from scheduler_ext.ledger import Ledger
from scheduler_ext.passed_over import PassedOver
from scheduler_ext.pods import PlacedPod
from scheduler_ext.reasons import GROUP
from scheduler_ext.saving import PATIENCE_SECONDS, Saving
from scheduler_ext.waiting import Waiter, Waiting, canonical
from scheduler_ext.wire import FilterResult

HOLD_SECONDS: Final = 60.0
"""How long the places of a group wait until enough members have come to bind."""
BIND_PATIENCE_SECONDS: Final = 3.0
"""How long a bind call waits for the others; after it kube-scheduler tries again, and the place is kept."""

PLACED: Final = Pod()
"""What is kept of a member that is on its node."""

_log = logging.getLogger(__name__)


class GangError(Exception):
    """A member may not be bound now; the message says why."""


class Finder(Protocol):
    """Where a pod would go; `Filter` has it."""

    def find(self, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> Placement | FilterResult:
        """The place of a pod without one, or why it gets none; nothing is reserved or learned."""


class Gangs:
    """All groups of the cluster.

    Attributes:
        given_back: How often a group has given its places back.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Waiting,
        passed_over: PassedOver,
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
            passed_over: Is told which nodes members have been to in vain.
            read: What a pod asks for; RequestError when that makes no sense.
            clock: Monotonic seconds.
            hold_seconds: How long places are held where the group does not say; 0 heeds no groups.
            bind_patience: How long a bind call waits for the others, in seconds.
            saving_seconds: How long a group finds no room before it saves up places; 0 lets none.
        """
        self._ledger = ledger
        self._waiting = waiting
        self._passed_over = passed_over
        self._read = read
        self._clock = clock
        self._hold_seconds = hold_seconds
        self._bind_patience = bind_patience
        self.given_back = 0
        self._saving = Saving(saving_seconds)
        self._finder: Finder | None = None
        self._gangs: dict[GroupKey, Gang] = {}
        self._of: dict[str, Gang] = {}

    def all(self) -> list[Gang]:
        """The groups."""
        return list(self._gangs.values())

    def goes_together(self, pod: Pod) -> bool:
        """Whether a pod that waits gets its place only with others."""
        key = group_of(pod.metadata, pod.spec.scheduling_group)
        gang = self._gangs.get(key) if key is not None and self._hold_seconds else None
        return gang is not None and self._together(gang)

    def why(self, uid: str) -> str:
        """What keeps a member of a group without its place, in words; empty for a pod that goes alone or has one."""
        gang = self._of.get(uid)
        if gang is None or not self._together(gang) or gang.reserved(uid):
            return ""
        return gang.obstacle(self._clock()) or gang.why

    def states(self) -> Counter[str]:
        """How many groups there are, by how far they have come."""
        return Counter(self._state(gang) for gang in self._gangs.values() if gang.members)

    def _state(self, gang: Gang) -> str:
        if not self._together(gang):
            return "running"
        if gang is self.saver:
            return "saving"
        if gang.since is not None:
            return "holding"
        return "resting" if self._clock() < gang.rest else "waiting"

    @property
    def saver(self) -> Gang | None:
        """The group that keeps places before it has all that it needs."""
        return self._saving.saver

    # ---- what the watches say ----

    def put_terms(self, key: GroupKey, terms: Terms) -> None:
        """Take over what a PodGroup says; nothing, when it is gone."""
        gang = self._gang(key)
        if gang.said != terms:
            gang.said = terms
            self._waiting.something_changed()
        self._tidy_away(gang)

    def see(self, pod: PlacedPod) -> None:
        """Take note of a pod as the watch shows it."""
        key = pod.group
        if key is None or not self._hold_seconds:
            return
        uid, leaving = pod.metadata.uid, pod.metadata.deletion_timestamp is not None
        if leaving or pod.status.phase == "Failed":
            self.depart(uid)
            return
        if pod.spec.node_name or pod.finished:
            self._put(key, uid, Member(PLACED, None, terms_of(pod.metadata), placed=True))
        else:
            self._put_pending(key, pod.asking(), gated=bool(pod.spec.scheduling_gates))

    def depart(self, uid: str) -> None:
        """A pod is gone, or its work has failed; without enough members left the others give their places back."""
        gang = self._of.pop(uid, None)
        if gang is None:
            return
        gang.drop(uid)
        self._heed_losses(gang)
        self._tidy_away(gang)

    def _put_pending(self, key: GroupKey, pod: Pod, *, gated: bool = False) -> None:
        try:
            asked = self._read(pod)
        except RequestError as error:
            _log.warning("pod %s of group %s is left out: %s", pod.key, key, error)
            return
        request = asked if asked.wants_slices else None
        gang = self._of.get(pod.metadata.uid)
        nodes = gang.members[pod.metadata.uid].nodes if gang else None
        member = Member(pod, request, terms_of(pod.metadata), gated=gated, nodes=nodes)
        self._put(key, pod.metadata.uid, member)

    def _put(self, key: GroupKey, uid: str, member: Member) -> None:
        gang = self._gang(key)
        self._of[uid] = gang
        before = gang.members.get(uid)
        gang.members[uid] = member
        if before is None or (before.gated, before.placed) != (member.gated, member.placed):
            self._waiting.something_changed()

    def _gang(self, key: GroupKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key, self._ledger)
        return gang

    def _tidy_away(self, gang: Gang) -> None:
        if not gang.members:
            gang.short_since = None
            if gang.said == UNSAID:
                self._gangs.pop(gang.key, None)

    # ---- what filter asks ----

    def answer(
        self, finder: Finder, pod: Pod, request: PodRequest, nodes: Sequence[str]
    ) -> FilterResult | None:
        """Answer filter for a member of a group; None for a pod that goes alone."""
        self._finder = finder
        self._save_more()
        gang = self._member(pod, nodes)
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
        self._waiting.refused(pod, request, nodes, GROUP, told=why)
        if gang.told != why:
            gang.told = why
            self._waiting.somebody_to_tell()
        return FilterResult([], FailedAndUnresolvableNodes=dict.fromkeys(nodes, why))

    def would_place(self, finder: Finder, pod: Pod, request: PodRequest, nodes: Sequence[str]) -> bool | None:
        """Whether filter would name a node now; None for a pod that goes alone."""
        gang = self._member(pod, nodes)
        if gang is None or not self._together(gang):
            return None
        if gang.obstacle(self._clock()):
            return False
        if gang.reserved(request.uid):
            return True
        if gang.look.changes != self._waiting.changes:
            with self._waiting.trial():
                placed = self._place_all(gang, finder, canonical(frozenset(nodes)))
                gang.look = self._looked(gang)
                self._release(placed)
        return gang.look.enough and request.uid in gang.look.uids

    def _looked(self, gang: Gang) -> Look:
        return Look(self._waiting.changes, gang.whole, gang.covered, frozenset(gang.held))

    def _member(self, pod: Pod, nodes: Sequence[str]) -> Gang | None:
        """The group of the pod of a call, once it is known what the pod was offered."""
        key = group_of(pod.metadata, pod.spec.scheduling_group)
        if key is None or not self._hold_seconds:
            return None
        uid = pod.metadata.uid
        if uid not in self._of:
            self._put_pending(key, pod)
        gang = self._of.get(uid)
        if gang is not None:
            self._note_offer(gang, uid, canonical(frozenset(nodes)))
        return gang

    def _note_offer(self, gang: Gang, uid: str, nodes: tuple[str, ...]) -> None:
        member = gang.members[uid]
        if member.nodes is not nodes:
            gang.members[uid] = replace(member, nodes=nodes)
            gang.look = Look()

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
            self._passed_over.note(uid, entry.node)
        self._ledger.release(uid)
        for progress in (gang.offered, gang.ready, gang.admitted):
            progress.discard(uid)
        return None

    def _take(self, gang: Gang, finder: Finder, uid: str) -> str | None:
        """Take places for all, or for none; the node of this member's."""
        look = gang.look
        if look.changes == self._waiting.changes and not look.enough:
            gang.why = gang.fit(look.covered)
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
        with self._waiting.trial():
            placed = self._place_all(gang, finder, nodes)
            if gang.since is not None and not gang.whole and len(gang.held) > len(placed):
                self._release(uid for uid in gang.held if uid not in gang.ready)
                gang.offered &= gang.ready
                self._place_all(gang, finder, nodes)
            look = self._looked(gang)
            if not look.enough and gang is not self.saver:
                self._release(gang.held)
        if look.enough:
            self._has_all(gang)
            return True
        gang.short_since = self._clock() if gang.short_since is None else gang.short_since
        if gang.since is not None:
            self._give_back(gang, f"a member found no place, {gang.fit(look.covered).partition(': ')[2]}")
            self._waiting.something_changed()
        gang.why, gang.look = gang.fit(look.covered), replace(look, changes=self._waiting.changes)
        return False

    def _has_all(self, gang: Gang) -> None:
        gang.short_since, gang.saved = None, 0
        if gang is self.saver:
            self._saving.end(self._clock(), in_vain=False)
        self._waiting.something_changed()

    def _save_more(self) -> None:
        """Let the group that saves up take what has become free, before anybody else is answered."""
        gang = self.saver
        if gang is None or self._finder is None or gang.look.changes == self._waiting.changes:
            return
        nodes = next((m.nodes for m in gang.members.values() if m.nodes is not None), ())
        with self._waiting.trial():
            self._place_all(gang, self._finder, nodes)
        gang.look = self._looked(gang)
        if gang.whole:
            gang.since = self._clock()
            self._has_all(gang)

    def _heed_saving(self, now: float) -> None:
        if self._saving.over(now) and self.saver is not None:
            _log.info("group %s has saved up %d places in vain", self.saver.key, len(self.saver.held))
            self._release(self.saver.held)
            self._saving.end(now, in_vain=True)
        gang = self._saving.choose(self.all(), now)
        if gang is not None:
            _log.info("group %s saves up places", gang.key)
            gang.look = Look()
        self._save_more()

    def _place_all(self, gang: Gang, finder: Finder, nodes: tuple[str, ...]) -> list[str]:
        """Reserve a place for every member that has none and finds one; who they are.

        Members that kube-scheduler has not asked for yet are taken to be offered what this one was.
        """
        placed, hopeless = [], set()
        for member in gang.seekers():
            if member.request is None:
                continue
            offered = nodes if member.nodes is None else member.nodes
            kind = Waiter(member.pod, member.request, offered).kind
            if kind in hopeless:
                continue
            roomy = self._ledger.hosts.with_room(offered, member.request.host)
            found = finder.find(member.pod, member.request, roomy)
            if isinstance(found, Placement):
                self._ledger.reserve(member.request, found)
                placed.append(member.request.uid)
            else:
                hopeless.add(kind)
        return placed

    def _release(self, uids: Iterable[str]) -> None:
        for uid in tuple(uids):
            self._ledger.release(uid)

    def _spoilt(self, uid: str) -> bool:
        """Whether the cards of a member's place cannot hold it any more: they are unhealthy, smaller or gone."""
        entry = self._ledger.entry(uid)
        return entry is not None and not still_fits(entry.placement, self._ledger.cards_of(entry))

    def _heed_losses(self, gang: Gang) -> None:
        """Without as many places as it needs a group has none.

        A place may also come back to a group that has given up: of a write whose answer was lost, and which the API
        server knows nothing of.
        """
        if gang.since is None and (gang is self.saver or not (gang.held and gang.needed)):
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
                self._passed_over.note(uid, entry.node)
        gang.give_back(self._clock(), why)
        self.given_back += 1

    # ---- what bind asks ----

    def holds_up(self, uid: str) -> bool:
        """Whether a pod may be bound only with others."""
        gang = self._of.get(uid)
        return gang is not None and self._together(gang)

    async def admit(self, uid: str, node: str) -> None:
        """Return when a pod may be bound to this node: at once for one that goes alone.

        Raises:
            GangError: not enough members have come, or its place is gone.
        """
        gang = self._of.get(uid)
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
        self._heed_saving(now)
        for gang in self.all():
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
