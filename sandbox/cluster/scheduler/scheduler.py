"""The scheduling loop: filters, extenders, a choice, an assumed pod, a binding (these run side by side).

Every failure is written where a person looks: the pod's PodScheduled condition and a FailedScheduling event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.events import Recorder
from aliquot.sandbox.cluster.objects import dig, full_name, name_of, namespace_of, timestamp, uid_of
from aliquot.sandbox.cluster.scheduler.extender import Extender, ExtenderError
from aliquot.sandbox.cluster.scheduler.filters import NodeState, Refusal, refusal_of
from aliquot.sandbox.cluster.scheduler.preemption import Preemption
from aliquot.sandbox.cluster.scheduler.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from aliquot.sandbox.cluster.client import Client, Notice
    from aliquot.sandbox.cluster.objects import Obj
    from aliquot.sandbox.cluster.scheduler.config import SchedulerConfig

FINISHED = ("Succeeded", "Failed")


class UnschedulableError(Exception):
    """No node fits; the text is the one that a real scheduler writes."""

    def __init__(self, text: str, refusals: Mapping[str, Refusal]) -> None:
        super().__init__(text)
        self.refusals = refusals


class Scheduler:
    """Schedules the pods of its profiles."""

    def __init__(self, client: Client, config: SchedulerConfig, queue: Queue | None = None) -> None:
        self._client = client
        self._config = config
        self._extenders = [Extender(entry) for entry in config.extenders]
        self._recorder = Recorder(client, "default-scheduler")
        self._nodes: dict[str, NodeState] = {}
        self._homeless: dict[str, dict[str, Obj]] = {}
        self._queue = queue or Queue()
        self._assumed: dict[str, str] = {}
        self._synced = {"nodes": asyncio.Event(), "pods": asyncio.Event()}
        self._bindings: set[asyncio.Task[None]] = set()
        self._ignored = {name for e in config.extenders for name, left in e.managed.items() if left}
        self._preemption = Preemption(client, self._recorder, self._nodes, self._ignored)

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                group.create_task(self._follow("nodes"))
                group.create_task(self._follow("pods"))
                group.create_task(self._schedule())
        finally:
            for extender in self._extenders:
                await extender.close()

    async def _follow(self, plural: str) -> None:
        async for notice in self._client.follow(f"/api/v1/{plural}"):
            if notice.type == "SYNCED":
                self._synced[plural].set()
            elif plural == "nodes":
                self._heed_node(notice)
            else:
                self._heed_pod(notice)

    def _heed_node(self, notice: Notice) -> None:
        name = name_of(notice.object)
        if notice.type == "DELETED":
            state = self._nodes.pop(name, None)
            self._homeless[name] = state.pods if state else {}
        elif name in self._nodes:
            self._nodes[name].node = notice.object
        else:
            self._nodes[name] = NodeState(notice.object, self._homeless.pop(name, {}))
        if notice.previous is None or _scheduling_view(notice.previous) != _scheduling_view(notice.object):
            self._queue.wake()

    def _heed_pod(self, notice: Notice) -> None:
        pod, uid = notice.object, uid_of(notice.object)
        over = notice.type == "DELETED" or dig(pod, "status.phase") in FINISHED
        if node := dig(pod, "spec.nodeName"):
            self._queue.remove(uid)
            self._assumed.pop(uid, None)
            self._place(pod, node, present=not over)
            if over or notice.previous is None or not dig(notice.previous, "spec.nodeName"):
                self._queue.wake()
        elif over:
            self._queue.remove(uid)
            self._forget(pod)
        elif uid in self._queue:
            self._queue.update(pod)
            if _scheduling_view(notice.previous or {}) != _scheduling_view(pod):
                self._queue.wake()
        elif self._is_mine(pod) and uid not in self._assumed:
            self._queue.put(pod)

    def _is_mine(self, pod: Obj) -> bool:
        spec = pod["spec"]
        return spec.get("schedulerName") in self._config.profiles and not spec.get("schedulingGates")

    async def _schedule(self) -> None:
        for event in self._synced.values():
            await event.wait()
        while True:
            pod = await self._queue.next()
            try:
                node = await self._choose(pod)
            except UnschedulableError as error:
                await self._refused(pod, error)
            except ExtenderError as error:
                await self._failed(pod, "SchedulerError", str(error))
            else:
                self._assume(pod, node)
                task = asyncio.create_task(self._bind(pod, node))
                self._bindings.add(task)
                task.add_done_callback(self._bindings.discard)

    async def _refused(self, pod: Obj, error: UnschedulableError) -> None:
        """No node fits: see whether evicting others helps."""
        try:
            interested = self._interested(pod)
            nominated = await self._preemption.make_room(pod, error.refusals, interested)
        except ExtenderError as problem:
            await self._failed(pod, "SchedulerError", str(problem))
            return
        await self._failed(pod, "Unschedulable", str(error), nominated)

    async def _choose(self, pod: Obj) -> str:
        """The node for a pod: the one it is nominated for, if that has room now. UnschedulableError, ExtenderError."""
        if not self._nodes:
            raise UnschedulableError("no nodes available to schedule pods", {})
        nominated = dig(pod, "status.nominatedNodeName")
        if nominated in self._nodes and await self._feasible(pod, [nominated], {}):
            return str(nominated)
        refusals: dict[str, Refusal] = {}
        feasible = await self._feasible(pod, sorted(self._nodes), refusals)
        if not feasible:
            raise UnschedulableError(_summary(len(self._nodes), refusals), refusals)
        return next(iter(feasible)) if len(feasible) == 1 else await self._best(pod, feasible)

    async def _feasible(self, pod: Obj, names: Iterable[str], refusals: dict[str, Refusal]) -> dict[str, Obj]:
        """Those of some nodes that can take a pod; why not the others."""
        feasible: dict[str, Obj] = {}
        for name in names:
            state = self._nodes[name]
            if refusal := refusal_of(pod, state, self._ignored):
                refusals[name] = refusal
            else:
                feasible[name] = state.node
        return await self._pass_extenders(pod, feasible, refusals)

    async def _pass_extenders(
        self, pod: Obj, feasible: dict[str, Obj], refusals: dict[str, Refusal]
    ) -> dict[str, Obj]:
        for extender in self._interested(pod):
            if not feasible or not extender.config.filter_verb:
                continue
            try:
                kept, failed, final = await extender.filter(pod, feasible)
            except ExtenderError:
                if extender.config.ignorable:
                    continue
                raise
            refusals |= {name: Refusal((why,)) for name, why in failed.items()}
            refusals |= {name: Refusal((why,), final=True) for name, why in final.items()}
            feasible = {name: node for name, node in feasible.items() if name in kept}
        return feasible

    async def _best(self, pod: Obj, feasible: Mapping[str, Obj]) -> str:
        """By the extenders' scores, then the emptiest, then by name; failing extenders do not count."""
        scores: Counter[str] = Counter()
        for extender in self._interested(pod):
            if extender.config.prioritize_verb:
                with contextlib.suppress(ExtenderError):
                    scores.update(await extender.prioritize(pod, feasible))
        return min(feasible, key=lambda name: (-scores[name], len(self._nodes[name].pods), name))

    async def _bind(self, pod: Obj, node: str) -> None:
        try:
            await self._write_binding(pod, node)
        except (ExtenderError, ApiError) as error:
            self._forget(pod)
            await self._failed(pod, "SchedulerError", str(error))
            self._queue.wake()
            return
        self._queue.remove(uid_of(pod))
        self._recorder.record(pod, "Normal", "Scheduled", f"Successfully assigned {full_name(pod)} to {node}")

    async def _write_binding(self, pod: Obj, node: str) -> None:
        binders = [e for e in self._interested(pod) if e.config.bind_verb]
        if binders:
            try:
                await binders[0].bind(pod, node)
            except ExtenderError:
                if not binders[0].config.ignorable:
                    raise
            else:
                return
        metadata = {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
        await self._client.create(f"{_path(pod)}/binding", binding)

    async def _failed(self, pod: Obj, reason: str, message: str, nominated: str = "") -> None:
        self._queue.failed(uid_of(pod), parked=reason == "Unschedulable")
        self._recorder.record(pod, "Warning", "FailedScheduling", message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(),
        }
        status: Obj = {"conditions": [condition]}
        if nominated:
            status["nominatedNodeName"] = nominated
        patch = {"metadata": {"uid": uid_of(pod)}, "status": status}
        with contextlib.suppress(ApiError):
            await self._client.patch(f"{_path(pod)}/status", patch)

    def _interested(self, pod: Obj) -> list[Extender]:
        return [extender for extender in self._extenders if extender.interested_in(pod)]

    def _assume(self, pod: Obj, node: str) -> None:
        """Count the pod on its node at once, before the binding shows in the watch."""
        self._assumed[uid_of(pod)] = node
        self._place(pod, node, present=True)

    def _forget(self, pod: Obj) -> None:
        if node := self._assumed.pop(uid_of(pod), None):
            self._place(pod, node, present=False)

    def _place(self, pod: Obj, node: str, *, present: bool) -> None:
        state = self._nodes.get(node)
        pods = state.pods if state else self._homeless.setdefault(node, {})
        if present:
            pods[uid_of(pod)] = pod
        else:
            pods.pop(uid_of(pod), None)


def _summary(total: int, refusals: Mapping[str, Refusal]) -> str:
    """The real scheduler's sentence: reasons counted, and what preemption had to say."""
    reasons = Counter(reason for refusal in refusals.values() for reason in refusal.reasons)
    helpless = Counter(
        "Preemption is not helpful for scheduling"
        if r.final
        else "No preemption victims found for incoming pod"
        for r in refusals.values()
    )
    first = f"0/{total} nodes are available: {_counted(reasons)}."
    second = f"preemption: 0/{total} nodes are available: {_counted(helpless)}."
    return f"{first} no new claims to deallocate, {second}"


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def _scheduling_view(obj: Obj) -> tuple[object, ...]:
    """What of an object can change a scheduling decision: heartbeats and statuses of pods do not count."""
    metadata = obj.get("metadata", {})
    conditions: Collection[Obj] = dig(obj, "status.conditions") or ()
    ready = [c.get("status") for c in conditions if c.get("type") == "Ready"]
    allocatable = dig(obj, "status.allocatable")
    return metadata.get("labels"), metadata.get("annotations"), obj.get("spec"), allocatable, ready


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
