"""Groups of pods, and an extender's parts that place them, without a cluster."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.api.pod_groups import PLUGINS, GroupKey
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import read_pod_request
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.gang.pod_groups import Terms
from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger, Stage
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBERS = itertools.count()
LABEL = "scheduling.x-k8s.io/pod-group"
NODES = ("n1", "n2")


def pod_in(
    group: str, gib: int = 16, *, priority: int = 0, limits: dict[str, str] | None = None, **more: Any
) -> Pod:
    """A pod of a group in namespace `default`, none where it is empty, with one slice unless it has no memory.

    Args:
        group: Its name.
        gib: The memory of the slice.
        priority: The pod's.
        limits: What it asks for instead, by our short names.
        more: Its metadata.
    """
    number = next(NUMBERS)
    meta = {"name": f"pod-{number:03}", "namespace": "default", "uid": f"uid-{number:03}", **more}
    if group:
        meta.setdefault("labels", {LABEL: group})
    asked = {"aliquot.dev/gpu-mem": f"{gib}Gi"} if gib else {"cpu": "1"}
    if limits:
        asked = {f"aliquot.dev/{key}": value for key, value in limits.items()}
    container = {"name": "main", "resources": {"limits": asked}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [container], "priority": priority}}, Pod)


def placed(pod: Pod, where: str = "", phase: str = "Pending", **meta: Any) -> PlacedPod:
    """The same as the watch shows it."""
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"nodeName": where}
    body["status"] = {"phase": phase}
    body["metadata"] |= meta
    return msgspec.convert(body, PlacedPod)


class Drill:
    """An extender's parts over two nodes with two cards of 16 GiB each."""

    def __init__(
        self, *, hold_seconds: float = 60.0, cards: int = 2, patience: float = 0.05, saving: float = 300.0
    ) -> None:
        self.now = 0.0
        self.world = World()
        self.ledger = Ledger(lambda: self.now)
        self.quotas = Quotas(self.ledger.accounts)
        self.waiting = PendingPods()
        self.ledger.on_change(self.waiting.something_changed)
        self.quotas.on_change(self.waiting.something_changed)
        node_backoff = NodeBackoff(lambda: self.now)
        self.gangs = Gangs(
            self.ledger,
            self.waiting,
            node_backoff,
            partial(read_pod_request),
            clock=lambda: self.now,
            hold_seconds=hold_seconds,
            bind_patience=patience,
            saving_seconds=saving,
        )
        self.filter = Filter(
            self.ledger,
            ForeignPlugins(()),
            Placer(self.ledger.table),
            node_backoff=node_backoff,
            quotas=self.quotas,
            waiting=self.waiting,
            gangs=self.gangs,
        )
        self.binder = Binder(
            self.world, self.ledger, Placer(self.ledger.table), quotas=self.quotas, gangs=self.gangs
        )
        for name in NODES:
            self.ledger.put_node(name, node(*(card(f"{name}-{n}") for n in range(cards))))

    def needs(
        self, group: str, members: int, seconds: float | None = None, namespace: str = "default"
    ) -> None:
        """The group's PodGroup says so."""
        self.gangs.put_terms(GroupKey(namespace, group, PLUGINS), Terms(members, seconds))

    def create(self, *pods: Pod) -> None:
        """Pods are created, and the watch shows them."""
        for pod in pods:
            self.world.pods[pod.metadata.name] = WorldPod(pod)
            self.see(pod)

    def see(self, pod: Pod) -> None:
        """The watch shows a pod as it is."""
        made = self.world.pods[pod.metadata.name]
        self.gangs.see(placed(pod, made.node))

    def group(
        self, name: str, count: int, needs: int | None = None, gib: int = 16, priority: int = 0
    ) -> list[Pod]:
        """A group of pods that wait, and its PodGroup."""
        pods = [pod_in(name, gib, priority=priority) for _ in range(count)]
        self.needs(name, count if needs is None else needs)
        self.create(*pods)
        return pods

    def ask(self, pod: Pod, nodes: Sequence[str] = NODES) -> FilterResult:
        """Filter one pod."""
        return self.filter.answer(FilterArgs(Pod=pod, NodeNames=tuple(nodes)))

    def where(self, pod: Pod, nodes: Sequence[str] = NODES) -> str:
        """The node that filter names; empty when there is none."""
        return next(iter(self.ask(pod, nodes).NodeNames or ()), "")

    def why(self, pod: Pod, nodes: Sequence[str] = NODES) -> str:
        """Why it names none; the same on every node, and none that evicting pods would help with."""
        answer = self.ask(pod, nodes)
        assert (answer.NodeNames, answer.FailedNodes, answer.Error) == ([], {}, "")
        (text,) = set(answer.FailedAndUnresolvableNodes.values())
        return text

    async def bind(self, pod: Pod, where: str) -> str:
        """Bind one pod, and let the watch see it; the error, empty on success."""
        meta = pod.metadata
        try:
            await self.binder.bind(
                BindArgs(PodName=meta.name, PodNamespace=meta.namespace, PodUID=meta.uid, Node=where)
            )
        except BindError as error:
            return str(error)
        entry = self.ledger.entry(meta.uid)
        assert entry is not None
        self.ledger.confirm(meta.uid, entry.placement)
        self.gangs.see(placed(pod, where))
        return ""

    async def bind_all(self, *pods: Pod) -> list[str]:
        """All that have a place come to bind there at the same time; the errors."""
        entries = [(pod, self.ledger.entry(pod.metadata.uid)) for pod in pods]
        return await asyncio.gather(*(self.bind(pod, entry.node) for pod, entry in entries if entry))

    def would(self, pod: Pod) -> bool:
        """Whether the extender would wake it."""
        return self.filter.would_place(pod, self.filter.request_of(pod), NODES)

    def leave(self, pod: Pod) -> None:
        """A pod is deleted."""
        self.world.pods.pop(pod.metadata.name, None)
        self.ledger.depart(pod.metadata.uid)
        self.gangs.depart(pod.metadata.uid)

    def pass_time(self, seconds: float) -> None:
        """The clock goes on, and what is due is done."""
        self.now += seconds
        self.gangs.tidy()

    def holds(self, *pods: Pod) -> int:
        """How many of these have a place, bound or not."""
        return sum(1 for pod in pods if self.ledger.entry(pod.metadata.uid))

    def bound(self, *pods: Pod) -> int:
        """How many of these are bound."""
        entries = [self.ledger.entry(pod.metadata.uid) for pod in pods]
        return sum(1 for entry in entries if entry and entry.stage is Stage.BOUND)
