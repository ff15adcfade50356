"""Keeps the room that others had to leave for the pod that they left for.

kube-scheduler evicts a pod's victims, writes the node into the pod's `status.nominatedNodeName` and tries the pod again
when they have gone. In between it keeps what it counts itself free for it, and cards it does not count. So a nominated
pod's place is held in the ledger, at the expense of those that are still leaving: nobody of the same or a lower
priority gets it. A pod of higher priority does, if it finds no other place.

A place is held, too, for a pod that needs no more than that pods leave which are leaving already (`expect`): what they
leave is counted for one waiting pod, not for each.

kube-scheduler evicts once: where one of those does not end in time, and the place needs another one then, the pod is
`late`, and others may be evicted for it while its place is held.

What is held counts as the pod's own, as if it ran there: whatever room is lost elsewhere, and whatever others are
guaranteed, only its own limits can keep it from there.

A hold ends when the pod gets its place, goes, or loses its nomination: where all have been told to leave, 30 s after
that, because kube-scheduler takes it away, too, when it has seen them go and filter has not yet. It ends as well when
the pod could not use the place: a card has failed, a pod that was to leave has not ended in time, its own limits close
it, or its node has taken no pods for 30 s (`review`). A fresh extender learns of nominations from the pods themselves.
What grows: an entry for each waiting pod that was nominated or whose preemption was asked for.
"""

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aliquot.kube.objects import Pod
from aliquot.request.host_resources import NO_HOST, HostShare
from aliquot.request.placement import Placement
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS, Candidates
from aliquot.scheduler_ext.state.ledger import Entry, Ledger, Stage
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.pods import PlacedPod

NOWHERE: Final = ("", sys.maxsize)
"""Of a pod that has no room of its own: after all that have."""


@dataclass(frozen=True)
class Claim:
    """A waiting pod that room is made for.

    Attributes:
        request: What it asks for.
        priority: Its priority.
        leaving: Who was to leave which node for it, by UID, as far as that was asked here.
    """

    request: PodRequest
    priority: int
    leaving: Mapping[str, tuple[str, ...]]


class Nominations:
    """The places that are held."""

    def __init__(self, ledger: Ledger, waiting: PendingPods, candidates: Candidates) -> None:
        """Hold nothing yet.

        Args:
            ledger: Where the places are held.
            waiting: Says whom filter refuses.
            candidates: Who may be asked to leave.
        """
        self._ledger = ledger
        self._waiting = waiting
        self._candidates = candidates
        self._claims: dict[str, Claim] = {}
        self._nominated: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._granted: dict[str, str] = {}
        self._expected: dict[str, tuple[str, float]] = {}  # the node, and until when
        self._lost: dict[str, str] = {}
        self._closed: dict[str, float] = {}  # since when a node takes no pods
        self._kept_on: dict[str, tuple[str, int]] = {}
        self._numbers = itertools.count()
        waiting.on_refusal(self.claim)

    def claim(
        self, pod: Pod, request: PodRequest, leaving: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        """A pod waits for room; `leaving`: by node, who is about to leave for it."""
        if self._ledger.departed(request.uid):
            return
        known = self._claims.get(request.uid)
        plan = leaving or (known.leaving if known else {})
        self._claims[request.uid] = Claim(request, pod.spec.priority or 0, plan)
        node = pod.status.nominated_node_name
        if node and node != self._nominated.get(request.uid):  # the watch has not shown that yet
            self._expect_for_a_while(request.uid, node)
        self._keep(request.uid)

    def see(self, pod: PlacedPod) -> None:
        """A waiting pod as the cluster has it: nominated or not."""
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if node == self._nominated.get(uid, ""):
            return
        own, now = self.kept_on(uid), self._candidates.clock()
        self._let_go(uid)
        self._lost.pop(uid, None)
        if node:
            self._nominated[uid] = node
            self._since[uid] = now
        else:
            self._nominated.pop(uid, None)
            self._since.pop(uid, None)
            if own:  # the pod may have been tried a moment before the watch showed that its victims have gone
                self._expect_for_a_while(uid, own)
        self._keep(uid)

    def grant(self, uid: str, node: str) -> None:
        """Somebody here has others leave this node for a pod that waits: as good as a nomination."""
        entry = self._ledger.entry(uid)
        if entry is not None and entry.node != node:
            self._let_go(uid)
        elif entry is not None and entry.stage is Stage.HELD:
            self._own(uid, node)
        self._granted[uid] = node
        self._keep(uid)

    def expect(self, uid: str, node: str) -> None:
        """Pods that are leaving this node leave enough for one that waits."""
        self._expected[uid] = node, math.inf
        self._keep(uid)

    def _expect_for_a_while(self, uid: str, node: str) -> None:
        """The watch is about to show that others have left this node for a pod."""
        self._expected.setdefault(uid, (node, self._candidates.clock() + OVERDUE_SECONDS))

    def expect_nothing(self, uid: str) -> None:
        """What pods that are leaving leave is of no use to a pod any more."""
        if self._expected.pop(uid, None) is not None:
            self._let_go(uid)
            self._keep(uid)

    def review(self) -> None:
        """Hold nothing any more that its pod could not use, or has not come for; called from time to time."""
        self._note_closed()
        for uid in [uid for uid in self._expected if self._is_over(uid)]:
            self.expect_nothing(uid)
        for uid in {**self._nominated, **self._granted, **self._expected}:
            claim, entry = self._claims.get(uid), self._ledger.entry(uid)
            if claim is None or (entry and (entry.stage is not Stage.HELD or self._usable(claim))):
                continue
            with self._waiting.trial():
                if entry:  # without one its right to the room is as before: a reservation may just have ended
                    self._let_go(uid)
                self._keep(uid)
            if self._ledger.entry(uid) is None:
                self._lose(uid)
                if entry:
                    self._waiting.something_changed()

    def _note_closed(self) -> None:
        """Note since when nodes with held places take no pods."""
        nodes = {*self._nominated.values(), *(node for node, _ in self._expected.values())}
        closed, now = (
            nodes.difference(self._ledger.hosts.open_to(list(nodes), NO_HOST)),
            self._candidates.clock(),
        )
        self._closed = {node: self._closed.get(node, now) for node in closed}

    def _is_closed(self, node: str) -> bool:
        """Whether a node has taken no pods for so long that no pod should wait for it."""
        return self._candidates.clock() - self._closed.get(node, math.inf) >= OVERDUE_SECONDS

    def _is_over(self, uid: str) -> bool:
        """Whether what was expected for a pod is awaited no longer: its time is over, or another pod has had it."""
        claim, entry, (node, until) = self._claims.get(uid), self._ledger.entry(uid), self._expected[uid]
        if self._candidates.clock() >= until or self._is_closed(node):
            return True
        if claim is None or entry is None or entry.stage is not Stage.HELD:
            return False
        gone = claim.leaving.get(entry.node, ())
        return not self._candidates.frees(claim.request, entry.placement, gone)

    def _lose(self, uid: str) -> None:
        """The place that a pod was to get cannot be held: it waits for that no longer."""
        self._expected.pop(uid, None)
        self._kept_on.pop(uid, None)
        if uid not in self._granted and uid in self._nominated:
            self._lost[uid] = self._nominated[uid]

    def lost(self, uid: str) -> str:
        """The node nominated for a pod, where nothing can be held for it; empty where there is none."""
        return self._lost.get(uid, "")

    def lost_for_long(self) -> list[PodRequest]:
        """The pods for which nothing can be held on the node that was nominated for them long ago."""
        since = self._candidates.clock() - OVERDUE_SECONDS
        return [self._claims[uid].request for uid in self._lost if self._since[uid] < since]

    def late(self, uid: str) -> str:
        """The node nominated for a pod long ago where its place needs others to leave than those who do; else empty."""
        claim, entry = self._claims.get(uid), self._ledger.entry(uid)
        if claim is None or entry is None or uid in self._granted or self._nominated.get(uid) != entry.node:
            return ""
        waited = self._candidates.clock() - self._since[uid]
        gone = claim.leaving.get(entry.node, ())
        comes = waited <= OVERDUE_SECONDS or self._candidates.frees(claim.request, entry.placement, gone)
        return "" if comes else entry.node

    def comes(self, uid: str, gone: Collection[str]) -> bool:
        """Whether nobody else has to leave for the place held where others leave by somebody here's doing.

        `gone`: the UIDs of those that were evicted.
        """
        claim, entry = self._claims.get(uid), self._ledger.entry(uid)
        if claim is None or entry is None or self._granted.get(uid) != entry.node:
            return False
        return self._candidates.frees(claim.request, entry.placement, gone)

    def granted(self, uid: str) -> str:
        """The node that others leave for a pod by somebody here's doing; empty where there is none."""
        return self._granted.get(uid, "")

    def revoke(self, uid: str) -> None:
        """Nobody leaves a node for this pod any more; what kube-scheduler has nominated stands."""
        self._granted.pop(uid, None)
        self._let_go(uid)
        self._keep(uid)

    def forget(self, uid: str) -> None:
        """A pod has got its place, or is gone."""
        for known in (self._nominated, self._granted, self._expected, self._lost):
            known.pop(uid, None)
        self._since.pop(uid, None)
        if self._claims.pop(uid, None) is not None:  # without a claim nothing is held
            self._let_go(uid)

    def node_of(self, uid: str) -> str:
        """The node that a waiting pod is about to get; empty where there is none."""
        nominated = "" if uid in self._lost else self._nominated.get(uid, "")
        return self._granted.get(uid) or nominated or self._expected.get(uid, NOWHERE)[0]

    def nominated_hosts(self, uid: str, priority: int) -> Mapping[str, HostShare]:
        """What kube-scheduler keeps of nodes for others of no lower priority for which nothing is held here."""
        kept = defaultdict[str, HostShare](HostShare)
        for other, node in self._nominated.items():
            claim = self._claims.get(other) if other != uid else None
            if claim is not None and claim.priority >= priority and not self._held(other):
                kept[node] += claim.request.host
        return kept

    def kept_on(self, uid: str) -> str:
        """The node on which a pod has room of its own, as all have been told to leave that it was to have it from.

        It is held, or was until a moment ago. Empty where there is none.
        """
        claim, (node, _) = self._claims.get(uid), self._kept_on.get(uid, NOWHERE)
        return node if claim is not None and self._candidates.told(claim.leaving.get(node, ())) else ""

    def held_later(self, uid: str) -> list[str]:
        """The UIDs of pods of no higher priority whose places were held after this one's, or are not their own.

        Of what still has to leave they are the ones that wait for it.
        """
        claim, number = self._claims.get(uid), self._number(uid)
        if claim is None:
            return []
        lower = [other for other, theirs in self._held_claims() if theirs.priority <= claim.priority]
        return [other for other in lower if self._number(other) > number]

    def _number(self, uid: str) -> int:
        """Orders the pods with room of their own by when it became theirs, before all others."""
        return self._kept_on.get(uid, NOWHERE)[1]

    def full_nodes(self, request: PodRequest, priority: int) -> frozenset[str]:
        """The nodes without CPU or memory for a pod beside the pods of no lower priority for which others have left.

        A place is held for these, or reserved: kube-scheduler may not have got that answer. What other pods have
        reserved, or is held for them, does not count.
        """
        found, at = set[str](), (Stage.HELD, Stage.RESERVED)
        first = {uid: claim for uid, claim in self._claims_at(*at) if claim.priority >= priority}
        for uid, claim in first.items():
            entry = self._ledger.entry(uid)
            if entry is None or uid == request.uid:
                continue
            there = (one for one in self._ledger.on(entry.node) if one.stage in at)
            aside = [one.uid for one in there if one.uid not in first]
            gone = claim.leaving.get(entry.node, ())
            if self._candidates.will_be_short_of_host(request, entry.node, gone, aside):
                found.add(entry.node)
        return frozenset(found)

    def below(self, priority: int) -> list[str]:
        """The UIDs of pods of lower priority for which a place is held."""
        return [uid for uid, claim in self._held_claims() if claim.priority < priority]

    def _held_claims(self) -> list[tuple[str, Claim]]:
        """The pods for which a place is held, by UID: few of those that wait."""
        return self._claims_at(Stage.HELD)

    def _claims_at(self, *stages: Stage) -> list[tuple[str, Claim]]:
        """The pods for which room was made and whose places are at one of these stages."""
        uids = {**self._nominated, **self._granted, **self._expected}
        places = [(uid, self._ledger.entry(uid), self._claims.get(uid)) for uid in uids]
        return [(uid, claim) for uid, entry, claim in places if claim and entry and entry.stage in stages]

    @contextmanager
    def aside(self, priority: int) -> Iterator[list[str]]:
        """Nothing is held for pods of lower priority meanwhile; their UIDs.

        Where others have taken places by then, these get theirs again only as far as quotas let them.
        """
        lower, kept_on = self.below(priority), dict(self._kept_on)
        places = [entry for entry in map(self._ledger.entry, lower) if entry is not None]
        before = {entry.uid for entry in self._ledger.unconfirmed()} if lower else set[str]()
        for uid in lower:
            self._let_go(uid)
        try:
            yield lower
        finally:
            if lower and all(entry.uid in before for entry in self._ledger.unconfirmed()):
                self._put_back(places, kept_on)
            for uid in lower:
                self._keep(uid)

    def _put_back(self, places: Iterable[Entry], kept_on: dict[str, tuple[str, int]]) -> None:
        """Hold what was put aside as if it had not been."""
        for entry in places:
            if entry.request is not None:
                self._ledger.hold(entry.request, entry.placement)
        self._kept_on = kept_on

    def _held(self, uid: str) -> bool:
        entry = self._ledger.entry(uid)
        return entry is not None and entry.stage is Stage.HELD

    def _own(self, uid: str, node: str) -> None:
        """What is held for a pod is its own, after whatever is held already."""
        if self._kept_on.get(uid, NOWHERE)[0] != node:
            self._kept_on[uid] = node, next(self._numbers)

    def _let_go(self, uid: str) -> None:
        self._kept_on.pop(uid, None)
        if self._held(uid):
            self._ledger.release(uid)

    def _keep(self, uid: str) -> None:
        """Hold the pod's place, if it is known where and what, and it has none.

        If need be that is at the expense of what is held for pods of lower priority. Their places are held again
        afterwards, if they can be, at the expense of still lower ones: the priority decreases with each step.
        """
        claim = self._claims.get(uid)
        if claim is None or self._ledger.entry(uid) is not None:
            return
        for node, more in itertools.product(self._nodes_for(uid), (False, True)):
            if self._hold(claim, node, more=more):
                return
            with self.aside(claim.priority) as lower:
                if lower and self._hold(claim, node, more=more):
                    return

    def _nodes_for(self, uid: str) -> list[str]:
        """Where a pod's place may be held, the first that has one."""
        granted = self._granted.get(uid)
        expected, _ = self._expected.get(uid, NOWHERE)
        found = (granted,) if granted else (self._nominated.get(uid), expected)
        return [node for node in found if node and not self._is_closed(node)]

    def _hold(self, claim: Claim, node: str, *, more: bool) -> bool:
        """Whether a place could be held on this node; `more`: one that still others would have to leave."""
        uid = claim.request.uid
        placement = self._place(claim, node, more=more)
        if placement is None:
            return False
        self._ledger.hold(claim.request, placement)
        if not more:
            self._own(uid, node)
        self._lost.pop(uid, None)
        return True

    def _usable(self, claim: Claim) -> bool:
        """Whether a pod could have the very place that is held for it, once those have gone that leave."""
        entry = self._ledger.entry(claim.request.uid)
        if entry is None or self._is_closed(entry.node):
            return False
        return self._candidates.stands(
            claim.request,
            entry.placement,
            lambda pod: pod.priority < claim.priority,
            frozenset(claim.leaving.get(entry.node, ())),
            own=self.kept_on(claim.request.uid),
        )

    def _place(self, claim: Claim, node: str, *, more: bool) -> Placement | None:
        return self._candidates.place(
            claim.request,
            node,
            lambda pod: more and pod.priority < claim.priority,
            frozenset(claim.leaving.get(node, ())),
            own=self.kept_on(claim.request.uid),
        )
