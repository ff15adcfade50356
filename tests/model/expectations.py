"""What an administrator expects of a quiet cluster: no pod waits for a place that it may have.

`unserved` names every pod and group that waits in vain, each with the reason why it should not. The rules are those
of docs/preemption.md, docs/quota.md and docs/gang.md.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.model.snapshot import choices, lacking
from tests.model.views import NOTHING, plus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.snapshot import Snapshot
    from tests.model.views import PodView, Quota

MOST_SETS: Final = 300
"""Of a node's borrowers that are tried, the smallest first."""


@dataclass(frozen=True)
class Unserved:
    """A pod, or a group, that waits in vain."""

    kind: str
    name: str
    why: str


@dataclass(frozen=True)
class Served:
    """What has been done for pods already.

    Attributes:
        reclaimed: UIDs of pods that have had their one reclaim plan.
        features: What is expected beyond the documents.
    """

    reclaimed: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


def unserved(snapshot: Snapshot, served: Served) -> list[Unserved]:
    """All that wait and should not."""
    single = [pod for pod in snapshot.waiting if not pod.group]
    found = [one for pod in single if (one := _single(snapshot, pod, served)) is not None]
    return found + list(_groups(snapshot))


def _single(snapshot: Snapshot, pod: PodView, served: Served) -> Unserved | None:
    room = snapshot.room(pod)
    if room:
        return Unserved("starved", pod.name, f"{pod.name} waits, and may have a place on {', '.join(room)}")
    if not pod.never:
        node = next(_preemptable(snapshot, pod, served), "")
        if node:
            why = f"{pod.name} waits, and may have a place on {node} once pods of lower priority have left it"
            return Unserved("not preempted for", pod.name, why)
    if pod.uid not in served.reclaimed:
        found = next(_reclaimable(snapshot, pod, served), None)
        if found is not None:
            node, names = found
            why = f"{pod.name} waits within its guarantee, and may have a place on {node} once {names} have left it"
            return Unserved("not reclaimed for", pod.name, why)
    return None


def _preemptable(snapshot: Snapshot, pod: PodView, served: Served) -> Iterator[str]:
    """The nodes that a pod may have a place on once pods of lower priority have left them.

    Quotas are judged as after the departure. The more pods leave, the more a quota allows, so it is enough to look at
    the departure of all that may go, but for those that were told to and have not. Of a quota that the pod would borrow
    from, one pod may go at the most here, where the quota is beyond its guarantee.
    """
    memory = max((card.memory for card in snapshot.cards), default=0)
    if "quota_after_departure" not in served.features and not snapshot.allows(
        pod.namespace, pod.demand(memory)
    ):
        return
    for node in snapshot.nodes:
        if not snapshot.has_cpu(pod, node) and (
            snapshot.awaits_victims(pod) or any(one.leaving for one in _named_for_cpu(snapshot, pod, node))
        ):
            continue  # only kube-scheduler evicts for CPU, and for this pod it does not evict those that would go
        there = [one for one in snapshot.bound if one.node == node and not one.leaving]
        lower = [one for one in there if one.priority < pod.priority]
        lent = [one for one in lower if _lends(snapshot, one, pod)]
        if lent and not snapshot.has_cpu(pod, node):
            continue  # kube-scheduler names who leaves for CPU, and heeds no guarantees
        free = [one.uid for one in lower if one not in lent]
        more = [[], *([one.uid] for one in lent if not snapshot.spares(one, pod))]
        if any(snapshot.without(gone).has(pod, node) for some in more if (gone := free + some)):
            yield node


def _named_for_cpu(snapshot: Snapshot, pod: PodView, node: str) -> list[PodView]:
    """Whom kube-scheduler evicts for CPU: all of lower priority but for those that fit, the highest first.

    It knows of no pod that it does not end.
    """
    lower = [one for one in snapshot.bound if one.node == node and one.priority < pod.priority]
    named = list(lower)
    for one in sorted(lower, key=lambda one: (-one.priority, one.leaving)):
        others = [other for other in named if other is not one]
        if snapshot.without(other.uid for other in others).has_cpu(pod, node):
            named = others
    return named


def _lends(snapshot: Snapshot, victim: PodView, pod: PodView) -> bool:
    """Whether a pod would borrow from the guarantee of another."""
    theirs = snapshot.levels(victim.namespace)
    return bool(theirs) and any(snapshot.guarantee(theirs[0])) and snapshot.would_borrow(pod, theirs)


def _reclaimable(snapshot: Snapshot, pod: PodView, served: Served) -> Iterator[tuple[str, str]]:
    """Nodes, each with borrowers whose departure gives a pod the place that its guarantee promises."""
    if not snapshot.cards:
        return
    wanted = pod.demand(max(card.memory for card in snapshot.cards))
    guarantor, owed = _claim(snapshot, pod, wanted)
    if guarantor is None or not owed:
        return
    if "quota_after_departure" not in served.features and not snapshot.allows(pod.namespace, wanted):
        yield from _reclaimable_anywhere(snapshot, pod, guarantor, owed)
        return
    for node in snapshot.nodes:
        there = [
            one
            for one in snapshot.bound
            if one.node == node and not one.leaving and guarantor not in snapshot.levels(one.namespace)
        ]
        if not snapshot.without(one.uid for one in there).place(pod, node):
            continue
        if "reclaim_for_cpu" not in served.features and not snapshot.has_host_room(pod, node):
            continue
        sets = (itertools.combinations(there, count) for count in range(1, len(there) + 1))
        for victims in itertools.islice(itertools.chain.from_iterable(sets), MOST_SETS):
            if _gives_back(snapshot, pod, victims, owed).has(pod, node):
                yield node, ", ".join(one.name for one in victims)
                return


def _reclaimable_anywhere(
    snapshot: Snapshot, pod: PodView, guarantor: Quota, owed: list[int]
) -> Iterator[tuple[str, str]]:
    """A node with room that is kept for others, and the borrowers on any node that have to make up for it."""
    node = next((name for name in snapshot.nodes if snapshot.place(pod, name)), "")
    staying = [one for one in snapshot.bound if not one.leaving]
    others = [one for one in staying if guarantor not in snapshot.levels(one.namespace)]
    sets = (itertools.combinations(others, count) for count in range(1, len(others) + 1) if node)
    for victims in itertools.islice(itertools.chain.from_iterable(sets), MOST_SETS):
        after = _gives_back(snapshot, pod, victims, owed)
        if after is not snapshot and after.has(pod, node):
            yield node, ", ".join(one.name for one in victims)
            return


def _claim(snapshot: Snapshot, pod: PodView, wanted: tuple[int, int, int]) -> tuple[Quota | None, list[int]]:
    """The quota that guarantees a pod what it asks for and reclaims it, its own or that one's parent; and of what."""
    levels = snapshot.levels(pod.namespace)
    for quota, apart in zip(levels, (NOTHING, snapshot.open_beside(levels)), strict=False):
        given, used = snapshot.guarantee(quota), plus(snapshot.used(quota), apart)
        fits = all(used[i] + wanted[i] <= given[i] for i in range(3) if given[i])
        if quota.reclaim and fits and any(given[i] and wanted[i] for i in range(3)):
            return quota, [i for i in range(3) if given[i] and wanted[i]]
    return None, []


def _gives_back(snapshot: Snapshot, pod: PodView, victims: tuple[PodView, ...], owed: list[int]) -> Snapshot:
    """The cluster without these; as it is where they have not only borrowed what is owed to the pod."""
    after = snapshot.without(one.uid for one in victims)
    ours = snapshot.levels(pod.namespace)
    theirs = (quota for one in victims for quota in snapshot.levels(one.namespace) if quota not in ours)
    return after if all(_only_borrowed(after, quota, owed) for quota in theirs) else snapshot


def _only_borrowed(after: Snapshot, quota: Quota, owed: list[int]) -> bool:
    """Whether a quota has no less than its guarantee, of what is owed to another."""
    used, given = after.used(quota), after.guarantee(quota)
    return all(used[i] >= given[i] for i in owed)


def _groups(snapshot: Snapshot) -> Iterator[Unserved]:
    for (_, name), members in snapshot.groups().items():
        waiting, needed = lacking(members)
        placed = len(members) - len(waiting)
        if len(waiting) < needed:
            continue
        if snapshot.starts(members):
            why = f"group {name}: {placed} of {members[0].members} run, and {needed} more fit together"
            yield Unserved("group starved", name, why)
        elif any(_preempts_together(snapshot, some, members) for some in choices(waiting, needed)):
            why = f"group {name}: {needed} more fit together once pods of lower priority have left"
            yield Unserved("group not preempted for", name, why)


def _preempts_together(snapshot: Snapshot, some: tuple[PodView, ...], members: list[PodView]) -> bool:
    """Whether as many members as have to start together could, once all have left that may be evicted for them.

    Of a quota that they would borrow from nobody leaves here, and nobody leaves for CPU.
    """
    priority = min(one.priority for one in members)
    if any(one.never for one in some) or not snapshot.cards:
        return False
    lower = [one for one in snapshot.bound if one.priority < priority and not one.leaving]
    together = _as_one(some, max(card.memory for card in snapshot.cards))
    gone = [one.uid for one in lower if not _lends(snapshot, one, together)]
    return bool(gone) and snapshot.without_cards_of(gone).places_together(some)


def _as_one(pods: tuple[PodView, ...], card_memory: int) -> PodView:
    """A pod that takes what these take together."""
    each = [(pod, (card_memory, 100) if pod.whole else (pod.memory, pod.cores)) for pod in pods]
    return replace(pods[0], places=tuple(("", *amounts) for pod, amounts in each for _ in range(pod.cards)))
