"""Pods of namespaces, and the quotas that hold them, for an extender without a cluster."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from aliquot.crds.gpu_quota import GPUQuota, ResourceQuota
from aliquot.kube.objects import Pod
from aliquot.scheduler_ext.handlers.bind import Binder
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.quota.quotas import Quotas
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import GIB, card, node
from tests.unit.scheduler_ext.world import World

NUMBERS = itertools.count()


def quota(name: str, *namespaces: str, **spec: Any) -> GPUQuota:
    """A GPUQuota; amounts in GiB, percent and cards: `limit=(8, None, None)`."""
    amounts = {"guaranteed", "limit", "podMax"}
    written = {key: _amounts(value) if key in amounts else value for key, value in spec.items()}
    body = {"metadata": {"name": name}, "spec": {"namespaces": list(namespaces), **written}}
    return msgspec.convert(body, GPUQuota)


def _amounts(given: tuple[int | None, int | None, int | None]) -> dict[str, int]:
    gib, cores, cards = given
    found = {"memoryMiB": None if gib is None else gib * GIB, "cores": cores, "cards": cards}
    return {key: value for key, value in found.items() if value is not None}


def native(namespace: str, **hard: str) -> ResourceQuota:
    """A ResourceQuota of our resources: `gpu_mem="8Gi"`."""
    keys = {f"limits.aliquot.dev/{key.replace('_', '-')}": value for key, value in hard.items()}
    body = {"metadata": {"name": "cards", "namespace": namespace}, "spec": {"hard": keys}}
    return msgspec.convert(body, ResourceQuota)


def pod_of(namespace: str, *containers: dict[str, str], init: int = 0, uid: str = "") -> Pod:
    """A pod of containers with these limits, by our short names; the first `init` are init containers."""
    made = [
        {"name": f"c{n}", "resources": {"limits": {f"aliquot.dev/{key}": value for key, value in c.items()}}}
        for n, c in enumerate(containers)
    ]
    uid = uid or f"uid-{next(NUMBERS)}"
    meta = {"name": uid.replace("uid", "pod"), "namespace": namespace, "uid": uid}
    return msgspec.convert(
        {"metadata": meta, "spec": {"initContainers": made[:init], "containers": made[init:]}}, Pod
    )


class Teams:
    """An extender's parts over two nodes with two cards of 16 GiB each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.world = World()
        self.ledger = Ledger(lambda: self.now)
        self.quotas = Quotas(self.ledger.accounts)
        self.filter = Filter(self.ledger, ForeignPlugins(()), Placer(self.ledger.table), quotas=self.quotas)
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table), quotas=self.quotas)
        for name in ("n1", "n2"):
            self.ledger.put_node(name, node(card(f"{name}-a"), card(f"{name}-b")))

    def ask(self, pod: Pod, *nodes: str) -> FilterResult:
        """Filter one pod."""
        return self.filter.answer(FilterArgs(Pod=pod, NodeNames=nodes or ("n1", "n2")))

    def gets(self, namespace: str, gib: int, **more: str) -> bool:
        """Whether a pod of one slice finds its place, which it keeps."""
        return bool(self.ask(pod_of(namespace, {"gpu-mem": f"{gib}Gi", **more})).NodeNames)

    def refusal(self, namespace: str, *containers: dict[str, str], init: int = 0) -> str:
        """Why a pod gets no place; the same on every node."""
        answer = self.ask(pod_of(namespace, *containers, init=init))
        assert answer.NodeNames == []
        assert answer.FailedNodes == {}
        (why,) = set(answer.FailedAndUnresolvableNodes.values())
        return why
