"""The few fields of Kubernetes objects that we read.

Unknown fields are ignored, so these structs are for reading only: write changes as patches, never by encoding
one of them back, which would drop all that we do not know.
"""

from typing import Any, Final

import msgspec

from aliquot.units import Quantity

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises on an unexpected text; bad UTF-8 and nesting too deep are no errors of msgspec's own."""


def version_of(text: str) -> int:
    """A resource version as a number that grows; 0 where a server writes something else."""
    return int(text) if text.isdigit() else 0


class KubeStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all: immutable, and named as the API names things (`resourceVersion`)."""


class OwnerReference(KubeStruct, frozen=True, kw_only=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(KubeStruct, frozen=True, kw_only=True):
    """What every object carries."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


class KubeObject(KubeStruct, frozen=True, kw_only=True):
    """An object with metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-scoped objects."""
        namespace = self.metadata.namespace
        return f"{namespace}/{self.metadata.name}" if namespace else self.metadata.name


class ResourceRequirements(KubeStruct, frozen=True, kw_only=True):
    """A container's resources; quantities are unread text (or numbers, in hand-written YAML)."""

    limits: dict[str, Quantity] = msgspec.field(default_factory=dict)
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)


class EnvVar(KubeStruct, frozen=True, kw_only=True):
    """One environment variable; `value_from` is kept as it came."""

    name: str = ""
    value: str | None = None
    value_from: dict[str, Any] | None = None


class VolumeMount(KubeStruct, frozen=True, kw_only=True):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False


class SecurityContext(KubeStruct, frozen=True, kw_only=True):
    """What a container may do to its node."""

    privileged: bool | None = None


class Container(KubeStruct, frozen=True, kw_only=True):
    """A container of a pod's template."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    security_context: SecurityContext | None = None


class SchedulingGroup(KubeStruct, frozen=True, kw_only=True):
    """The PodGroup of a pod, since Kubernetes 1.36."""

    pod_group_name: str = ""


class SchedulingGate(KubeStruct, frozen=True, kw_only=True):
    """Why a pod is not to be scheduled yet."""

    name: str = ""


class PodSpec(KubeStruct, frozen=True, kw_only=True):
    """What a pod asks for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    scheduler_name: str = ""
    restart_policy: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    runtime_class_name: str | None = None
    scheduling_group: SchedulingGroup | None = None


class ContainerStatus(KubeStruct, frozen=True, kw_only=True):
    """What the kubelet says of a container; `state` has one of the keys waiting, running, terminated."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")
    state: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    last_state: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class Condition(KubeStruct, frozen=True, kw_only=True):
    """One named truth about an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(KubeStruct, frozen=True, kw_only=True):
    """What the cluster says of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject, frozen=True, kw_only=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether no container of it will run again."""
        return self.status.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> Container | None:
        """One of its containers, init containers included."""
        every = (*self.spec.init_containers, *self.spec.containers)
        return next((one for one in every if one.name == name), None)


class Taint(KubeStruct, frozen=True, kw_only=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(KubeStruct, frozen=True, kw_only=True):
    """What the admin says of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(KubeStruct, frozen=True, kw_only=True):
    """What a node has."""

    capacity: dict[str, Quantity] = msgspec.field(default_factory=dict)
    allocatable: dict[str, Quantity] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(KubeObject, frozen=True, kw_only=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Status(KubeStruct, frozen=True, kw_only=True):
    """What the API server answers without an object, mostly an error; `error`: of a service behind its proxy."""

    status: str = ""
    reason: str = ""
    message: str = ""
    error: str = ""
    code: int = 0


class LeaseSpec(KubeStruct, frozen=True, kw_only=True):
    """Who holds a Lease, and for how long from each renewal; times are of the holder's wall clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    """A coordination.k8s.io Lease."""

    spec: LeaseSpec = LeaseSpec()
