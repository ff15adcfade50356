"""A pod as the extender follows it.

Pods are read into a struct of the few fields the ledger needs, which keeps the copy of a large cluster small
and leaves nothing to stumble over in the rest of a pod. Of its containers nothing is kept but what they take together
of the node's CPU and memory; only a pod that waits for the others of its group, or that another
scheduler has bound without a placement, keeps what they ask for.
"""

import datetime as dt
import math
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, Final, cast

import msgspec

from aliquot.api.names import DEFAULT_NAMES, PLACEMENT_ANNOTATION, SCHEDULER_NAME, ResourceNames
from aliquot.api.pod_groups import GroupKey, group_of
from aliquot.kube.objects import (
    Container,
    KubeObject,
    KubeStruct,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    SchedulingGate,
    SchedulingGroup,
)
from aliquot.request.host_resources import NO_HOST, HostShare, host_share

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
    slices: ClassVar[str] = DEFAULT_NAMES.gpu
    """The resource that counts device ids; a class has it, for this is worked out while a pod is read."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "node_name", sys.intern(self.node_name))
        msgspec.structs.force_setattr(self, "host", host_share(self, self.slices))

    def empty(self, *, scheduler: bool) -> None:
        """Keep nothing of the containers, and of who has bound them only where that is said."""
        if not scheduler:
            msgspec.structs.force_setattr(self, "scheduler_name", "")
        msgspec.structs.force_setattr(self, "containers", ())
        msgspec.structs.force_setattr(self, "init_containers", ())


class _Meta(ObjectMeta, frozen=True, kw_only=True):
    """A pod's metadata; labels that are alike are one object, and what nobody reads has a name that nothing has."""

    generate_name: str = msgspec.field(default="", name="(generateName)")

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


class _Terminated(KubeStruct, frozen=True, kw_only=True):
    finished_at: str | None = None


class _State(KubeStruct, frozen=True, kw_only=True):
    terminated: _Terminated | None = None


class _ContainerStatus(KubeStruct, frozen=True, kw_only=True):
    state: _State = _State()


class _Phase(KubeStruct, frozen=True, kw_only=True):
    phase: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()

    def empty(self) -> None:
        """Keep nothing of the containers."""
        msgspec.structs.force_setattr(self, "container_statuses", ())


class PlacedPod(KubeObject, frozen=True, kw_only=True):
    """A pod as far as the ledger is concerned."""

    metadata: _Meta = _Meta()
    spec: _Bound = _Bound()
    status: _Phase = _Phase()

    def __post_init__(self) -> None:
        group = self.group
        if self.finished or not (self._lacks_placement if self.spec.node_name else group):
            self.spec.empty(scheduler=bool(group))
        if not (group and self.finished) and self.status.container_statuses:
            self.status.empty()
        if not group and self.metadata.owner_references:
            msgspec.structs.force_setattr(self.metadata, "owner_references", ())

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

    @property
    def finished_at(self) -> float | None:
        """When the last container of a finished member of a group ended; infinity where none says, None before."""
        if not self.finished:
            return None
        ended = [one.state.terminated for one in self.status.container_statuses]
        return max((seconds_of(one.finished_at) for one in ended if one), default=math.inf)


def controller_of(meta: ObjectMeta) -> str:
    """The UID of the object that controls a member of a group; empty where there is none."""
    return next((one.uid for one in meta.owner_references if one.controller), "")


@lru_cache(maxsize=4096)
def seconds_of(timestamp: str | None) -> float:
    """A time as Kubernetes writes it, in seconds since 1970; 0 for one that cannot be read.

    One object for all pods of the same second: many are made at once.
    """
    try:
        return dt.datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return 0.0


def pods_of(names: ResourceNames) -> type[PlacedPod]:
    """Pods whose slices are counted in these names."""
    if names.gpu == _Bound.slices:
        return PlacedPod
    bound = msgspec.defstruct(
        "_Bound", [], bases=(_Bound,), namespace={"slices": names.gpu}, frozen=True, kw_only=True
    )
    whole = msgspec.defstruct(
        "PlacedPod", [("spec", bound, bound())], bases=(PlacedPod,), frozen=True, kw_only=True
    )
    return cast("type[PlacedPod]", whole)


def _whole(container: _Container) -> Container:
    return Container(
        name=container.name, resources=container.resources, restart_policy=container.restart_policy
    )
