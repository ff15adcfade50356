"""Plays a history: a cluster with two replicas of the extender, its events, and what is checked when it is quiet."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.model.agreement import Agreement
from tests.model.api_server import ApiServer, Change, Obj, key_of, merged
from tests.model.events import QUIET, Event, Story
from tests.model.expectations import Served, Unserved, unserved
from tests.model.invariants import PLACEMENT, Evictions, Finding, Safety
from tests.model.kube_scheduler import KubeScheduler
from tests.model.kubelets import Kubelets
from tests.model.objects import GROUP_LABEL, PLAN, gpu_node_of, node_of, pod_of, pool_of, quota_of
from tests.model.replicas import Replica
from tests.model.snapshot import Snapshot
from tests.model.virtual_time import CLOCK, HungError, Loop

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN_SECONDS: Final = 15.0
"""Until a leader is elected and has read the cluster."""
LOOK_SECONDS: Final = 10.0
"""Between two looks at a cluster that is coming to rest."""
CALM_SECONDS: Final = 30.0
"""A cluster is at rest when nothing has changed for so long."""
WATCH_AGAIN_SECONDS: Final = 30.0
"""A watch that breaks is taken up again after so long at the most."""
BOUND_SECONDS: Final = 900.0
"""How long a pod may wait for a place that it may have: kube-scheduler's own look at all pods every 300 s, twice the
longest pause of a pod that was touched in vain, and the pause of plans."""
GROUP_BOUND_SECONDS: Final = 4500.0
"""The same where there are groups: the longest rests of a group and of saving are 40 minutes (docs/gang.md)."""
LOST_ANSWER_SECONDS: Final = 660.0
"""Besides, where answers to kube-scheduler were lost: for so long a place is kept that it may know nothing of."""
EXCUSES: Final = frozenset({QUIET, "finish", "delete"})
"""Events that take no place from a pod that others were evicted for."""


@dataclass
class Outcome:
    """What came of a history."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0
    dry_runs: int = 0
    remedies: int = 0
    evictions: int = 0
    quiet_ends: int = 0
    digest: str = ""
    log: list[str] = field(default_factory=list)


class _FoundError(Exception):
    """The history has a finding and ends."""


class Player:
    """One history on its cluster."""

    def __init__(self, story: Story, *, log: bool = False) -> None:
        self._story = story
        self._keep_log = log
        self.outcome = Outcome()
        self._hash = hashlib.sha256()
        self.server = ApiServer()
        self._safety = Safety(self.server, self._found)
        self._evictions = Evictions(self.server, self._found)
        self.kubelets = Kubelets(self.server)
        self.replicas = [Replica(f"r{n}", self.server, list(story.setup.flags)) for n in range(2)]
        for replica in self.replicas:
            replica.replicas = self.replicas
        self._agreement = Agreement(self.server, self.replicas, self._found, story.features)
        self.scheduler = KubeScheduler(self.server, self.replicas, offers_empty=story.setup.offers_empty)
        self.scheduler.compare, self.scheduler.compared = self._agreement.dry_run, self._agreement.compare
        self.scheduler.preempted = self._evictions.by_kube_scheduler
        self.server.listeners.append(self._write_down)
        self._changed_at = 0.0
        self._changes = 0
        self._judged: tuple[int, list[Unserved]] = (-1, [])
        self._answers_lost = False
        self._doings: dict[str, Callable[..., Any]] = {
            "pod": self._pod,
            "crowd": self._crowd,
            "gang": self._gang,
            "finish": self._finish,
            "delete": self._delete,
            "stick": self._stick,
            "card": self._card,
            "cards up": self._cards_up,
            "node gone": self._node_gone,
            "nodes back": self._nodes_back,
            "cordon": self._cordon,
            "not ready": self._not_ready,
            "uncordon": self._uncordon,
            "quota": self._quota,
            "resize": self._resize,
            "kill leader": self._kill_leader,
            "kill follower": self._kill_follower,
            "stale": self._stale,
            "away": self._away,
            "lose": self._lose,
            "lose calls": self._lose_calls,
            "clear nominations": self._clear_nominations,
            "restart kube-scheduler": self.scheduler.restart,
        }

    # ---- the course of a history ----

    async def play(self) -> None:
        """Play it; what was found is in the outcome."""
        for n, machine in enumerate(self._story.setup.machines):
            self.server.put("nodes", node_of(f"n{n}", machine))
            self.server.put("gpunodes", gpu_node_of(f"n{n}", machine))
        self.server.put("gpupools", pool_of(self._story.setup.overcommit))
        for name, spec in self._story.setup.quotas.items():
            self.server.put("gpuquotas", quota_of(name, spec))
        for replica in self.replicas:
            replica.start()
        running = asyncio.create_task(self.scheduler.run())
        try:
            await asyncio.sleep(BEGIN_SECONDS)
            for event in self._story.events:
                await self._next(event)
                if running.done():
                    running.result()
        except _FoundError:
            pass
        finally:
            self.outcome.dry_runs, self.outcome.remedies = self._agreement.dry_runs, self._agreement.remedies
            self.outcome.evictions = len(self._evictions.made)
            self.outcome.seconds, self.outcome.digest = CLOCK.now, self._hash.hexdigest()
            running.cancel()
            for replica in self.replicas:
                await replica.kill()

    async def _next(self, event: Event) -> None:
        await asyncio.sleep(event.after)
        self._note(str(event))
        self._evictions.note_event()
        self.outcome.steps += 1
        if event.kind not in EXCUSES:
            self._evictions.disturbances += 1
        if event.kind == QUIET:
            await self._rest()
        else:
            done = self._doings[event.kind](
                *((event.number,) if event.kind in ("pod", "crowd", "gang") else ()), *event.more
            )
            if done is not None:
                await done
        self._end_if_found()

    def _end_if_found(self) -> None:
        if self.outcome.findings:
            raise _FoundError

    async def _rest(self) -> None:
        """Wait until the cluster is at rest, and judge it. Faults of lines and processes are over by then."""
        for replica in self.replicas:
            replica.start()
        begin, bound = CLOCK.now, self._bound()
        while CLOCK.now - begin < bound:
            await asyncio.sleep(LOOK_SECONDS)
            self._end_if_found()
            if not any(replica.leads for replica in self.replicas):
                continue
            calm = CLOCK.now - self._changed_at >= CALM_SECONDS and not self._leaving()
            if calm and not self._unserved() and not self._evictions.in_vain():
                break
        await self._judge()
        self._end_if_found()
        await self._agreement.why()
        self._end_if_found()
        self._safety.quiet()
        self.outcome.quiet_ends += 1

    def _bound(self) -> float:
        groups = any(pod["metadata"]["labels"].get(GROUP_LABEL) for pod in self.server.pods())
        bound = GROUP_BOUND_SECONDS if groups else BOUND_SECONDS
        return bound + LOST_ANSWER_SECONDS if self._answers_lost else bound

    def _unserved(self) -> list[Unserved]:
        """All that wait and should not; worked out anew when something has changed."""
        if self._judged[0] != self._changes:
            served = Served(frozenset(self._evictions.reclaimed), self._story.features)
            self._judged = self._changes, unserved(Snapshot.of(self.server), served)
        return self._judged[1]

    async def _judge(self) -> None:
        if not any(replica.leads for replica in self.replicas):
            self._found(Finding("no leader", "no replica leads", CLOCK.now))
        for one in self._unserved():
            said = await self._agreement.summary(one.name)
            self._found(Finding(one.kind, f"{one.why}; the extender says: {said}", CLOCK.now))
        for text in self._evictions.in_vain():
            self._found(Finding("eviction in vain", text, CLOCK.now))

    def _leaving(self) -> bool:
        return any(
            "deletionTimestamp" in pod["metadata"] and pod["metadata"]["name"] not in self.kubelets.stuck
            for pod in self.server.pods()
        )

    def _found(self, finding: Finding) -> None:
        self._note(f"FOUND {finding}")
        self.outcome.findings.append(finding)

    def _note(self, text: str) -> None:
        line = f"{CLOCK.now:9.3f} {text}"
        self._hash.update(line.encode())
        if self._keep_log:
            self.outcome.log.append(line)

    def _write_down(self, change: Change) -> None:
        if change.plural not in ("pods", "nodes", "gpunodes", "gpuquotas"):
            return
        if (
            change.plural == "gpuquotas"
            and change.before
            and change.after
            and change.before["spec"] == change.after["spec"]
        ):
            return
        touched = (
            change.plural == "pods"
            and change.before
            and change.after
            and _told(change.before) == _told(change.after)
        )
        if not touched:
            self._changed_at = CLOCK.now
            self._changes += 1
            self._note(f"{change.kind} {_said(change)}")

    # ---- events ----

    def _pod(self, number: int, wish: Any) -> None:
        self.server.put("pods", pod_of(f"p{number}", wish, CLOCK.stamp()))

    def _crowd(self, number: int, wish: Any, count: int) -> None:
        for n in range(count):
            self.server.put("pods", pod_of(f"p{number}-{n}", wish, CLOCK.stamp()))

    def _gang(self, number: int, members: int, *wishes: Any) -> None:
        for n, wish in enumerate(wishes):
            self.server.put("pods", pod_of(f"g{number}-{n}", wish, CLOCK.stamp(), f"g{number}", members))

    def _some(self, number: int, *, bound: bool = True) -> Obj | None:
        """One of the pods, by number; members of groups are left alone unless that is a feature."""
        pods = [pod for pod in self.server.pods() if bool(pod["spec"].get("nodeName")) or not bound]
        if "gang_loss" not in self._story.features:
            pods = [pod for pod in pods if not pod["metadata"]["labels"].get(GROUP_LABEL)]
        return pods[number % len(pods)] if pods else None

    def _finish(self, number: int) -> None:
        pod = self._some(number)
        if pod is not None:
            self.server.put("pods", merged(pod, {"status": {"phase": "Succeeded"}}))
            self.server.remove("pods", key_of(pod))

    def _delete(self, number: int) -> None:
        pod = self._some(number, bound=False)
        if pod is not None:
            self.server.delete_pod(key_of(pod))

    def _stick(self, number: int, seconds: float) -> None:
        """A pod will stay in Terminating, for some seconds after now or for ever."""
        pod = self._some(number)
        if pod is None:
            return
        self.kubelets.stuck.add(pod["metadata"]["name"])
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._unstick, pod["metadata"]["name"])

    def _unstick(self, name: str) -> None:
        self.kubelets.stuck.discard(name)
        self.kubelets.release()

    def _card(self, node: int, index: int) -> None:
        key = f"n{node}"
        if key in self.server.objects["gpunodes"]:
            cards = self.server.objects["gpunodes"][key]["status"]["cards"]
            if index < len(cards):
                self.server.change(
                    "gpunodes", key, lambda obj: obj["status"]["cards"][index].update(health="Unhealthy")
                )

    def _cards_up(self) -> None:
        for obj in list(self.server.objects["gpunodes"].values()):
            cards = [{**card, "health": "Healthy"} for card in obj["status"]["cards"]]
            self.server.put("gpunodes", merged(obj, {"status": {"cards": cards}}))

    def _node_gone(self, node: int) -> None:
        key = f"n{node}"
        self.server.remove("gpunodes", key)
        self.server.remove("nodes", key)
        for pod in self.server.pods():
            if pod["spec"].get("nodeName") == key:
                self.server.remove("pods", key_of(pod))

    def _nodes_back(self) -> None:
        for n, machine in enumerate(self._story.setup.machines):
            if f"n{n}" not in self.server.objects["nodes"]:
                self.server.put("nodes", node_of(f"n{n}", machine))
                self.server.put("gpunodes", gpu_node_of(f"n{n}", machine))

    def _cordon(self, node: int) -> None:
        if f"n{node}" in self.server.objects["nodes"]:
            self.server.change("nodes", f"n{node}", lambda obj: obj["spec"].update(unschedulable=True))

    def _not_ready(self, node: int) -> None:
        if f"n{node}" in self.server.objects["nodes"]:
            conditions = [{"type": "Ready", "status": "Unknown"}]
            self.server.change("nodes", f"n{node}", lambda obj: obj["status"].update(conditions=conditions))

    def _uncordon(self) -> None:
        for obj in list(self.server.objects["nodes"].values()):
            well = {
                "spec": {"unschedulable": False},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            if merged(obj, well) != obj:
                self.server.put("nodes", merged(obj, well))

    def _quota(self, name: str, spec: dict[str, Any]) -> None:
        self.server.put("gpuquotas", quota_of(name, spec))

    def _resize(self, number: int, gib: int, cores: str | None) -> None:
        pod = self._some(number)
        if pod is not None:
            asked = {"aliquot.dev/resize-gpu-mem": f"{gib}Gi"}
            asked |= {"aliquot.dev/resize-gpu-core": cores} if cores else {}
            self.server.put("pods", merged(pod, {"metadata": {"annotations": asked}}))

    async def _kill_leader(self, seconds: float) -> None:
        await self._kill(next((one for one in self.replicas if one.leads), None), seconds)

    async def _kill_follower(self, seconds: float) -> None:
        await self._kill(next((one for one in self.replicas if not one.leads), None), seconds)

    async def _kill(self, replica: Replica | None, seconds: float) -> None:
        if replica is not None:
            await replica.kill()
            asyncio.get_running_loop().call_later(seconds, replica.start)

    def _stale(self, replica: int, seconds: float) -> None:
        self.replicas[replica].line.watch_from = CLOCK.now + seconds
        self._blind(seconds)

    def _away(self, replica: int, seconds: float) -> None:
        self.replicas[replica].line.away_until = CLOCK.now + seconds
        self._blind(seconds)

    def _lose(self, replica: int, how: str, count: int) -> None:
        setattr(self.replicas[replica].line, how, count)
        self._blind(0.0)

    def _blind(self, seconds: float) -> None:
        """A replica's watches may lag for so long, and until they are taken up again."""
        self._evictions.blind(CLOCK.now + seconds + WATCH_AGAIN_SECONDS)

    def _lose_calls(self, count: int) -> None:
        self.scheduler.lose = count
        self._answers_lost = True

    def _clear_nominations(self) -> None:
        for pod in self.server.pods():
            if pod["status"].get("nominatedNodeName"):
                self.server.put("pods", merged(pod, {"status": {"nominatedNodeName": None}}))


def _told(pod: Obj) -> tuple[Any, ...]:
    """A pod without what is written to have kube-scheduler ask again."""
    annotations = {k: v for k, v in pod["metadata"]["annotations"].items() if k != "aliquot.dev/retry"}
    return pod["metadata"].get("deletionTimestamp"), annotations, pod["spec"], pod["status"]


def _said(change: Change) -> str:
    """A change in a line."""
    obj = change.after or change.before
    assert obj is not None
    text = f"{change.plural} {key_of(obj)}"
    if change.plural != "pods":
        return text
    parts = [text, obj["status"].get("phase"), _cards(obj)]
    if nominated := obj["status"].get("nominatedNodeName"):
        parts.append(f"nominated to {nominated}")
    if "deletionTimestamp" in obj["metadata"]:
        parts.append("terminating")
    if plan := obj["metadata"]["annotations"].get(PLAN):
        parts.append(f"plan {plan}")
    return " ".join(filter(None, parts))


def _cards(pod: Obj) -> str:
    """Where a pod is, and what it has of each card."""
    placement = pod["metadata"]["annotations"].get(PLACEMENT)
    if not pod["spec"].get("nodeName") or not placement:
        return ""
    shares = [one for container in json.loads(placement)["containers"] for one in container["cards"]]
    return "on " + ", ".join(f"{one['uuid']} {one['memoryMiB']} MiB {one['cores']} %" for one in shares)


def play(story: Story, *, log: bool = False) -> Outcome:
    """Play a history in a loop of its own; a hang is a finding."""
    logging.disable(logging.NOTSET if log else logging.CRITICAL)
    random.seed(story.seed)
    loop = Loop()
    player: list[Player] = []

    async def main() -> None:
        player.append(Player(story, log=log))
        await player[0].play()

    gc.collect()
    try:
        loop.run(main())
    except HungError as error:
        outcome = player[0].outcome
        outcome.findings.append(Finding("hang", str(error), CLOCK.now))
        outcome.seconds = CLOCK.now
    return player[0].outcome
