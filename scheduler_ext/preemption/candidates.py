"""Whose departure would let a pod onto a node: who may be asked to leave, and in which order.

Least of all a pod whose departure violates a disruption budget; then rather burst than guaranteed memory,
rather a namespace beyond its guarantee than one within, rather low than high priority, rather a pod without a
group than one that its group cannot go on without, rather few than many, rather young than old. A pod that
has not run for as long as it may be left alone is not asked at all.

Pods that are leaving anyhow count as gone, until `OVERDUE_SECONDS` after they should have ended. One that is still
there then counts as staying: its kubelet may never answer again.

Whether quotas let the pod in is asked as after the departure (`Borrowing.barred`). Where they do not, or a caller
objects to the pods that were found, some of these are spared and the search goes on with the others.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from aliquot.request.placement import Placement
from aliquot.request.placement_policy import DEFAULT, Policy
from aliquot.request.pod_request import PodRequest
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.cards.fit import still_fits
from aliquot.scheduler_ext.preemption.disruption_budgets import Budgets
from aliquot.scheduler_ext.preemption.victims import (
    Leavers,
    Victim,
    least,
    place_after,
    relieved,
    willing_first,
)
from aliquot.scheduler_ext.quota.borrowing import Borrowing
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.ledger import Entry, Ledger, Stage
from aliquot.scheduler_ext.state.node_resources import NodeResources
from aliquot.scheduler_ext.state.running_pods import RunningPod, RunningPods

Class = tuple[bool, bool, bool]
"""Of a pod or a set: whether it violates a budget, has guaranteed memory, is within its guarantee. False goes first."""

Rank = tuple[bool, bool, bool, int, bool]
"""How gladly a pod goes: its class, its priority, whether its group needs it to go on; the lowest goes first."""

WORST: Class = (True, True, True)
OVERDUE_SECONDS: Final = 30.0
UNBOUND: Final = (Stage.HELD, Stage.RESERVED)
"""Of pods that have a place, those that may not come to run there."""
"""How long a pod is waited for that has not ended when it should have."""
MOST_SEARCHES: Final = 32
"""Of one node, for one pod; each but the first spares somebody whom the one before has found."""
Objection = Callable[[Sequence[RunningPod]], Collection[str]]
"""Which pods of those found must stay, by UID; none where all may go."""
CARD_POLICY = DEFAULT.card or Policy.BINPACK


@dataclass(frozen=True)
class Departure:
    """Who leaves a node for a pod.

    Attributes:
        node: The node.
        pods: Who is made to leave, those first that go most gladly.
        violations: How many of them leave beyond what a disruption budget allows.
        reluctance: How gladly each of them goes: its rank, and how long ago it started, as a negative time.
        last_resort: It is to be preferred to no other node's.
    """

    node: str
    pods: tuple[RunningPod, ...]
    violations: int = 0
    reluctance: tuple[tuple[Rank, float], ...] = ()
    last_resort: bool = False

    @cached_property
    def worst(self) -> Class:
        """The class of the one that goes least gladly; all False for nobody."""
        return max(self.reluctance)[0][:3] if self.reluctance else (False, False, False)

    @cached_property
    def cost(self) -> tuple[bool, list[Rank], list[float]]:
        """What it costs beside other nodes' departures, as `victims` compares sets: ranks, then ages."""
        ordered = sorted(self.reluctance, reverse=True)
        return self.last_resort, [rank for rank, _ in ordered], [age for _, age in ordered]


@dataclass
class Candidates:
    """Finds whom to evict.

    Attributes:
        ledger: Who holds what.
        running_pods: Who they are.
        budgets: The disruption budgets.
        quotas: Who is beyond their guarantee.
        min_run_seconds: How long any pod is left alone after its start.
        clock: Seconds since 1970.
        cut: Counts searches that were broken off.
        breaks: Whether a pod's group would have fewer members than it needs without it, and has enough with it.
    """

    ledger: Ledger
    running_pods: RunningPods
    budgets: Budgets
    quotas: Quotas
    min_run_seconds: float = 0.0
    clock: Callable[[], float] = time.time
    card_policy: Policy = field(default=CARD_POLICY)
    cut: Callable[[], object] = lambda: None
    breaks: Callable[[str], bool] = lambda _: False
    _evicted: dict[str, float] = field(default_factory=dict)

    def note_eviction(self, uid: str) -> None:
        """A pod was evicted here, which the watch may show only later: until then it counts as being deleted.

        One that is not shown as such `OVERDUE_SECONDS` later was not deleted after all.
        """
        self._evicted[uid] = self.clock()

    def told(self, uids: Iterable[str]) -> bool:
        """Whether all of these pods are being deleted, were evicted here, or are gone."""
        return all(pod.deleted or pod.uid in self._evicted for pod in map(self.running_pods.get, uids) if pod)

    def leaving(self) -> list[str]:
        """The UIDs of the pods that will have ended soon, as far as is known."""
        evicted = [pod for pod in map(self.running_pods.get, self._evicted) if pod and not pod.deleted]
        self._evicted = {pod.uid: self._evicted[pod.uid] for pod in evicted if self.leaves(pod)}
        return [*self._evicted, *(pod.uid for pod in self.running_pods.deleted() if self.leaves(pod))]

    def borrowing(self, gone: Collection[str] = (), own: str = "") -> Borrowing:
        """Who is beyond their guarantee once those that leave, and these, have left: good for one decision.

        `own`: the node on which room is the own of the pod that is decided about.
        """
        told = (pod.uid for pod in map(self.running_pods.get, gone) if pod and self._goes(pod, gone))
        unbound = (entry.uid for entry in self.ledger.unconfirmed() if entry.stage in UNBOUND)
        return Borrowing(self.quotas, {*self.leaving(), *told}, frozenset(unbound), own)

    def leaves(self, pod: RunningPod) -> bool:
        """Whether a pod is being deleted and will have ended soon, as far as is known."""
        if pod.leaves_by is None:
            return self.clock() < self._evicted.get(pod.uid, -math.inf) + OVERDUE_SECONDS
        return self.clock() < pod.leaves_by + OVERDUE_SECONDS

    def _goes(self, pod: RunningPod, gone: Collection[str]) -> bool:
        """Whether a pod leaves in any case, as far as is known; `gone`: the UIDs of those that were told to."""
        return self.leaves(pod) or (not pod.deleted and pod.uid in gone)

    def kept(self, uid: str) -> bool:
        """Whether a disruption budget lets nobody evict this pod now."""
        pod = self.running_pods.get(uid)
        return pod is not None and self.budgets.spares(pod)

    def settled(self, pod: RunningPod, borrowing: Borrowing) -> bool:
        """Whether a pod has run for as long as it is left alone."""
        spared = max(self.min_run_seconds, borrowing.min_run_seconds(pod.namespace))
        return not spared or self.clock() - pod.started >= spared

    def rank(self, pod: RunningPod, over: Collection[str], borrowing: Borrowing) -> Rank:
        """How gladly a pod goes, where these violate a budget."""
        classed = pod.uid in over, not pod.burst, not borrowing.is_over(pod.namespace)
        return *classed, pod.priority, self.breaks(pod.uid)

    def departure(
        self,
        request: PodRequest,
        node: str,
        borrowing: Borrowing,
        may_go: Callable[[RunningPod], bool],
        *,
        gone: Collection[str] = (),
        within_budgets: bool = False,
        limit: Class = WORST,
        cards: Sequence[CardState] | None = None,
        objection: Objection = lambda _: (),
    ) -> Departure | None:
        """Who would have to leave a node for a pod; None where nobody's leaving helps.

        Args:
            request: What the pod asks for.
            node: The node.
            borrowing: Who is beyond their guarantee.
            may_go: Whether a pod may be evicted at all.
            gone: The UIDs of pods that leave in any case, because somebody else has said so.
            within_budgets: Rather nobody than one whose departure violates a budget.
            limit: Rather nobody than one of a worse class.
            cards: The node's cards as they are, where the caller has read them.
            objection: Which of those found the caller would rather have stay.
        """
        there = self.running_pods.on(node)
        spared = self.min_run_seconds or borrowing.spares_anybody
        if cards is None or self.ledger.entry(request.uid) is not None:
            cards = self.ledger.cards_without(node, request.uid)
        evicted, away, left = list[RunningPod](), list[Victim](), dict[str, tuple[RunningPod, Entry]]()
        for pod, entry in there:
            if not (pod.deleted or pod.uid in gone or self.leaves(pod)):
                if may_go(pod) and (not spared or self.settled(pod, borrowing)):
                    left[pod.uid] = pod, entry
            elif self._goes(pod, gone):
                away.append(_leaver(pod, entry))
                if pod.uid in gone:
                    evicted.append(pod)
        limit = min(limit, (False, True, True)) if within_budgets else limit
        stuck = {pod.uid for pod, _ in there if pod.uid in gone and not self._goes(pod, gone)} if gone else ()
        ending = {*gone, *(leaver.uid for leaver in away)}.difference(stuck)
        short = self._short_of_slices(request, node, ending)
        search = _Search(self, request, node, relieved(cards, away), short, borrowing, evicted, left, limit)
        sure = (
            borrowing.sure(request, node)
            and self.ledger.hosts.takes_pods(node)
            and all(map(_frees_what_it_had, cards))
        )
        found = self._repeat(search, sure=sure, objection=objection)
        if found is None or self._short_of_host(request, node, {*ending, *(pod.uid for pod in found.pods)}):
            return None
        return found

    def _repeat(self, search: "_Search", *, sure: bool, objection: Objection) -> Departure | None:
        """Search until quotas and the caller are content with those found; `sure`: quotas are, whoever leaves.

        Of several pods that open a guarantee together the later ones stay; where that leads nowhere, the earlier ones.
        """
        request, borrowing, node = search.request, search.borrowing, search.node
        if not sure and borrowing.barred(request, node):
            search.spare([pod.uid for pod in search.pods() if borrowing.within(pod, request.namespace)])
        left = dict(search.left)
        found = self._narrow(search, 1, sure=sure, objection=objection)
        if found is None and search.ordered:
            search.left = left
            found = self._narrow(search, -1, sure=sure, objection=objection)
        return found

    def _narrow(self, search: "_Search", order: int, *, sure: bool, objection: Objection) -> Departure | None:
        """Search again and again, each time of fewer pods than before; `order`: -1 spares the earlier ones."""
        request, borrowing, node = search.request, search.borrowing, search.node
        for _ in range(MOST_SEARCHES):
            found = search.run()
            if found is None:
                return None
            fresh = found.pods[len(search.evicted) :]
            barred = not sure and bool(borrowing.barred(request, node, found.pods))
            stay = borrowing.reopening(fresh[::order], request.namespace) if barred else objection(fresh)
            if not stay:
                return None if barred else found
            search.ordered |= barred
            search.spare(stay)
        self.cut()
        return None

    def _short_of_slices(self, request: PodRequest, node: str, away: Iterable[str]) -> int:
        """How many slices a node lacks for a pod once these have left it; less than none where it has more."""
        hosts, entry = self.ledger.hosts, self.ledger.entry(request.uid)
        own = [request.uid] if entry is not None and entry.node == node else []
        return request.host.slices - hosts.slices_left(node) - _slices(hosts, [*own, *away])

    def _short_of_host(self, request: PodRequest, node: str, away: Iterable[str]) -> bool:
        """Whether a node lacks CPU or memory for a pod once these have left it, beside what is held for others."""
        return self.ledger.hosts.lacks(node, request.host, [request.uid, *away])

    def objection(self, request: PodRequest, node: str, borrowing: Borrowing) -> Objection:
        """Who has to stay where a pod would borrow: whoever is within a guarantee."""
        if not borrowing.has_quotas:
            return lambda _: ()
        wanted = self.quotas.wanted(request, node)
        return lambda pods: borrowing.spared(pods, request.namespace, wanted, request.uid)

    def stands(
        self,
        request: PodRequest,
        placement: Placement,
        may_go: Callable[[RunningPod], bool],
        gone: Collection[str],
        *,
        own: str = "",
    ) -> bool:
        """Whether a pod could have the very place held for it, once those have left that leave, and who else has to.

        `own`: the node on which room is its own already.
        """
        node, borrowing = placement.node, self.borrowing(gone, own)
        cards = self.ledger.cards_without(node, request.uid)
        away = self._away(node, gone)
        if still_fits(placement, relieved(cards, away)):
            return not (borrowing.barred(request, node) or self.will_be_short_of_host(request, node, gone))
        objection = self.objection(request, node, borrowing)
        departure = self.departure(
            request, node, borrowing, may_go, gone=gone, within_budgets=True, objection=objection
        )
        if departure is None:
            return False
        uids = {pod.uid for pod in departure.pods if not self._goes(pod, gone)}
        away += [_leaver(pod, entry) for pod, entry in self.running_pods.on(node) if pod.uid in uids]
        return still_fits(placement, relieved(cards, away))

    def frees(self, request: PodRequest, placement: Placement, gone: Collection[str]) -> bool:
        """Whether those that are leaving free this very place for a pod, and nobody else has to."""
        cards = self.ledger.cards_without(placement.node, request.uid)
        return still_fits(placement, relieved(cards, self._away(placement.node, gone)))

    def will_be_short_of_host(
        self, request: PodRequest, node: str, gone: Collection[str], aside: Collection[str] = ()
    ) -> bool:
        """Whether a node will lack CPU or memory for a pod beside what is held for others, but for these aside."""
        if not self._short_of_host(request, node, ()):
            return False
        stay = {pod.uid for pod, _ in self.running_pods.on(node) if not self._goes(pod, gone)}
        leave = {*self.leaving(), *gone}.difference(stay)
        return self._short_of_host(request, node, leave.union(aside))

    def _away(self, node: str, gone: Collection[str]) -> list[Victim]:
        """What they leave on a node who leave it in any case."""
        return [_leaver(pod, entry) for pod, entry in self.running_pods.on(node) if self._goes(pod, gone)]

    def place(
        self,
        request: PodRequest,
        node: str,
        may_go: Callable[[RunningPod], bool],
        gone: Collection[str],
        *,
        own: str = "",
    ) -> Placement | None:
        """Where a pod goes once those have left that are leaving, and if that is not enough whoever else has to.

        `own`: the node on which room is its own already.
        """
        away = self._away(node, gone)
        cards, borrowing = self.ledger.cards_without(node, request.uid), self.borrowing(gone, own)
        placement = place_after(request, node, cards, away, self.card_policy)
        if placement is not None:
            out = borrowing.barred(request, node) or self.will_be_short_of_host(request, node, gone)
            return None if out else placement
        objection = self.objection(request, node, borrowing)
        departure = self.departure(
            request, node, borrowing, may_go, gone=gone, within_budgets=True, objection=objection
        )
        if departure is None:
            return None
        uids = {pod.uid for pod in departure.pods}
        there = self.running_pods.on(node)
        away += [_leaver(pod, entry) for pod, entry in there if pod.uid in uids - set(gone)]
        return place_after(request, node, cards, away, self.card_policy)


@dataclass
class _Search:
    """One node's question; `ordered`: some pods were spared because others come before them."""

    candidates: Candidates
    request: PodRequest
    node: str
    cards: list[CardState]
    short: int
    borrowing: Borrowing
    evicted: list[RunningPod]
    left: dict[str, tuple[RunningPod, Entry]]
    limit: Class
    ordered: bool = False

    def pods(self) -> list[RunningPod]:
        """Those who may leave."""
        return [pod for pod, _ in self.left.values()]

    def spare(self, uids: Iterable[str]) -> None:
        """Have these stay."""
        for uid in uids:
            self.left.pop(uid, None)

    def run(self) -> Departure | None:
        """The departure; looked for once more where the first found violates a budget by its number."""
        if self.evicted:
            beyond = {uid for uid, (pod, _) in self.left.items() if self._violates([], pod)}
        else:
            spares, strict = self.candidates.budgets.spares, self.candidates.budgets.strict
            beyond = {uid for uid, (pod, _) in self.left.items() if pod.namespace in strict and spares(pod)}
        while (found := self._least(beyond)) is not None:
            over = self.candidates.budgets.violated_by([*self.evicted, *found])
            fresh = self._beyond(found, over) - beyond
            if not fresh:
                return self._departure(found, over)
            beyond |= fresh
        return None

    def _violates(self, leaving: Iterable[RunningPod], pod: RunningPod) -> bool:
        return self.candidates.budgets.beside([*self.evicted, *leaving], pod)

    def _beyond(self, found: list[RunningPod], over: set[str]) -> set[str]:
        """Who violates a budget beside these: the least willing of them, and others that could stand in for it."""
        if not over:
            return set()
        kept = [pod for pod in found if pod.uid not in over]
        others = (pod for pod, _ in self.left.values() if pod not in kept)
        return {pod.uid for pod in others if self._violates(kept, pod)}

    def _least(self, beyond: set[str]) -> list[RunningPod] | None:
        """The least set, where these violate a budget."""
        highest = (*self.limit, math.inf)
        leavers = [
            Victim(uid, entry.placement.charges(), rank, pod.started)
            for uid, (pod, entry) in self.left.items()
            if (rank := self._rank(pod, beyond)) <= highest
        ]
        policy = self.candidates.card_policy
        found = least(self.request, self.node, self.cards, leavers, policy)
        enough = None if found is None else self._with_slices(found, leavers)
        return None if enough is None else [self.left[leaver.uid][0] for leaver in enough]

    def _with_slices(self, found: Leavers, leavers: Iterable[Victim]) -> Leavers | None:
        """These, and who has to leave with them so that the node has slices left; None where all are not enough.

        That is seldom anybody: what a card lacks is found first, and a node has as many slices as its cards.
        """
        hosts = self.candidates.ledger.hosts
        short, chosen = (
            self.short - _slices(hosts, (one.uid for one in found)),
            {one.uid: one for one in found},
        )
        for leaver in willing_first(leavers) if short > 0 else ():
            given = hosts.of(leaver.uid).slices
            if short > 0 and given and leaver.uid not in chosen:
                chosen[leaver.uid] = leaver
                short -= given
        return tuple(chosen.values()) if short <= 0 else None

    def _departure(self, found: list[RunningPod], over: set[str]) -> Departure:
        """What is answered, where these violate a budget; those that leave in any case are in it."""
        pods = [*self.evicted, *found]
        reluctance = tuple((self._rank(pod, over), -pod.started) for pod in pods)
        return Departure(self.node, tuple(pods), len(over), reluctance)

    def _rank(self, pod: RunningPod, over: Collection[str]) -> Rank:
        """How gladly a pod goes, where these violate a budget."""
        return self.candidates.rank(pod, over, self.borrowing)


def _slices(hosts: NodeResources, uids: Iterable[str]) -> int:
    """What pods hold of their nodes' slices."""
    return sum(hosts.of(uid).slices for uid in uids)


def _frees_what_it_had(card: CardState) -> bool:
    """Whether as much more can be promised of a card as leaves it."""
    return (
        card.healthy
        and not card.mig
        and card.used_mib <= card.usable_mib + card.extra_mib
        and card.used_cores <= card.usable_cores
        and card.used_slots <= card.slots
    )


def _leaver(pod: RunningPod, entry: Entry) -> Victim:
    return Victim(pod.uid, entry.charges, 0, pod.started)
