"""The cluster at one moment as an administrator adds it up: what is taken of each card and quota, and what would fit.

Everything is read from the objects that the API server has, and worked out anew by trying all possibilities. No code
is shared with the extender. Where the rules come from: docs/requests.md (amounts), docs/quota.md (who gets what),
docs/preemption.md (whose departure may make room) and docs/gang.md (places for all members at once).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from tests.model.views import (
    NOTHING,
    Amounts,
    Card,
    Node,
    PodView,
    Quota,
    node_of,
    plus,
    rest,
    view,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tests.model.api_server import ApiServer


@dataclass(frozen=True)
class Snapshot:
    """Everything that counts.

    Attributes:
        before: The same before the departures that are asked about.
        promises: Pods that wait whose quotas are charged already.
        begun: The same before the first member of a group had its place.
    """

    nodes: dict[str, Node]
    cards: tuple[Card, ...]
    quotas: tuple[Quota, ...]
    pods: tuple[PodView, ...]
    before: Snapshot | None = None
    promises: tuple[PodView, ...] = ()
    begun: Snapshot | None = None

    @classmethod
    def of(cls, server: ApiServer) -> Snapshot:
        """The cluster as the API server has it now."""
        percent = next((one["spec"]["memoryPercent"] for one in server.objects["gpupools"].values()), 100)
        nodes = {name: node_of(name, obj) for name, obj in server.objects["nodes"].items()}
        cards = tuple(
            Card(
                one["uuid"],
                name,
                one["memoryMiB"],
                obj["status"]["slicesPerCard"],
                percent,
                one["health"] == "Healthy",
            )
            for name, obj in sorted(server.objects["gpunodes"].items())
            for one in obj["status"]["cards"]
        )
        quotas = tuple(Quota.of(obj) for _, obj in sorted(server.objects["gpuquotas"].items()))
        pods = tuple(
            view(pod) for pod in server.pods() if pod["status"].get("phase") not in ("Succeeded", "Failed")
        )
        return cls(nodes, cards, quotas, pods)

    def without(self, uids: Iterable[str]) -> Snapshot:
        """The same once these pods have gone."""
        gone = frozenset(uids)
        pods = tuple(pod for pod in self.pods if pod.uid not in gone)
        return replace(self, pods=pods, before=self.before or self)

    def without_cards_of(self, uids: Iterable[str]) -> Snapshot:
        """The same once these pods have given up cards and slices, and not their CPU."""
        gone = frozenset(uids)
        idle = (
            replace(pod, cards=0, places=(), namespace="") if pod.uid in gone else pod for pod in self.pods
        )
        return replace(self, pods=tuple(idle), before=self.before or self)

    def unbounded(self) -> Snapshot:
        """The same with CPU for all on every node, none of which is cordoned."""
        nodes = {name: replace(node, cpu=1 << 30, usable=True) for name, node in self.nodes.items()}
        return replace(self, nodes=nodes)

    @cached_property
    def bound(self) -> tuple[PodView, ...]:
        """The pods that have a node."""
        return tuple(pod for pod in self.pods if pod.node)

    @property
    def waiting(self) -> tuple[PodView, ...]:
        """The pods that have none, and are not being deleted."""
        return tuple(pod for pod in self.pods if not pod.node and not pod.leaving)

    @cached_property
    def taken(self) -> dict[str, Card]:
        """All cards with what the bound pods have of them, a terminating one's part included."""
        found = {card.uuid: card for card in self.cards}
        for pod in self.bound:
            for uuid, memory, cores in pod.places:
                if uuid in found:
                    found[uuid] = found[uuid].taking(memory, cores, whole=pod.whole, burst=pod.burst)
        return found

    # ---- quotas: docs/quota.md, "Limits, guarantees and borrowing" ----

    def quota_of(self, namespace: str) -> Quota | None:
        """The first, by name, that lists the namespace."""
        return next((quota for quota in self.quotas if namespace in quota.namespaces), None)

    def levels(self, namespace: str) -> tuple[Quota, ...]:
        """The quota of a namespace, and that one's parent."""
        own = self.quota_of(namespace)
        return () if own is None else (own, *(one for one in self.quotas if one.name == own.parent))

    def below(self, quota: Quota) -> list[Quota]:
        """The children of a quota."""
        return [one for one in self.quotas if one.parent == quota.name]

    def used(self, quota: Quota) -> Amounts:
        """What the pods of a quota have, and of its children."""
        mine = self._usage.get(quota.name, NOTHING)
        return reduce(plus, (self.used(one) for one in self.below(quota)), mine)

    @cached_property
    def _usage(self) -> dict[str, Amounts]:
        found: dict[str, Amounts] = {}
        largest = max((card.memory for card in self.cards), default=0)
        for pod in (*self.bound, *self.promises):
            quota = self.quota_of(pod.namespace)
            if quota is not None:
                found[quota.name] = plus(found.get(quota.name, NOTHING), pod.demand(largest))
        return found

    def with_promises(self, but: str, priority: int, late: Collection[str] = ()) -> Snapshot:
        """The same, with what is promised to pods that wait, but for this one and those of lower priority.

        What is promised on late nodes, which a pod should have left by now, is perhaps no longer.
        The places of a group that has room may be promised to it already (docs/gang.md, step 2).
        """
        starting = {one.uid for members in self.groups().values() if self.starts(members) for one in members}
        sure = (one for one in self.waiting if one.goal not in late)
        promised = (one for one in sure if one.promised or one.uid in starting)
        waiting = (one for one in promised if one.uid != but and one.priority >= priority)
        return replace(self, promises=tuple(waiting))

    def guarantee(self, quota: Quota) -> Amounts:
        """What a quota guarantees: no less than its children do together."""
        beneath = reduce(plus, (self.guarantee(one) for one in self.below(quota)), NOTHING)
        mine = quota.guaranteed
        return (max(mine[0] or 0, beneath[0]), max(mine[1] or 0, beneath[1]), max(mine[2] or 0, beneath[2]))

    def open(self, quota: Quota) -> Amounts:
        """What a quota, and its children, have not come up to of their guarantees."""
        given, used = self.guarantee(quota), self.used(quota)
        beneath = reduce(plus, (self.open(one) for one in self.below(quota)), NOTHING)
        return tuple(max(0, given[i] - used[i], beneath[i]) for i in range(3))  # type: ignore[return-value]

    @cached_property
    def free(self) -> Amounts:
        """What healthy cards of nodes that take pods can still be promised; nothing where a card has no slice left.

        A group that gets its places together takes what it asks for of that, and nothing more.
        """
        if self.begun is not None:
            had = {pod.uid for pod in self.begun.bound}
            taken = (pod.demand(0) for pod in self.bound if pod.uid not in had)
            return rest(self.begun.free, reduce(plus, taken, NOTHING))
        cards = [
            card
            for card in self.taken.values()
            if card.healthy and self._takes_pods(card.node) and card.used_slots < card.slots
        ]
        return (
            sum(max(0, card.memory * card.percent // 100 - card.promised) for card in cards),
            sum(max(0, 100 - card.cores) for card in cards),
            sum(max(0, card.slots - card.used_slots) for card in cards),
        )

    def _usable(self, node: str) -> bool:
        return node in self.nodes and self.nodes[node].usable

    def _takes_pods(self, node: str) -> bool:
        """Whether a pod with a slice could come to a node."""
        there, own = [one for one in self.bound if one.node == node], self.nodes.get(node)
        if own is None or not own.usable:
            return False
        return sum(one.cpu for one in there) < own.cpu and sum(one.cards for one in there) < own.slices

    def promises_all_slices(self, node: str) -> bool:
        """Whether a node has no slice left beside those of its pods and of all that wait for what others leave."""
        pods = [one for one in self.pods if one.node == node or (one.promised and not one.node)]
        return node in self.nodes and sum(one.cards for one in pods) >= self.nodes[node].slices

    def owed(self, levels: tuple[Quota, ...]) -> Amounts:
        """What the quotas without a parent, but for the one above these, have not come up to of their guarantees."""
        tops = (one for one in self.quotas if not one.parent and one not in levels)
        return reduce(plus, (self.kept(one) for one in tops), NOTHING)

    def kept(self, top: Quota) -> Amounts:
        """What of a guarantee is open and not lent: of each child, and of what the quota guarantees beyond these."""
        earlier = (self.before or self).parts(top)
        parts = zip(self.parts(top), earlier, strict=True)
        return reduce(plus, (rest(now, then) if lent else now for (lent, now), (_, then) in parts), NOTHING)

    def parts(self, top: Quota) -> list[tuple[bool, Amounts]]:
        """Whether it is lent, and what is open."""
        children = [(one.reclaim, self.open(one)) for one in self.below(top)]
        beneath = reduce(plus, (amounts for _, amounts in children), NOTHING)
        return [*children, (top.reclaim, rest(self.open(top), beneath))]

    def owed_beside(self, levels: tuple[Quota, ...]) -> Amounts:
        """The same of the siblings of a quota."""
        siblings = [one for one in self.below(levels[-1]) if one is not levels[0]] if levels else []
        earlier = self.before or self
        kept = (
            rest(now, earlier.open(one)) if one.reclaim else now
            for one in siblings
            for now in [self.open(one)]
        )
        return reduce(plus, kept, NOTHING)

    def open_beside(self, levels: tuple[Quota, ...]) -> Amounts:
        """What the siblings of a quota have not come up to, lent or not."""
        siblings = self.below(levels[-1]) if levels else []
        return reduce(plus, (self.open(one) for one in siblings if one is not levels[0]), NOTHING)

    def allows(self, namespace: str, wanted: Amounts) -> bool:
        """Whether a pod that asks for so much may be let in."""
        levels = self.levels(namespace)
        beside = self.owed_beside(levels)
        owed = plus(self.owed(levels), beside)
        for i in range(3):
            if not wanted[i]:
                continue
            then = [self.used(one)[i] + wanted[i] for one in levels]
            if any(
                one.limit[i] is not None and much > one.limit[i]
                for one, much in zip(levels, then, strict=True)
            ):
                return False
            apart = zip(levels, then, (0, beside[i]), strict=False)
            within = [one for one, much, more in apart if much + more <= self.guarantee(one)[i]]
            if within:
                if within[0].reclaim and self._has_to_reclaim(i, wanted[i]):
                    return False
            elif owed[i] and wanted[i] + owed[i] > self.free[i]:
                return False
        return True

    def _has_to_reclaim(self, i: int, wanted: int) -> bool:
        """Whether what is free is kept for quotas that do not reclaim, and borrowers could give as much instead."""
        parts = (part for one in self.quotas if not one.parent for part in self.parts(one))
        kept = sum(amounts[i] for lent, amounts in parts if not lent)
        tops = (rest(self.used(one), self.guarantee(one)) for one in self.quotas if not one.parent)
        others = (pod.demand(0) for pod in self.bound if self.quota_of(pod.namespace) is None)
        borrowed = sum(one[i] for one in (*tops, *others))
        return kept > 0 and 0 < wanted + kept - self.free[i] <= borrowed

    def within_limit(self, pod: PodView, memory: int) -> bool:
        """Whether only the guarantees of others could keep a pod from its place."""
        wanted = pod.demand(memory)
        return all(
            not wanted[i] or one.limit[i] is None or self.used(one)[i] + wanted[i] <= one.limit[i]
            for one in self.levels(pod.namespace)
            for i in range(3)
        )

    def spares(self, victim: PodView, pod: PodView) -> bool:
        """Whether nobody may evict a pod for this one: it is within its guarantee, and this one would borrow."""
        theirs = self.levels(victim.namespace)
        if not theirs or not self.would_borrow(pod, theirs):
            return False
        has, used, given = victim.demand(0), self.used(theirs[0]), self.guarantee(theirs[0])
        return all(used[i] <= given[i] for i in range(3) if given[i]) and any(
            has[i] and given[i] for i in range(3)
        )

    def would_borrow(self, pod: PodView, theirs: tuple[Quota, ...]) -> bool:
        """Whether a pod takes its quotas, but for those that it has in common with these, beyond their guarantees."""
        mine = self.levels(pod.namespace)
        if mine and mine[0] == theirs[0]:
            return False
        wanted = pod.demand(max((card.memory for card in self.cards), default=0))
        return all(self._exceeds(one, wanted) for one in mine if one not in theirs)

    def _exceeds(self, quota: Quota, wanted: Amounts) -> bool:
        used, given = self.used(quota), self.guarantee(quota)
        names = [i for i in range(3) if given[i]] or range(3)
        return any(wanted[i] and used[i] + wanted[i] > given[i] for i in names)

    # ---- groups: docs/gang.md ----

    def groups(self) -> dict[tuple[str, str], list[PodView]]:
        """The members of each group that are not being deleted, by namespace and name."""
        found: dict[tuple[str, str], list[PodView]] = {}
        for pod in self.pods:
            if pod.group and not pod.leaving:
                found.setdefault((pod.namespace, pod.group), []).append(pod)
        return found

    def is_below_minimum(self, pod: PodView) -> bool:
        """Whether a pod's group runs with fewer members than it needs."""
        members = self.groups().get((pod.namespace, pod.group), [])
        return bool(pod.group) and sum(1 for one in members if one.node) < pod.members

    def group_before(self, victim: PodView) -> PodView | None:
        """A member that waits of the first group for which a pod may be evicted; None where there is no such group."""
        found = list[tuple[int, PodView]]()
        for members in self.groups().values():
            waiting, priority = [one for one in members if not one.node], min(one.priority for one in members)
            reclaims = any(quota.reclaim for quota in self.levels(members[0].namespace))
            if waiting and (priority > victim.priority or reclaims):
                found.append((-priority, waiting[0]))
        return min(found, key=lambda one: one[0], default=(0, None))[1]

    # ---- places ----

    def place(self, pod: PodView, node: str) -> tuple[str, ...]:
        """The first cards of a node that a pod fits on, quotas aside; nothing where there are none."""
        if not self._usable(node) or not self.has_host_room(pod, node):
            return ()
        fitting = [card.uuid for card in self._cards_of(node) if self._fits(card, pod)]
        return tuple(fitting[: pod.cards]) if len(fitting) >= pod.cards else ()

    def _cards_of(self, node: str) -> list[Card]:
        return [card for card in self.taken.values() if card.node == node]

    @staticmethod
    def _fits(card: Card, pod: PodView) -> bool:
        return card.fits(pod.memory, pod.cores, whole=pod.whole, burst=pod.burst)

    def has_host_room(self, pod: PodView, node: str) -> bool:
        """Whether a node has CPU and slices for a pod."""
        there = [one for one in self.bound if one.node == node]
        own = self.nodes[node]
        return self.has_cpu(pod, node) and sum(one.cards for one in there) + pod.cards <= own.slices

    def has_cpu(self, pod: PodView, node: str) -> bool:
        """Whether a node has CPU for a pod, beside what kube-scheduler keeps there for pods whose victims leave."""
        there = [one for one in self.bound if one.node == node]
        used = sum(one.cpu for one in (*there, *self._awaiting_victims(node, pod)))
        return used + pod.cpu <= self.nodes[node].cpu

    def _awaiting_victims(self, node: str, pod: PodView) -> list[PodView]:
        """For whom kube-scheduler keeps CPU of a node from a pod until their victims have ended, if ever they do."""
        others = (one for one in self.waiting if one.nominated == node and one.uid != pod.uid)
        return [one for one in others if one.priority >= pod.priority and self.awaits_victims(one)]

    def awaits_victims(self, pod: PodView) -> bool:
        """Whether a lower pod is leaving the node nominated for a pod; until then kube-scheduler preempts no more."""
        there = (one for one in self.bound if one.node == pod.nominated and one.leaving)
        return any(one.priority < pod.priority for one in there)

    def has(self, pod: PodView, node: str) -> bool:
        """Whether a pod may have a place on a node now: it fits, and its quota lets it in."""
        cards = self.place(pod, node)
        return bool(cards) and self.allows(pod.namespace, pod.demand(self.taken[cards[0]].memory))

    def room(self, pod: PodView) -> list[str]:
        """The nodes on which a pod may have a place now."""
        return [node for node in self.nodes if self.has(pod, node)]

    def placing(self, pod: PodView, only: str = "", *, judged: bool = True) -> Iterator[Snapshot]:
        """The cluster with a pod on it, in every way that differs; on one node alone, or whatever its quota says."""
        for node in [only] if only else self.nodes:
            if not self._usable(node) or not self.has_host_room(pod, node):
                continue
            fitting = [card for card in self._cards_of(node) if self._fits(card, pod)]
            seen = set()
            for chosen in itertools.combinations(fitting, pod.cards):
                kinds = tuple(sorted(_state(card) for card in chosen))
                if kinds in seen:
                    continue
                seen.add(kinds)
                memory, cores = (chosen[0].memory, 100) if pod.whole else (pod.memory, pod.cores)
                if not judged or self.allows(pod.namespace, pod.demand(chosen[0].memory)):
                    places = tuple((card.uuid, memory, cores) for card in chosen)
                    placed = replace(pod, node=node, places=places)
                    yield replace(self, pods=(*(p for p in self.pods if p.uid != pod.uid), placed))

    def places_together(self, pods: tuple[PodView, ...]) -> bool:
        """Whether all of some pods find places beside each other."""
        if not pods:
            return True
        now = self if self.begun is not None else replace(self, begun=self)
        return any(placed.places_together(pods[1:]) for placed in now.placing(pods[0]))

    def starts(self, members: list[PodView]) -> bool:
        """Whether as many members of a group as it needs find places beside each other."""
        waiting, needed = lacking(members)
        return any(self.places_together(some) for some in choices(waiting, needed))


def lacking(members: list[PodView]) -> tuple[list[PodView], int]:
    """The members of a group that wait, and of how many of them it needs places."""
    waiting = [pod for pod in members if not pod.node]
    return waiting, max(1, members[0].members - len(members) + len(waiting))


def choices(waiting: list[PodView], needed: int) -> Iterator[tuple[PodView, ...]]:
    """Some of the members, once for all choices that are alike; the largest first."""
    seen = set()
    order = sorted(waiting, key=lambda pod: (-pod.cards, -(pod.memory or 1 << 30)))
    for some in itertools.combinations(order, needed):
        kinds = tuple((pod.cards, pod.memory, pod.cores, pod.cpu, pod.burst) for pod in some)
        if kinds not in seen:
            seen.add(kinds)
            yield some


def _state(card: Card) -> tuple[object, ...]:
    return card.memory, card.guaranteed, card.promised, card.cores, card.used_slots
