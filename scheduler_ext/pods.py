"""A pod as the extender follows it.

Pods are read into a struct of the few fields the ledger needs, which keeps the copy of a large cluster small
and leaves nothing to stumble over in the rest of a pod. Of its containers nothing is kept but what they take together
of the node's CPU and memory; only a pod that waits for the others of its group, or that another
scheduler has bound without a placement, keeps what they ask for.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from aliquot.host import NO_HOST, HostShare, host_share
from aliquot.kube.objects import (
    Container,
    KubeObject,
    KubeStruct,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    ResourceRequirements,
    SchedulingGate,
    SchedulingGroup,
)
from aliquot.names import PLACEMENT_ANNOTATION, SCHEDULER_NAME
from scheduler_ext.groups import GroupKey, group_of

OURS: Final = frozenset({"", "default-scheduler", SCHEDULER_NAME})
"""Schedulers that bind through the extender, or know nothing of cards."""


class _Container(KubeStruct, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class _Bound(KubeStruct, frozen=True, kw_only=True):
    """Where the pod is, and what it takes there; most pods' containers are emptied as soon as they are added up."""

    node_name: str = ""
    priority: int | None = None
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    host: HostShare = NO_HOST

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "node_name", sys.intern(self.node_name))
        msgspec.structs.force_setattr(self, "host", host_share(self))

    def empty(self) -> None:
        """Keep nothing of the containers, nor of who has bound them."""
        msgspec.structs.force_setattr(self, "scheduler_name", "")
        msgspec.structs.force_setattr(self, "containers", ())
        msgspec.structs.force_setattr(self, "init_containers", ())


class _Meta(ObjectMeta, frozen=True, kw_only=True):
    """A pod's metadata; labels that are alike are one object, and what nobody reads has a name that nothing has."""

    generate_name: str = msgspec.field(default="", name="(generateName)")
    owner_references: tuple[OwnerReference, ...] = msgspec.field(default=(), name="(ownerReferences)")

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "labels", shared(self.labels))
        msgspec.structs.force_setattr(self, "uid", sys.intern(self.uid))
        msgspec.structs.force_setattr(self, "namespace", sys.intern(self.namespace))


def shared(texts: Mapping[str, str]) -> dict[str, str]:
    """The same texts, in one object for all pods of a template; nobody may change them."""
    return _shared(tuple(texts.items()))


@lru_cache(maxsize=4096)
def _shared(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(items)


class _Phase(KubeStruct, frozen=True, kw_only=True):
    phase: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""


class PlacedPod(KubeObject, frozen=True, kw_only=True):
    """A pod as far as the ledger is concerned."""

    metadata: _Meta = _Meta()
    spec: _Bound = _Bound()
    status: _Phase = _Phase()

    def __post_init__(self) -> None:
        if self.finished or not (self._lacks_placement if self.spec.node_name else self.group):
            self.spec.empty()

    @property
    def _lacks_placement(self) -> bool:
        """Whether another scheduler has bound it, which knows of no placements, with more than CPU and memory."""
        if self.spec.scheduler_name in OURS or PLACEMENT_ANNOTATION in self.metadata.annotations:
            return False
        containers = (*self.spec.init_containers, *self.spec.containers)
        return any("/" in name for c in containers for name in (*c.resources.limits, *c.resources.requests))

    @property
    def group(self) -> GroupKey | None:
        """The group it belongs to."""
        return group_of(self.metadata, self.spec.scheduling_group)

    def asking(self) -> Pod:
        """What it asks for; only a pod of a group that waits, or one that another scheduler has bound, can say."""
        spec = PodSpec(
            containers=tuple(_whole(one) for one in self.spec.containers),
            init_containers=tuple(_whole(one) for one in self.spec.init_containers),
            scheduling_group=self.spec.scheduling_group,
        )
        return Pod(metadata=self.metadata, spec=spec)

    @property
    def finished(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


def _whole(container: _Container) -> Container:
    return Container(
        name=container.name, resources=container.resources, restart_policy=container.restart_policy
    )
