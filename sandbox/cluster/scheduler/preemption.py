"""Preemption as kube-scheduler does it: dry runs on nodes, the extenders' word, one node's victims deleted.

A node on which nothing that the scheduler counts is short has no victims; it is offered to extenders all the same, as
by Kubernetes since #135486.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import dig, name_of, namespace_of, uid_of
from aliquot.sandbox.cluster.scheduler.extender import Extender, ExtenderError
from aliquot.sandbox.cluster.scheduler.filters import NodeState, Refusal, refusal_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aliquot.sandbox.cluster.client import Client
    from aliquot.sandbox.cluster.events import Recorder
    from aliquot.sandbox.cluster.objects import Obj


class Preemption:
    """Makes room for pods of higher priority."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        nodes: Mapping[str, NodeState],
        ignored: Collection[str],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._nodes = nodes
        self._ignored = ignored

    async def make_room(
        self, pod: Obj, refusals: Mapping[str, Refusal], extenders: Iterable[Extender]
    ) -> str:
        """Evict for a pod that no node has room for; the node that it is nominated for, or none. ExtenderError."""
        if not self._eligible(pod):
            return ""
        able = [extender for extender in extenders if extender.config.preempt_verb]
        candidates = self._candidates(pod, refusals, keep_empty=bool(able))
        for extender in able:
            if candidates:
                candidates = self._known(await extender.preempt(pod, candidates))
        chosen = min(candidates, key=lambda node: (*_cost(candidates[node]), node), default="")
        for victim in candidates[chosen][0] if chosen else ():
            await self._evict(victim, pod)
        return chosen

    def _eligible(self, pod: Obj) -> bool:
        """Not while pods that were evicted for it are still leaving."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return False
        state = self._nodes.get(dig(pod, "status.nominatedNodeName") or "")
        return state is None or not any(
            victim["metadata"].get("deletionTimestamp") and _priority(victim) < _priority(pod)
            for victim in state.pods.values()
        )

    def _candidates(
        self, pod: Obj, refusals: Mapping[str, Refusal], *, keep_empty: bool
    ) -> dict[str, tuple[list[Obj], int]]:
        found = {}
        for name, refusal in refusals.items():
            victims = None if refusal.final else self._dry_run(pod, self._nodes[name])
            if victims or (victims is not None and keep_empty):
                found[name] = (victims, 0)
        return found

    def _dry_run(self, pod: Obj, state: NodeState) -> list[Obj] | None:
        """Whom the scheduler itself wants gone: all lower ones, but those that can stay after all."""
        lower = [other for other in state.pods.values() if _priority(other) < _priority(pod)]
        kept = {uid: other for uid, other in state.pods.items() if other not in lower}
        if refusal_of(pod, NodeState(state.node, kept), self._ignored):
            return None
        victims = []
        for other in sorted(lower, key=lambda one: (-_priority(one), _started(one))):
            tried = {**kept, uid_of(other): other}
            if refusal_of(pod, NodeState(state.node, tried), self._ignored):
                victims.append(other)
            else:
                kept = tried
        return victims

    def _known(self, answer: Mapping[str, tuple[list[str], int]]) -> dict[str, tuple[list[Obj], int]]:
        """An extender's answer with the pods themselves. ExtenderError for pods that are not there, and for none."""
        found = {}
        for name, (uids, violations) in answer.items():
            pods = self._nodes[name].pods if name in self._nodes else {}
            for uid in uids:
                if uid not in pods:
                    where = f"on node: {name}, but the pod is not found on that node"
                    raise ExtenderError(f"extender claims to preempt pod (UID: {uid}) {where}")
            if not uids:
                raise ExtenderError(f'expected at least one victim pod on node "{name}"')
            found[name] = ([pods[uid] for uid in uids], violations)
        return found

    async def _evict(self, victim: Obj, pod: Obj) -> None:
        path = f"/api/v1/namespaces/{namespace_of(victim)}/pods/{name_of(victim)}"
        text = f"Preempted by pod {uid_of(pod)} on node {victim['spec']['nodeName']}"
        self._recorder.record(victim, "Normal", "Preempted", text)
        with contextlib.suppress(ApiError):
            await self._client.delete(path)


def _cost(candidate: tuple[list[Obj], int]) -> tuple[int, int, int, int]:
    """What the real scheduler compares first: budgets violated, highest priority, their sum, number."""
    victims, violations = candidate
    priorities = [_priority(victim) for victim in victims]
    return violations, max(priorities), sum(priorities), len(victims)


def _priority(pod: Obj) -> int:
    return int(pod["spec"].get("priority") or 0)


def _started(pod: Obj) -> str:
    return str(dig(pod, "status.startTime") or "")
