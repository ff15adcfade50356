"""Two answers of the extender have to agree with what is true: the dry run with filter, `why` with the cluster."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.model.invariants import LOWEST, Finding
from tests.model.objects import GIB, GROUP_LABEL, PLAN
from tests.model.replicas import CallError, Replica
from tests.model.snapshot import Snapshot
from tests.model.views import PodView, view
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.api_server import ApiServer, Obj


class Agreement:
    """Compares.

    Attributes:
        dry_runs: How many dry runs were compared with filter.
        remedies: How many remedies of `why` were tried.
    """

    def __init__(
        self,
        server: ApiServer,
        replicas: list[Replica],
        found: Callable[[Finding], None],
        features: frozenset[str],
    ) -> None:
        self._server, self._replicas, self._found = server, replicas, found
        self._features = features
        self.dry_runs = self.remedies = 0

    def _leader(self) -> Replica | None:
        return next((one for one in self._replicas if one.leads), None)

    async def dry_run(self, pod: Obj, names: list[str]) -> Any:
        """What a dry run says before filter is asked the same; None where that cannot be compared."""
        leader = self._leader()
        if leader is None or pod["metadata"]["labels"].get(GROUP_LABEL):
            return None
        if "dry_run_over_holds" not in self._features and self._room_is_held():
            return None
        try:
            answer = await leader.ask("dry_run", {}, json.dumps({"Pod": pod, "NodeNames": names}).encode())
        except CallError:
            return None
        return None if answer.get("Error") else answer

    def _room_is_held(self) -> bool:
        """Whether room is held for a waiting pod: it is nominated, or has a plan."""
        waiting = [pod for pod in self._server.pods() if not pod["spec"].get("nodeName")]
        return any(
            pod["status"].get("nominatedNodeName") or PLAN in pod["metadata"]["annotations"]
            for pod in waiting
        )

    async def compare(self, pod: Obj, names: list[str], expected: Any, answer: dict[str, Any]) -> None:
        """What filter has said in the same moment: its node is among those of the dry run, or there are none.

        Something may have come between the two; then a dry run says the same as filter afterwards.
        """
        self.dry_runs += 1
        said, placed = expected.get("NodeNames") or [], answer.get("NodeNames") or []
        if _agree(said, placed):
            return
        after = await self.dry_run(pod, names)
        if after is not None and not _agree(after.get("NodeNames") or [], placed):
            text = f"the dry run of {pod['metadata']['name']} says {said}, filter says {placed}"
            self._found(Finding("dry run", text, CLOCK.now))

    async def summary(self, name: str) -> str:
        """Why a pod waits, as the extender says it, or a member of the group of that name."""
        leader = self._leader()
        for pod in self._server.pods():
            meta = pod["metadata"]
            mine = meta["name"] == name or meta["labels"].get(GROUP_LABEL) == name
            if leader is not None and mine and not pod["spec"].get("nodeName"):
                try:
                    answer = await leader.ask("why", {"namespace": meta["namespace"], "pod": meta["name"]})
                except CallError as error:
                    return str(error)
                causes = [f"{cause['nodes']} {cause['text']}" for cause in answer.get("causes", ())]
                return "; ".join([answer["summary"], *filter(None, (answer.get("group"),)), *causes])
        return "nothing"

    def _snapshot(self) -> Snapshot:
        """The cluster as it is."""
        snapshot = Snapshot.of(self._server)
        return snapshot if "current_offers" in self._features else snapshot.unbounded()

    async def why(self) -> None:
        """Ask why each single pod waits, and try every remedy."""
        leader, snapshot = self._leader(), self._snapshot()
        for pod in snapshot.waiting:
            if leader is None or pod.group:
                continue
            try:
                answer = await leader.ask("why", {"namespace": pod.namespace, "pod": pod.name})
            except CallError:
                continue
            # Pods may have left meanwhile. A guarantee may be used up by what is promised to its pods that wait.
            views = snapshot, self._snapshot()
            either = [*views, *(one.with_promises(pod.uid, LOWEST) for one in views)]
            for change in answer.get("changes", ()):
                self.remedies += 1
                if not any(self._helps(one, pod, change) for one in either):
                    text = f"why {pod.name}: {change['text']}; that does not help"
                    self._found(Finding("why", text, CLOCK.now))

    def _helps(self, snapshot: Snapshot, pod: PodView, change: Obj) -> bool:
        if change.get("moves"):
            return self._moved(snapshot, pod, change["moves"])
        altered = copy.deepcopy(self._server.objects["pods"][f"{pod.namespace}/{pod.name}"])
        altered["metadata"]["annotations"] |= change.get("annotations") or {}
        if change.get("limits"):
            altered["spec"]["containers"][0]["resources"]["limits"] = dict(change["limits"])
        limits = altered["spec"]["containers"][0]["resources"]["limits"]
        memory, percent = limits.get("aliquot.dev/gpu-mem"), limits.get("aliquot.dev/gpu-mem-percent")
        limits["aliquot.dev/gpu-mem"] = "0Gi"
        wish = view(altered)
        if memory:
            wish = replace(wish, memory=_mib(str(memory)))
        elif percent:
            wish = replace(wish, memory=max(card.memory for card in snapshot.cards) * int(percent) // 100)
        return bool(snapshot.room(wish))

    def _moved(self, snapshot: Snapshot, pod: PodView, moves: list[Obj]) -> bool:
        """Whether all that would move find room where they are to go, and the pod has a place then.

        Quotas are not asked about a move: what a pod has does not become more. It is made anew as it was asked for,
        whatever size it was given meanwhile. Nobody is evicted for it: guarantees open then may be lent.
        """
        rooms = [replace(snapshot.without(move["uid"] for move in moves), before=None)]
        for move in moves:
            moved = next((one for one in snapshot.bound if one.uid == move["uid"]), None)
            if moved is None:
                return False
            wish = replace(moved, node="", places=())
            rooms = [after for room in rooms for after in room.placing(wish, move["toNode"], judged=False)]
        return any(room.room(pod) for room in rooms)


def _mib(text: str) -> int:
    units = {"Gi": GIB, "Mi": 1}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text) // (1 << 20)


def _agree(said: list[str], placed: list[str]) -> bool:
    return bool(said) == bool(placed) and set(placed) <= set(said)
