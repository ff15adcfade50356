"""A stand-in for kube-scheduler: its queue, its own filters, the extender's verbs, preemption and nominations.

It follows Kubernetes 1.37: pods that were refused wait for a change that kube-scheduler knows of, else for five
minutes; an attempt that ends in an error clears the pod's nomination, and so does preemption that finds no candidate.
`offers_empty` is the behaviour since #135486, where nodes without victims are offered to the extender, too.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.model.api_server import ApiServer, Change, Obj, key_of, merged
from tests.model.replicas import CALL_SECONDS, CallError, Replica
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

BACKOFF_SECONDS: Final = (1.0, 10.0)
FLUSH_SECONDS: Final = 300.0
CYCLE_SECONDS: Final = 0.005


@dataclass
class Entry:
    """A pod in the queue."""

    key: str
    uid: str
    since: float
    attempts: int = 0
    due: float = 0.0
    parked: bool = False
    busy: bool = False


@dataclass(frozen=True)
class Attempt:
    """What the extender has said: the node, or for each refused node whether evictions might help."""

    node: str = ""
    refused: tuple[tuple[str, bool], ...] = ()


class KubeScheduler:
    """Schedules all pods with slices.

    Attributes:
        lose: So many of the next answers of the extender are lost on their way.
        compare: Is called with a pod and names before filter is asked for them.
        compared: Is called with these, what that said and what filter says.
        preempted: Is called with a preemptor and its victims before these are deleted.
    """

    def __init__(self, server: ApiServer, replicas: list[Replica], *, offers_empty: bool) -> None:
        self._server, self._replicas = server, replicas
        self._offers_empty = offers_empty
        self._queue: dict[str, Entry] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._assumed: dict[str, tuple[str, Obj]] = {}
        self.lose = 0
        self.compare: Callable[[Obj, list[str]], Any] | None = None
        self.compared: Callable[[Obj, list[str], Any, dict[str, Any]], Awaitable[None]] | None = None
        self.preempted: Callable[[Obj, list[Obj]], None] = lambda *_: None
        server.listeners.append(self._heed)

    # ---- the queue ----

    def _heed(self, change: Change) -> None:
        if change.plural == "nodes":
            self._wake()
        if change.plural != "pods":
            return
        pod = change.after
        seen = change.after or change.before
        uid = seen["metadata"]["uid"] if seen else ""
        if pod is None or pod["spec"].get("nodeName"):
            self._queue.pop(uid, None)
            self._assumed.pop(uid, None)
            if (
                pod is None
                or change.before is None
                or not change.before["spec"].get("nodeName")
                or _over(pod)
            ):
                self._wake()
        elif uid not in self._queue:
            self._queue[uid] = Entry(key_of(pod), uid, CLOCK.now)
            self._changed.set()
        elif change.before and _view(change.before) != _view(pod):
            self._queue[uid].parked = False
            self._changed.set()

    def _wake(self) -> None:
        for entry in self._queue.values():
            entry.parked = False
        self._changed.set()

    def restart(self) -> None:
        """The process starts anew: its queue is filled from the API server, and nothing is assumed."""
        self._queue = {
            pod["metadata"]["uid"]: Entry(key_of(pod), pod["metadata"]["uid"], CLOCK.now)
            for pod in self._server.pods()
            if not pod["spec"].get("nodeName")
        }
        self._assumed.clear()
        self._changed.set()

    def _due(self, entry: Entry) -> float:
        if entry.busy:
            return math.inf
        return entry.due + FLUSH_SECONDS if entry.parked else entry.due

    def _priority(self, entry: Entry) -> int:
        pod = self._server.objects["pods"].get(entry.key)
        return priority_of(pod) if pod else 0

    async def _next(self) -> Entry:
        while True:
            ready = [entry for entry in self._queue.values() if self._due(entry) <= CLOCK.now]
            if ready:
                return min(ready, key=lambda entry: (-self._priority(entry), entry.since))
            self._changed.clear()
            nearest = min((self._due(entry) for entry in self._queue.values()), default=math.inf)
            try:
                async with asyncio.timeout(None if nearest == math.inf else max(nearest - CLOCK.now, 0.001)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            entry = await self._next()
            pod = self._server.objects["pods"].get(entry.key)
            if pod is None or pod["metadata"]["uid"] != entry.uid or "deletionTimestamp" in pod["metadata"]:
                self._queue.pop(entry.uid, None)
                continue
            entry.busy = True
            try:
                await self._schedule(entry, pod)
            except CallError:
                self._failed(entry, parked=False)
                self._nominate(entry, None)
            await asyncio.sleep(CYCLE_SECONDS)

    def _failed(self, entry: Entry, *, parked: bool) -> None:
        entry.attempts += 1
        first, most = BACKOFF_SECONDS
        entry.due = CLOCK.now + min(first * 2.0 ** (entry.attempts - 1), most)
        entry.parked, entry.busy = parked, False
        self._changed.set()

    # ---- one attempt ----

    async def _schedule(self, entry: Entry, pod: Obj) -> None:
        nominated = pod["status"].get("nominatedNodeName")
        attempt = Attempt()
        if nominated in self._server.objects["nodes"] and self._refusal(pod, nominated) is None:
            attempt = await self._filter(pod, [nominated])
        if not attempt.node:
            attempt = await self._filter_all(pod)
        if attempt.node:
            self._assumed[entry.uid] = attempt.node, pod
            task = asyncio.create_task(self._bind(entry, pod, attempt.node))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        chosen = await self._make_room(pod, attempt)
        self._failed(entry, parked=True)
        if chosen is not None:
            self._nominate(entry, chosen or None)
        else:
            self._nominate(entry, nominated)

    async def _filter_all(self, pod: Obj) -> Attempt:
        refused: list[tuple[str, bool]] = []
        offered = []
        for name in sorted(self._server.objects["nodes"]):
            final = self._refusal(pod, name)
            if final is None:
                offered.append(name)
            else:
                refused.append((name, not final))
        if not offered:
            return Attempt("", tuple(refused))
        attempt = await self._filter(pod, offered)
        return Attempt(attempt.node, (*refused, *attempt.refused))

    async def _filter(self, pod: Obj, names: list[str]) -> Attempt:
        expected = await self.compare(pod, names) if self.compare else None
        answer = await self._call("/filter", {"Pod": pod, "NodeNames": names})
        if answer.get("Error"):
            raise CallError(answer["Error"])
        if expected is not None and self.compared:
            await self.compared(pod, names, expected, answer)
        placed = answer.get("NodeNames") or []
        if placed:
            return Attempt(placed[0])
        hopeful = [(name, True) for name in answer.get("FailedNodes") or {}]
        hopeless = [(name, False) for name in answer.get("FailedAndUnresolvableNodes") or {}]
        return Attempt("", (*hopeful, *hopeless))

    async def _call(self, path: str, body: Any) -> dict[str, Any]:
        replica = next((one for one in self._replicas if one.extender is not None), self._replicas[0])
        answer = await replica.call(path, json.dumps(body, separators=(",", ":")).encode())
        if self.lose:
            self.lose -= 1
            await asyncio.sleep(CALL_SECONDS)
            raise CallError("the answer was lost")
        return json.loads(answer)

    async def _bind(self, entry: Entry, pod: Obj, node: str) -> None:
        meta = pod["metadata"]
        body = {
            "PodName": meta["name"],
            "PodNamespace": meta["namespace"],
            "PodUID": meta["uid"],
            "Node": node,
        }
        try:
            bound = not (await self._call("/bind", body)).get("Error")
        except CallError:
            bound = False
        if not bound:
            self._assumed.pop(entry.uid, None)
            if self._queue.get(entry.uid) is entry:
                self._failed(entry, parked=False)
                self._nominate(entry, None)
            self._wake()

    def _nominate(self, entry: Entry, node: str | None) -> None:
        """Write or clear the nomination, and the condition that people see."""
        pod = self._server.objects["pods"].get(entry.key)
        if pod is None or pod["metadata"]["uid"] != entry.uid or pod["spec"].get("nodeName"):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        new = merged(pod, {"status": {"nominatedNodeName": node, "conditions": [condition]}})
        if new != pod:
            self._server.put("pods", new)

    # ---- its own filters ----

    def _refusal(self, pod: Obj, name: str) -> bool | None:
        """None where the node suits; else whether no eviction would help."""
        if not usable(self._server.objects["nodes"][name]):
            return True
        capacity = cpu_of_node(self._server.objects["nodes"][name])
        if cpu_of(pod) > capacity:
            return True
        return None if cpu_of(pod) + self._cpu_used(pod, name) <= capacity else False

    def _on(self, name: str) -> list[Obj]:
        bound = [one for one in self._server.pods() if one["spec"].get("nodeName") == name and not _over(one)]
        return bound + [pod for node, pod in self._assumed.values() if node == name]

    def _cpu_used(self, pod: Obj, name: str, without: frozenset[str] = frozenset()) -> int:
        used = sum(cpu_of(one) for one in self._on(name) if one["metadata"]["uid"] not in without)
        nominated = [
            one
            for one in self._server.pods()
            if one["status"].get("nominatedNodeName") == name
            and not one["spec"].get("nodeName")
            and one["metadata"]["uid"] != pod["metadata"]["uid"]
            and priority_of(one) >= priority_of(pod)
        ]
        return used + sum(cpu_of(one) for one in nominated)

    # ---- preemption ----

    async def _make_room(self, pod: Obj, attempt: Attempt) -> str | None:
        """The node that others leave for the pod; empty to clear its nomination, None to leave that as it is."""
        if pod["spec"].get("preemptionPolicy") == "Never" or self._waits_for_victims(pod):
            return None
        candidates = {}
        for name, hopeful in attempt.refused:
            victims = self._victims(pod, name) if hopeful else None
            if victims or (victims is not None and self._offers_empty):
                candidates[name] = victims
        if not candidates:
            return ""
        asked = {
            name: {"Pods": [{"UID": uid_of(one)} for one in victims]} for name, victims in candidates.items()
        }
        answer = await self._call("/preempt", {"Pod": pod, "NodeNameToMetaVictims": asked})
        found = {}
        by_uid = {uid_of(one): one for one in self._server.pods()}
        for name, victims in (answer.get("NodeNameToMetaVictims") or {}).items():
            uids = [one["UID"] for one in victims["Pods"] or ()]
            if not uids or any(uid not in by_uid for uid in uids):
                return None
            found[name] = [by_uid[uid] for uid in uids], victims.get("NumPDBViolations", 0)
        if not found:
            return None
        chosen = min(found, key=lambda name: (*_cost(*found[name]), name))
        victims = [one for one in found[chosen][0] if "deletionTimestamp" not in one["metadata"]]
        self.preempted(pod, victims)
        for victim in victims:
            self._server.delete_pod(key_of(victim))
        self._clear_lower(pod, chosen)
        return chosen

    def _waits_for_victims(self, pod: Obj) -> bool:
        nominated = pod["status"].get("nominatedNodeName")
        return any(
            "deletionTimestamp" in one["metadata"] and priority_of(one) < priority_of(pod)
            for one in self._server.pods()
            if nominated and one["spec"].get("nodeName") == nominated
        )

    def _victims(self, pod: Obj, name: str) -> list[Obj] | None:
        """The pods that have to go for what kube-scheduler counts; None where that is not enough.

        All of lower priority, but for those that fit yet: tried from the highest priority and the first started on.
        """
        node = self._server.objects["nodes"].get(name)
        if node is None or not usable(node):
            return None
        there = [one for one in self._on(name) if one["spec"].get("nodeName")]
        victims = {uid_of(one): one for one in there if priority_of(one) < priority_of(pod)}

        def fits(gone: Iterable[str]) -> bool:
            return cpu_of(pod) + self._cpu_used(pod, name, frozenset(gone)) <= cpu_of_node(node)

        if not fits(victims):
            return None
        for uid, _ in sorted(victims.items(), key=lambda one: (-priority_of(one[1]), _started(one[1]))):
            if fits(victims.keys() - {uid}):
                del victims[uid]
        return list(victims.values())

    def _clear_lower(self, pod: Obj, name: str) -> None:
        for one in self._server.pods():
            if one["status"].get("nominatedNodeName") == name and priority_of(one) < priority_of(pod):
                self._server.put("pods", merged(one, {"status": {"nominatedNodeName": None}}))


def _started(pod: Obj) -> str:
    """When a pod started, as Kubernetes writes it; for one that has not, now."""
    return pod["status"].get("startTime") or CLOCK.stamp()


def _cost(victims: list[Obj], violations: int) -> tuple[int, int, int, int]:
    priorities = [priority_of(one) for one in victims]
    return violations, max(priorities), sum(priorities), len(victims)


def _view(pod: Obj) -> tuple[Any, ...]:
    return pod["spec"], pod["metadata"].get("labels"), pod["metadata"].get("annotations")


def _over(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def uid_of(pod: Obj) -> str:
    """Its UID."""
    uid: str = pod["metadata"]["uid"]
    return uid


def priority_of(pod: Obj) -> int:
    """Its priority."""
    return int(pod["spec"].get("priority") or 0)


def cpu_of(pod: Obj) -> int:
    """Cores that it requests."""
    return sum(int(one["resources"].get("requests", {}).get("cpu", "0")) for one in pod["spec"]["containers"])


def cpu_of_node(node: Obj) -> int:
    """Cores that pods may have."""
    return int(node["status"]["allocatable"]["cpu"])


def usable(node: Obj) -> bool:
    """Whether pods may come to it: Ready, and not cordoned."""
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    return ready and not node["spec"].get("unschedulable", False)
