"""The objects of a cluster as JSON: nodes, their cards, pools, quotas and pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.model.api_server import Obj

GIB: Final = 1024
"""In MiB."""
CARD_GIB: Final = 16
MODEL: Final = "NVIDIA H200"
GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
MEMBERS: Final = "aliquot.dev/group-min-members"
PLAN: Final = "aliquot.dev/reclaim"
"""Of a pod that waits: who leaves which node for it."""


@dataclass(frozen=True)
class Machine:
    """A node as the history begins."""

    cards: int
    cpu: int = 32
    slices: int = 10


@dataclass(frozen=True)
class Setup:
    """A cluster as the history begins; quotas by name, as `GPUQuota.spec` has them."""

    machines: tuple[Machine, ...]
    quotas: dict[str, dict[str, Any]] = field(default_factory=dict)
    overcommit: int = 100
    offers_empty: bool = True
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wish:
    """What a pod asks for; `gib` 0 is whole cards."""

    namespace: str = "a"
    priority: int = 0
    cards: int = 1
    gib: int = 8
    cores: int = 0
    cpu: int = 1
    grace: int = 1
    burst: bool = False
    never: bool = False

    def __str__(self) -> str:
        amount = f"{self.gib} GiB" if self.gib else "whole"
        more = [f"{self.cores} % of the time"] if self.cores else []
        more += [f"priority {self.priority}"] if self.priority else []
        more += [f"{self.cpu} CPU"] if self.cpu != 1 else []
        more += [f"grace {self.grace} s"] if self.grace != 1 else []
        more += ["burst"] if self.burst else []
        more += ["never preempts"] if self.never else []
        return f"namespace {self.namespace}, {self.cards} x {amount}" + "".join(f", {one}" for one in more)


def node_of(name: str, machine: Machine) -> Obj:
    """A Node."""
    allocatable = {
        "cpu": str(machine.cpu),
        "memory": "512Gi",
        "pods": "110",
        "aliquot.dev/gpu": str(machine.cards * machine.slices),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def gpu_node_of(name: str, machine: Machine) -> Obj:
    """A GPUNode, all of whose cards are healthy."""
    cards = [
        {"uuid": f"{name}-{n}", "index": n, "model": MODEL, "memoryMiB": CARD_GIB * GIB, "health": "Healthy"}
        for n in range(machine.cards)
    ]
    return {"metadata": {"name": name}, "status": {"slicesPerCard": machine.slices, "cards": cards}}


def pool_of(overcommit: int) -> Obj:
    """A GPUPool of all cards."""
    return {"metadata": {"name": "all"}, "spec": {"memoryPercent": overcommit}}


def quota_of(name: str, spec: dict[str, Any]) -> Obj:
    """A GPUQuota."""
    return {"metadata": {"name": name}, "spec": spec}


def pod_of(name: str, wish: Wish, created: str, group: str = "", members: int = 0) -> Obj:
    """A pod of one container, of a group where one is named."""
    limits = {"aliquot.dev/gpu": str(wish.cards)}
    if wish.gib:
        limits["aliquot.dev/gpu-mem"] = f"{wish.gib}Gi"
    if wish.gib and wish.cores:
        limits["aliquot.dev/gpu-core"] = str(wish.cores)
    annotations = {"aliquot.dev/memory-class": "burst"} if wish.burst and wish.gib else {}
    if group:
        annotations[MEMBERS] = str(members)
    container = {"name": "main", "resources": {"limits": limits, "requests": {"cpu": str(wish.cpu)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": wish.namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": {GROUP_LABEL: group} if group else {},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "aliquot-scheduler",
            "priority": wish.priority,
            "preemptionPolicy": "Never" if wish.never else "PreemptLowerPriority",
            "terminationGracePeriodSeconds": wish.grace,
            "containers": [container],
        },
        "status": {"phase": "Pending"},
    }
