"""What must hold after every single change: no card is promised beyond what it has, and no quota's limit is passed.

And what must hold of every eviction: it serves the pod for which it was made.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.model.api_server import ApiServer, Change, Obj, key_of
from tests.model.objects import GROUP_LABEL, PLAN
from tests.model.snapshot import Snapshot
from tests.model.views import FIELDS, NOTHING, Amounts, PodView, view
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLACEMENT: Final = "aliquot.dev/placement"
AGAIN_SECONDS: Final = 30.0
"""Evictions of one plan follow each other more closely than this."""
LOWEST: Final = -(1 << 31)
"""No pod has a lower priority."""
OVERDUE_SECONDS: Final = 30.0
"""So long after its grace period a pod counts as staying; until then nobody can know that it does not end."""


@dataclass(frozen=True)
class Finding:
    """Something that an administrator would file: its kind, and what was seen when."""

    kind: str
    text: str
    at: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.1f} s: {self.text}"


class Safety:
    """Looks at every change that gives a pod something."""

    def __init__(self, server: ApiServer, found: Callable[[Finding], None]) -> None:
        self._server, self._found = server, found
        self._limits: dict[str, dict[str, list[int]]] = {}
        server.listeners.append(self._heed)

    def quiet(self) -> None:
        """Limits that held before do not count any more."""
        self._limits.clear()
        for obj in self._server.objects["gpuquotas"].values():
            self._note(obj)

    def _note(self, obj: Obj) -> None:
        known = self._limits.setdefault(obj["metadata"]["name"], {name: [] for name in FIELDS})
        for name in FIELDS:
            known[name].append(obj["spec"].get("limit", {}).get(name, 1 << 60))

    def _heed(self, change: Change) -> None:
        if change.plural == "gpuquotas" and change.after is not None:
            self._note(change.after)
        pod = change.after
        if change.plural != "pods" or pod is None or not pod["spec"].get("nodeName"):
            return
        before = change.before["metadata"]["annotations"].get(PLACEMENT) if change.before else None
        bound = change.before and change.before["spec"].get("nodeName")
        placement = pod["metadata"]["annotations"].get(PLACEMENT)
        if not bound and not placement:
            self._report("unsafe", f"{key_of(pod)} is bound without a placement")
        elif not bound or placement != before:
            self._look(pod, view(change.before).demand(0) if bound and change.before else NOTHING)

    def _look(self, pod: Obj, had: Amounts) -> None:
        """`had`: what the pod took of its quota before."""
        snapshot = Snapshot.of(self._server)
        own = view(pod)
        for uuid in {one for one, _, _ in own.places}:
            card = snapshot.taken.get(uuid)
            if card is None:
                continue
            memory = f"{card.guaranteed} MiB guaranteed, {card.promised} MiB in all"
            sums = f"{memory}, {card.cores} %, {card.used_slots} slices"
            beyond = card.guaranteed > card.memory or card.promised > card.memory * card.percent // 100
            if beyond or card.cores > 100 or card.used_slots > card.slots:
                self._report("unsafe", f"card {uuid} is promised beyond what it has by {own.name}: {sums}")
        taken = [one for other in snapshot.bound if other.whole for one, _, _ in other.places]
        shared = [one for other in snapshot.bound for one, _, _ in other.places]
        for uuid in taken:
            if shared.count(uuid) > 1:
                self._report("unsafe", f"card {uuid} is promised whole to one pod, and to another pod, too")
        there, node = (one for one in snapshot.bound if one.node == own.node), snapshot.nodes.get(own.node)
        if node is not None and sum(one.cards for one in there) > node.slices:
            self._report("unsafe", f"node {own.node} has too few slices for its pods")
        for quota in snapshot.levels(own.namespace):
            more = [has - had for has, had in zip(own.demand(0), had, strict=True)]
            self._judge_limit(own.name, quota.name, snapshot.used(quota), more)

    def _judge_limit(self, pod: str, quota: str, used: Amounts, more: Sequence[int]) -> None:
        """The loosest limit since the cluster was last at rest counts: a place may have been promised before."""
        known = self._limits.get(quota, {})
        for i, name in enumerate(FIELDS):
            most = max(known.get(name, [1 << 60]))
            if used[i] > most and more[i] > 0:
                self._report("unsafe", f"{pod} takes quota {quota} to {used[i]} of {most} {name}")

    def _report(self, kind: str, text: str) -> None:
        self._found(Finding(kind, text, CLOCK.now))


@dataclass
class Eviction:
    """A pod that was evicted for another: when, on which ground, and how many events had been seen.

    Attributes:
        cards: What the victim had.
        goal: The node that the pod which it was for is to have, where that is known: quotas may want victims elsewhere.
        due: When its victim counts as staying if it is there yet (docs/preemption.md); nobody can know that before.
        quotas: Those of the pod that it was evicted for.
        opened: The victim's quotas, of which it leaves something.
        priority: That of the pod which it was for.
        served: A pod of higher priority has come to a card that was made free with it, to one of the node's last
            slices, to its last CPU, to what one of these quotas had left, or to the goal by what the victim left of its
            own: room is not held against that. Or one of the same priority has that lost its own room in this way.
    """

    victim: str
    victim_uid: str
    due: float
    node: str
    waiter: str
    waiter_uid: str
    ground: str
    at: float
    events: int
    cards: frozenset[str]
    quotas: frozenset[str]
    opened: frozenset[str]
    priority: int
    goal: str
    served: bool = False

    def goes_with(self, other: Eviction) -> bool:
        """Whether both are of one plan."""
        return self.waiter_uid == other.waiter_uid and abs(self.at - other.at) <= AGAIN_SECONDS


class Evictions:
    """Remembers who was evicted for whom.

    Attributes:
        made: All of them, the oldest first.
        disturbances: How many events have happened that may take a place from a pod that others were evicted for.
    """

    def __init__(self, server: ApiServer, found: Callable[[Finding], None]) -> None:
        self._server, self._found = server, found
        self.made: list[Eviction] = []
        self.disturbances = 0
        self._blind_until = 0.0
        self._disturbances_seen = 0
        self._before = -math.inf, Snapshot.of(server)
        self.reclaimed: set[str] = set()
        self._gone: dict[str, float] = {}
        self._stayed: list[tuple[str, float]] = []
        self._untold: tuple[Obj, Obj, Snapshot] | None = None
        server.evictions.append(self._by_extender)
        server.event_listeners.append(self._heed_event)
        server.listeners.append(self._heed)

    def _heed(self, change: Change) -> None:
        """A waiting pod that has come to have a reclaim plan has had its only one; a bound one may have come first."""
        pod = change.after
        if change.plural != "pods":
            return
        if pod is None:
            if change.before is not None:
                self._gone[change.before["metadata"]["uid"]] = CLOCK.now
                self._stayed += _overdue([view(change.before)])
            return
        if pod["spec"].get("nodeName") and not (change.before and change.before["spec"].get("nodeName")):
            self._heed_bound(pod)
        text = pod["metadata"]["annotations"].get(PLAN)
        if text and json.loads(text).get("ground", "reclaim") == "reclaim":
            self.reclaimed.add(pod["metadata"]["uid"])

    def _heed_bound(self, pod: Obj) -> None:
        """A pod has just got its place."""
        new = view(pod)
        cards, snapshot = {uuid for uuid, _, _ in new.places}, Snapshot.of(self._server)
        quotas, full = _quotas(snapshot, new), snapshot.promises_all_slices(new.node)
        displaced = any(one.served for one in self.made if one.waiter_uid == new.uid)
        taken = [
            one
            for one in self.made
            if one.waiter_uid != new.uid
            and (new.priority > one.priority or (displaced and new.priority == one.priority))
            and (
                cards & one.cards
                or quotas & one.quotas
                or (full and new.node == one.node)
                or (new.node == one.goal and quotas & one.opened)
                or (
                    new.node == (one.goal or one.node)
                    and _is_short_of_cpu(snapshot, one.waiter_uid, new.node)
                )
            )
        ]
        for one in self.made:
            one.served = one.served or any(map(one.goes_with, taken))

    def _heed_event(self, event: Obj) -> None:
        """The extender tells a member of the group for which it has evicted a pod; of a plan it tells its pod."""
        there = event["involvedObject"]
        pod = self._server.objects["pods"].get(f"{there['namespace']}/{there['name']}")
        if pod is None or PLAN in pod["metadata"]["annotations"]:
            return
        is_member = bool(pod["metadata"]["labels"].get(GROUP_LABEL))
        if self._untold and is_member and not pod["spec"].get("nodeName"):
            (victim, _, before), self._untold = self._untold, None
            self._add(victim, pod, "group", before)

    def _take_untold(self) -> None:
        """That event may be lost: then the eviction was for the group of the highest priority.

        It comes before the next eviction for a group, and not before one for another pod, which may be made beside.
        """
        if self._untold:
            (victim, waiter, before), self._untold = self._untold, None
            self._add(victim, waiter, "group", before)

    def _by_extender(self, victim: Obj) -> None:
        uid = victim["metadata"]["uid"]
        for pod in self._server.pods():
            text = pod["metadata"]["annotations"].get(PLAN)
            plan = json.loads(text) if text else {"pods": []}
            if any(one["uid"] == uid for one in plan["pods"]) and not pod["spec"].get("nodeName"):
                self._add(victim, pod, plan.get("ground", "reclaim"), Snapshot.of(self._server))
                return
        snapshot = Snapshot.of(self._server)
        if snapshot.is_below_minimum(view(victim)) and snapshot.waiting:
            return  # docs/gang.md, "Below the minimum"
        served = snapshot.group_before(view(victim))
        if served is not None:
            self._take_untold()
            waiter = self._server.objects["pods"][f"{served.namespace}/{served.name}"]
            self._untold = victim, waiter, snapshot
            return
        self._found(
            Finding(
                "eviction for no pod",
                f"{key_of(victim)} is evicted, and no waiting pod has a plan, nor a group a right to its cards",
                CLOCK.now,
            )
        )

    def note_event(self) -> None:
        """Something is about to happen; who evicts in the same moment may not see it yet."""
        at, _ = self._before
        if CLOCK.now > at:
            self._before = CLOCK.now, Snapshot.of(self._server)

    def blind(self, until: float) -> None:
        """Until then a leader may not see what happens from now on."""
        if CLOCK.now >= self._blind_until:
            self._disturbances_seen = self.disturbances
        self._blind_until = max(self._blind_until, until)

    def by_kube_scheduler(self, waiter: Obj, victims: list[Obj]) -> None:
        """kube-scheduler deletes these."""
        for victim in victims:
            self._add(victim, waiter, "kube-scheduler", Snapshot.of(self._server))

    def _add(self, victim: Obj, waiter: Obj, ground: str, snapshot: Snapshot) -> None:
        """Take note of an eviction, with the cluster as it was when it was asked for."""
        uid = waiter["metadata"]["uid"]
        grace = victim["spec"].get("terminationGracePeriodSeconds", 1)
        new = Eviction(
            victim["metadata"]["name"],
            victim["metadata"]["uid"],
            CLOCK.now + grace + OVERDUE_SECONDS,
            victim["spec"]["nodeName"],
            waiter["metadata"]["name"],
            uid,
            ground,
            CLOCK.now,
            self._disturbances_seen if CLOCK.now < self._blind_until else self.disturbances,
            frozenset(uuid for uuid, _, _ in view(victim).places),
            _quotas(snapshot, view(waiter)),
            _quotas(snapshot, view(victim)),
            view(waiter).priority,
            json.loads(waiter["metadata"]["annotations"].get(PLAN) or "{}").get("node", ""),
        )
        if self._spared(snapshot, view(victim), view(waiter), ground):
            text = f"{new.victim} is evicted for {new.waiter} ({ground}), which borrows from its guarantee"
            self._found(Finding("evicted within its guarantee", text, CLOCK.now))
        earlier = [one for one in self.made if one.waiter_uid == uid]
        self.made.append(new)
        if earlier and self._in_vain_before(earlier[-1], new):
            first = f"{earlier[-1].victim} was at {earlier[-1].at:.1f} s"
            text = f"{new.victim} is evicted for {new.waiter} ({ground}), as {first} ({earlier[-1].ground})"
            self._found(Finding("evicted again", text, CLOCK.now))

    def _spared(self, snapshot: Snapshot, victim: PodView, waiter: PodView, ground: str) -> bool:
        """Whether a pod was within its guarantee, and nobody who sees the cluster as it is would have evicted it."""
        ending = [pod for pod in snapshot.pods if CLOCK.now < pod.leaves_by + OVERDUE_SECONDS < math.inf]
        gone = [pod.uid for pod in ending if pod.uid != victim.uid]
        views = [snapshot.without(gone)]
        if ground == "kube-scheduler":  # when it asked it may not have been seen yet who is leaving
            views.append(snapshot)
        at, before = self._before
        if CLOCK.now == at:
            views.append(before.without(gone))
        least = LOWEST if ground == "reclaim" else waiter.priority
        late = {node for node, _ in _overdue(snapshot.pods)}
        spared = all(one.with_promises(waiter.uid, least, late).spares(victim, waiter) for one in views)
        return spared and CLOCK.now >= self._blind_until

    def _in_vain_before(self, earlier: Eviction, now: Eviction) -> bool:
        """Whether an eviction for the same pod has brought nothing, though nothing has happened that excuses it."""
        later = now.at - earlier.at > AGAIN_SECONDS
        in_vain = earlier.events == self.disturbances and not earlier.served
        return later and in_vain and not self._has_no_end(earlier)

    def _has_no_end(self, eviction: Eviction) -> bool:
        """Whether its victim, another of the same pod, or who was leaving its node or the pod's has no end.

        The places of a group may be on every node.
        """
        late = [*self._stayed, *_overdue([view(pod) for pod in self._server.pods()])]
        stayed = {node for node, due in late if eviction.at < due}
        return bool(
            stayed & {eviction.node, eviction.goal} or (stayed and eviction.ground == "group")
        ) or any(
            other.waiter_uid == eviction.waiter_uid
            and eviction.at <= other.due < self._gone.get(other.victim_uid, CLOCK.now)
            for other in self.made
        )

    def in_vain(self) -> list[str]:
        """The evictions for pods and groups that wait yet, where nothing has happened since that could excuse it."""
        self._take_untold()
        pods = [view(pod) for pod in self._server.pods()]
        started = {(pod.namespace, pod.group) for pod in pods if pod.group and pod.node}
        waiting = {pod.uid for pod in pods if not pod.node and (pod.namespace, pod.group) not in started}
        apart = {pod.uid for pod in pods if pod.group and not pod.node and _lacks_others(pod, pods)}
        return [
            f"{one.victim} left {one.node} at {one.at:.1f} s for {one.waiter} ({one.ground}), which waits"
            for one in self.made
            if one.waiter_uid in waiting
            and one.events == self.disturbances
            and not one.served
            and not self._has_no_end(one)
            and not (one.ground != "group" and one.waiter_uid in apart)
        ]


def _lacks_others(member: PodView, pods: Sequence[PodView]) -> bool:
    """Whether a place for one member alone is of no use to its group any more."""
    placed = [
        pod for pod in pods if (pod.namespace, pod.group) == (member.namespace, member.group) and pod.node
    ]
    return len(placed) + 1 < member.members


def _is_short_of_cpu(snapshot: Snapshot, uid: str, node: str) -> bool:
    """Whether a pod waits for which a node lacks CPU."""
    waiter = next((pod for pod in snapshot.waiting if pod.uid == uid), None)
    return waiter is not None and not snapshot.has_cpu(waiter, node)


def _overdue(pods: Sequence[PodView]) -> list[tuple[str, float]]:
    """The nodes of those that should have ended by now, and since when they count as staying."""
    return [(pod.node, due) for pod in pods if (due := pod.leaves_by + OVERDUE_SECONDS) <= CLOCK.now]


def _quotas(snapshot: Snapshot, pod: PodView) -> frozenset[str]:
    """The names of those that a pod counts in; all that are in none share what is free and guaranteed to nobody."""
    names = frozenset(quota.name for quota in snapshot.levels(pod.namespace))
    return names or frozenset({""} if snapshot.quotas else ())
