"""Nodes with pods on them and the worker that evicts for others, with an API server that evicts at once; no cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.kube.answers import ApiError
from aliquot.scheduler_ext.controllers.evictor import Evictor
from aliquot.scheduler_ext.explain.filter_dry_run import DryRun, DryRunArgs
from aliquot.scheduler_ext.explain.hypothetical_nodes import HypotheticalNodes, KnownNodes
from aliquot.scheduler_ext.preemption.evictions import Evictions
from aliquot.scheduler_ext.preemption.extender_preemption import ExtenderPreemption
from aliquot.scheduler_ext.preemption.reclaim import Reclaim
from aliquot.scheduler_ext.state.ledger import Stage
from tests.unit.scheduler_ext.neighbours import Neighbours, running
from tests.unit.scheduler_ext.placing import card, node

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot.kube.objects import Pod
    from aliquot.kube.resources import Resource
    from aliquot.scheduler_ext.state.pending_pods import PendingPod

GRACE_SECONDS = 30
"""From an eviction to the moment by which the kubelet has ended the pod."""


class Evicting(Neighbours):
    """Pods that run, pods that wait, and what is evicted for them."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.evictions: list[str] = []
        self.watch_lags = False
        self.stored: dict[str, Pod] = {}
        self.where: dict[str, tuple[str, float, dict[str, Any]]] = {}
        self.evictor = self.worker(lambda: self.now)

    def worker(self, clock: Callable[[], float]) -> Evictor:
        """The worker that evicts."""
        return Evictor(
            self,
            self.waiting,
            self.filter,
            self.candidates,
            self.nominations,
            evictions=Evictions(self, self.candidates, clock),
            grounds=[
                Reclaim(self.candidates),
                ExtenderPreemption(self.candidates, self.nominations, self.waiting, patience_seconds=0.0),
            ],
            touch=self.touch,
            clock=clock,
        )

    # ---- the cluster ----

    def runs(self, uid: str, where: str, gib: float, **more: Any) -> str:
        """A pod that is bound and holds so much of a card (`n1-a`); its UID."""
        self.where[uid] = where, gib, more
        return super().runs(uid, where, gib, **more)

    def wants(self, pod: Pod, *offered: str) -> list[str]:
        """kube-scheduler asks for a waiting pod, by default with all nodes; the node that it gets."""
        self.stored.setdefault(pod.metadata.name, pod)
        found = self.place_of(pod, *offered)
        waiting = self.waiting.get(pod.metadata.uid)
        if waiting is not None:
            self.waiting.put(replace(waiting, asked=self.now, since=self.now - 3600))
        return found

    def card_fails(self, name: str) -> None:
        """The agent finds that a card (`n1-a`) does not work."""
        host = name.split("-", maxsplit=1)[0]
        cards = [card(f"{host}-{one}", healthy=name != f"{host}-{one}") for one in "ab"]
        self.ledger.put_node(host, node(*cards))

    def look(self, rounds: int = 1, seconds: float = 1.0) -> list[str]:
        """The worker looks so often, that long after each other; who has been evicted in all."""
        for _ in range(rounds):
            for waiter in self.waiting.all():
                self.waiting.put(replace(waiter, asked=self.now))
            asyncio.run(self.evictor.look())
            self.now += seconds
        return self.evictions

    def held(self, pod: Pod) -> str:
        """The node on which a place is held for a waiting pod; empty where there is none."""
        entry = self.ledger.entry(pod.metadata.uid)
        return entry.node if entry is not None and entry.stage is Stage.HELD else ""

    # ---- what the worker asks of the API server ----

    async def touch(self, waiter: PendingPod) -> float:
        """Have kube-scheduler ask again; it does when the test says so."""
        return float(waiter.rest.times)

    async def get(self, _resource: Resource[Pod], name: str, _namespace: str = "", /) -> Pod:
        """Read a pod."""
        return self.stored[name]

    async def patch(
        self,
        _resource: Resource[Pod],
        name: str,
        body: Any,
        _namespace: str = "",
        /,
        *,
        subresource: str = "",
    ) -> Pod:
        """Change a pod's annotations, or end its nomination."""
        assert subresource == "status"
        old = self.stored[name]
        annotations = {**old.metadata.annotations, **body["metadata"].get("annotations", {})}
        meta = msgspec.structs.replace(old.metadata, annotations=annotations)
        self.stored[name] = msgspec.structs.replace(old, metadata=meta)
        if "status" in body:
            assert body["status"] == {"nominatedNodeName": None}
            self.nominates(old, "")
        return self.stored[name]

    def nominates(self, pod: Pod, where: str) -> None:
        """A nomination is written, or ended; the watch shows that."""
        name = pod.metadata.name
        status = msgspec.structs.replace(pod.status, nominated_node_name=where)
        self.stored[name] = msgspec.structs.replace(self.stored[name], status=status)
        if not self.watch_lags:
            self.nominate(pod, where)

    async def evict_pod(self, _namespace: str, name: str, uid: str, /) -> None:
        """Evict a pod; the watch shows it as leaving."""
        if uid not in self.where:
            raise ApiError(404, "NotFound", "no such pod")
        self.evictions.append(name)
        if not self.watch_lags:
            self.leaves(uid)

    def leaves(self, uid: str, seconds: float = GRACE_SECONDS) -> None:
        """A pod is being deleted, and is to have ended after so many seconds."""
        where, gib, more = self.where[uid]
        self.feed.put_pod(running(uid, where, gib, **{**more, "leaving": self.now + seconds}))

    async def request(self, _method: str, _path: str, /, *, body: Any = None) -> bytes:
        """Take an event."""
        assert body is not None
        return b""


def dry_run(here: Evicting, pod: Pod) -> list[str]:
    """The nodes that a dry run names."""
    return (
        DryRun(here.filter, HypotheticalNodes(KnownNodes()))
        .answer(DryRunArgs(Pod=pod, NodeNames=("n1", "n2")))
        .NodeNames
    )
