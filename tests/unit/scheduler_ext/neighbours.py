"""An extender's parts with pods that run, have priorities and may be evicted; no cluster."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import msgspec

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.kube.objects import Pod
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind, read_pod_request
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.gang.coscheduling import Gangs
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.handlers.preempt import Preemption
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, read_preempt
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.disruption_budgets import Budget, Budgets
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.node_backoff import NodeBackoff
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.pods import PlacedPod
from aliquot.scheduler_ext.state.running_pods import RunningPods
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.world import World

STARTED = "2026-11-22T10:00:{:02d}Z"
BEGUN = 1795341600.0
"""10:00:00 of that day, in seconds since 1970."""
NUMBERS = itertools.count()


class Neighbours:
    """Nodes with two cards of 16 GiB each, and pods on them."""

    def __init__(self, *nodes: str, min_run_seconds: float = 0.0, lends: bool = True) -> None:
        self.now = BEGUN + 3600
        self.ledger, self.waiting = Ledger(lambda: self.now), PendingPods()
        self.quotas, self.budgets = Quotas(self.ledger.accounts, lends=lends), Budgets()
        self.running_pods = RunningPods(self.ledger)
        self.candidates = Candidates(
            self.ledger, self.running_pods, self.budgets, self.quotas, min_run_seconds, lambda: self.now
        )
        self.nominations = Nominations(self.ledger, self.waiting, self.candidates)
        foreign, node_backoff = ForeignPlugins(()), NodeBackoff()
        self.gangs = Gangs(self.ledger, self.waiting, node_backoff, read_pod_request)
        self.filter = Filter(
            self.ledger,
            foreign,
            Placer(self.ledger.table),
            quotas=self.quotas,
            node_backoff=node_backoff,
            waiting=self.waiting,
            gangs=self.gangs,
            nominations=self.nominations,
        )
        self.preemption = Preemption(self.filter, self.candidates, self.nominations)
        self.feed = ClusterInformer(
            None,  # type: ignore[arg-type] - its reflectors never run
            self.ledger,
            foreign,
            resizer(World(), self.ledger, self.quotas),
            waiting=self.waiting,
            running_pods=self.running_pods,
            nominations=self.nominations,
        )
        self.nodes = nodes or ("n1",)
        for name in self.nodes:
            self.ledger.put_node(name, node(card(f"{name}-a"), card(f"{name}-b")))

    def runs(self, uid: str, where: str, gib: float, **more: Any) -> str:
        """A pod that is bound and holds so much of a card (`n1-a`); its UID."""
        self.feed.put_pod(running(uid, where, gib, **more))
        return uid

    def ends(self, uid: str) -> None:
        """A pod has gone."""
        self.feed.drop_pod(uid)

    def nominate(self, pod: Pod, where: str) -> None:
        """kube-scheduler has evicted for a waiting pod, and says where it is to go."""
        meta = {"uid": pod.metadata.uid, "name": pod.metadata.name, "namespace": pod.metadata.namespace}
        body = {"metadata": meta, "status": {"nominatedNodeName": where}}
        self.feed.put_pod(msgspec.convert(body, PlacedPod))

    def place_of(self, pod: Pod, *offered: str) -> list[str]:
        """What filter answers."""
        return self.filter.answer(FilterArgs(Pod=pod, NodeNames=offered or self.nodes)).NodeNames or []

    def victims(self, pod: Pod, **given: list[str] | None) -> dict[str, set[str]]:
        """What preempt answers, for nodes that kube-scheduler gives with these victims; all, with none, by default."""
        return {name: set(uids) for name, uids in self.ordered_victims(pod, **given).items()}

    def ordered_victims(self, pod: Pod, **given: list[str] | None) -> dict[str, tuple[str, ...]]:
        """The same in the order in which they are answered."""
        named = given or dict.fromkeys(self.nodes)
        asked = {
            name: {"Pods": None if uids is None else [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for name, uids in named.items()
        }
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": asked}
        answer = self.preemption.answer(read_preempt(msgspec.json.encode(body))).NodeNameToMetaVictims
        assert all(victims.Pods for victims in answer.values())
        self.violations = {name: victims.NumPDBViolations for name, victims in answer.items()}
        return {name: victims.uids for name, victims in answer.items()}


def running(
    uid: str,
    where: str,
    gib: float,
    *,
    priority: int = 0,
    namespace: str = "default",
    burst: bool = False,
    second: int = 0,
    leaving: bool | float = False,
    labels: dict[str, str] | None = None,
) -> PlacedPod:
    """A bound pod of one container as the watch shows it; `leaving`: when it is to have ended, True: at 11:00:30."""
    host = where.split("-", maxsplit=1)[0]
    share = CardShare(where, int(gib * GIB), 0)
    placement = Placement(uid, host, (ContainerPlacement("c", ContainerKind.REGULAR, (share,), burst=burst),))
    meta: dict[str, Any] = {
        "uid": uid,
        "name": uid,
        "namespace": namespace,
        "labels": labels or {},
        "annotations": {PLACEMENT_ANNOTATION: encode_placement(placement)},
    }
    if leaving:
        by = BEGUN + 3630 if leaving is True else leaving
        meta["deletionTimestamp"] = dt.datetime.fromtimestamp(by, dt.UTC).isoformat()
    body = {
        "metadata": meta,
        "spec": {
            "nodeName": host,
            "priority": priority,
            "containers": [{"name": "c", "resources": {"limits": {"aliquot.dev/gpu": "1"}}}],
        },
        "status": {"phase": "Running", "startTime": STARTED.format(second)},
    }
    return msgspec.convert(body, PlacedPod)


def waiter(gib: int, priority: int = 100, namespace: str = "default", **limits: str) -> Pod:
    """A pod that waits for a slice."""
    uid = f"w{next(NUMBERS)}"
    resources = {"limits": {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": f"{gib}Gi", **limits}}
    body = {
        "metadata": {"name": uid, "namespace": namespace, "uid": uid},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
    }
    return msgspec.convert(body, Pod)


def budget(namespace: str, allowed: int, **labels: str) -> Budget:
    """A PodDisruptionBudget."""
    body = {
        "metadata": {"name": "budget", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, Budget)
