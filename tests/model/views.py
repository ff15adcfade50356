"""What counts of pods, quotas, nodes and cards, read from their objects as an administrator reads them.

No code is shared with the extender. Where the rules come from: docs/requests.md (amounts) and docs/quota.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.model.objects import GIB, GROUP_LABEL, MEMBERS, PLAN
from tests.model.virtual_time import CLOCK

if TYPE_CHECKING:
    from tests.model.api_server import Obj

MEMORY, CORES, CARDS = range(3)
FIELDS: Final = ("memoryMiB", "cores", "cards")
Amounts = tuple[int, int, int]
NOTHING: Final[Amounts] = (0, 0, 0)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum of each amount."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def rest(one: Amounts, other: Amounts) -> Amounts:
    """What each amount is beyond the other."""
    return max(0, one[0] - other[0]), max(0, one[1] - other[1]), max(0, one[2] - other[2])


@dataclass(frozen=True)
class Card:
    """A card and what is taken of it."""

    uuid: str
    node: str
    memory: int
    slots: int
    percent: int
    healthy: bool
    guaranteed: int = 0
    promised: int = 0
    cores: int = 0
    used_slots: int = 0

    def fits(self, memory: int, cores: int, *, whole: bool, burst: bool) -> bool:
        """Whether a slice fits beside the others; docs/requests.md: guaranteed memory is never overcommitted."""
        if not self.healthy or self.used_slots >= self.slots:
            return False
        if whole:
            return self.used_slots == 0
        if self.promised + memory > self.memory * self.percent // 100 or self.cores + cores > 100:
            return False
        return burst or self.guaranteed + memory <= self.memory

    def taking(self, memory: int, cores: int, *, whole: bool, burst: bool) -> Card:
        """The card once a slice is on it."""
        return replace(
            self,
            guaranteed=self.guaranteed + (0 if burst else memory),
            promised=self.promised + memory,
            cores=self.cores + cores,
            used_slots=self.slots if whole else self.used_slots + 1,
        )


@dataclass(frozen=True)
class PodView:
    """A pod as the model sees it.

    Attributes:
        places: The cards that it was given, each with MiB and cores.
        promised: It waits, and others leave a node for it.
        nominated: The node for which kube-scheduler has nominated it.
        goal: The same, or the node that others leave by its plan.
        leaves_by: When it is to have ended, for one that is being deleted.
    """

    name: str
    uid: str
    namespace: str
    priority: int
    cards: int
    memory: int
    cores: int
    cpu: int
    burst: bool
    never: bool
    group: str
    members: int
    node: str
    leaving: bool
    places: tuple[tuple[str, int, int], ...]
    promised: bool = False
    nominated: str = ""
    goal: str = ""
    leaves_by: float = math.inf

    @property
    def whole(self) -> bool:
        """Whether it asks for cards of its own."""
        return not self.memory

    def demand(self, card_memory: int) -> Amounts:
        """What it takes of its quota on cards of this size."""
        if self.places:
            return (
                sum(memory for _, memory, _ in self.places),
                sum(cores for _, _, cores in self.places),
                len(self.places),
            )
        memory, cores = (card_memory, 100) if self.whole else (self.memory, self.cores)
        return memory * self.cards, cores * self.cards, self.cards


def view(pod: Obj) -> PodView:
    """Read a pod; resized limits are in its placement."""
    meta, spec = pod["metadata"], pod["spec"]
    limits = spec["containers"][0]["resources"]["limits"]
    placement = meta["annotations"].get("aliquot.dev/placement")
    nominated = pod["status"].get("nominatedNodeName") or ""
    plan = json.loads(meta["annotations"].get(PLAN) or "{}")
    places: list[tuple[str, int, int]] = []
    if placement:
        for container in json.loads(placement)["containers"]:
            places += [(one["uuid"], one["memoryMiB"], one.get("cores", 0)) for one in container["cards"]]
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        namespace=meta["namespace"],
        priority=int(spec.get("priority") or 0),
        cards=int(limits["aliquot.dev/gpu"]),
        memory=int(limits.get("aliquot.dev/gpu-mem", "0Gi").removesuffix("Gi")) * GIB,
        cores=int(limits.get("aliquot.dev/gpu-core", "0")),
        cpu=int(spec["containers"][0]["resources"]["requests"]["cpu"]),
        burst=meta["annotations"].get("aliquot.dev/memory-class") == "burst",
        never=spec.get("preemptionPolicy") == "Never",
        group=meta.get("labels", {}).get(GROUP_LABEL, ""),
        members=int(meta["annotations"].get(MEMBERS, "0")),
        node=spec.get("nodeName", ""),
        leaving="deletionTimestamp" in meta,
        leaves_by=CLOCK.read(meta["deletionTimestamp"]) if "deletionTimestamp" in meta else math.inf,
        places=tuple(places) if spec.get("nodeName") else (),
        promised=bool(nominated or plan),
        nominated=nominated,
        goal=nominated or plan.get("node", ""),
    )


@dataclass(frozen=True)
class Quota:
    """A GPUQuota; None where nothing is said."""

    name: str
    namespaces: tuple[str, ...]
    guaranteed: tuple[int | None, int | None, int | None]
    limit: tuple[int | None, int | None, int | None]
    reclaim: bool = False
    parent: str = ""

    @classmethod
    def of(cls, obj: Obj) -> Quota:
        """Read one."""
        spec = obj["spec"]
        given, most = (
            tuple(spec.get(key, {}).get(name) for name in FIELDS) for key in ("guaranteed", "limit")
        )
        reclaim, parent = spec.get("reclaim", False), spec.get("parent", "")
        return cls(obj["metadata"]["name"], tuple(spec["namespaces"]), given, most, reclaim, parent)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Node:
    """A node: whether pods may come to it, its cores, and the slices that its kubelet has."""

    name: str
    usable: bool
    cpu: int
    slices: int


def node_of(name: str, obj: Obj) -> Node:
    """Read a node."""
    ready = all(one["status"] == "True" for one in obj["status"]["conditions"] if one["type"] == "Ready")
    allocatable = obj["status"]["allocatable"]
    return Node(
        name,
        ready and not obj["spec"].get("unschedulable", False),
        int(allocatable["cpu"]),
        int(allocatable["aliquot.dev/gpu"]),
    )
