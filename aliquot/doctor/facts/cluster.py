"""What is known of a cluster: everything that its checks look at, read once by `cluster_reader`."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from aliquot.api.names import DEFAULT_NAMES, DOMAIN, ResourceNames
from aliquot.crds.gpu_node import GPUNode
from aliquot.crds.gpu_pool import GPUPool
from aliquot.doctor.facts.fact import UNREAD, Fact
from aliquot.doctor.facts.installation import NAMESPACE
from aliquot.doctor.facts.objects import (
    ConfigMap,
    Definition,
    Node,
    Policy,
    PolicyBinding,
    ResourceSlice,
    WebhookConfiguration,
    Workload,
)
from aliquot.doctor.facts.rights import Right
from aliquot.doctor.finding import Told, not_checked, ok
from aliquot.kube.objects import Container, KubeObject, Pod
from aliquot.server.cert_rotation import Secret

COMPONENTS: Final = ("aliquot-certs", "aliquot-webhook", "aliquot-scheduler", "aliquot-agent")


@dataclass(frozen=True)
class Pods:
    """The pods that any check looks at; `left_out` says which pods of the cluster were not read, and why."""

    found: tuple[Pod, ...]
    left_out: str = ""

    def conclude(self, told: Sequence[Told], good: str) -> Iterator[Told]:
        """What a check tells of them in the end: all is well only if all were read."""
        yield from told
        if self.left_out:
            yield not_checked(self.left_out)
        elif not told:
            yield ok(good)


@dataclass(frozen=True)
class Cluster:
    """Facts; each may be unknown by itself.

    Attributes:
        namespace: Where Aliquot is installed.
        now: When they were read.
        unreachable: Why the API server did not answer at all; empty where it did.
        version: The API server's, as in `v1.37.2`.
        nodes: All nodes.
        gpu_nodes: What node agents have published.
        pods: Those of interest.
        own_pods: All of Aliquot's namespace.
        workloads: Aliquot's Deployments and its DaemonSet by name, as far as they are installed.
        secrets: By name; None where there is no such Secret.
        ready: By Service: why it is not ready, empty where it is.
        rights: Whether each account has what it needs.
        slices: ResourceSlices of GPU drivers.
        operators: GPU Operator's ClusterPolicies.
    """

    namespace: str = NAMESPACE
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    unreachable: str = ""
    version: Fact[str] = UNREAD
    nodes: Fact[tuple[Node, ...]] = UNREAD
    gpu_nodes: Fact[tuple[GPUNode, ...]] = UNREAD
    pools: Fact[tuple[GPUPool, ...]] = UNREAD
    pods: Fact[Pods] = UNREAD
    own_pods: Fact[tuple[Pod, ...]] = UNREAD
    workloads: Mapping[str, Fact[Workload | None]] = field(default_factory=dict)
    webhooks: Fact[WebhookConfiguration | None] = UNREAD
    policies: Fact[tuple[Policy, ...]] = UNREAD
    bindings: Fact[tuple[PolicyBinding, ...]] = UNREAD
    definitions: Mapping[str, Fact[Definition | None]] = field(default_factory=dict)
    configuration: Fact[ConfigMap | None] = UNREAD
    secrets: Mapping[str, Fact[Secret | None]] = field(default_factory=dict)
    ready: Mapping[str, Fact[str]] = field(default_factory=dict)
    rights: Mapping[Right, Fact[bool]] = field(default_factory=dict)
    slices: Fact[tuple[ResourceSlice, ...]] = UNREAD
    operators: Fact[tuple[KubeObject, ...]] = UNREAD

    def workload(self, name: str) -> Workload | None:
        """A component; None where it is not installed. Raises NotKnownError."""
        fact: Fact[Workload | None] = self.workloads.get(name, UNREAD)
        return fact.get()

    def secret(self, name: str) -> Secret | None:
        """A Secret; None where there is none. Raises NotKnownError."""
        fact: Fact[Secret | None] = self.secrets.get(name, UNREAD)
        return fact.get()

    def seconds_since(self, timestamp: str | None) -> float:
        """How long ago a moment was, as objects write it; 0 where there is none."""
        return (self.now - dt.datetime.fromisoformat(timestamp)).total_seconds() if timestamp else 0

    @cached_property
    def sharing(self) -> frozenset[str]:
        """The nodes whose cards Aliquot hands out. Raises NotKnownError."""
        return frozenset(node.metadata.name for node in self.gpu_nodes.get())

    @cached_property
    def names(self) -> ResourceNames:
        """The resources' names. Raises NotKnownError."""
        return names_told(self.workloads)

    @cached_property
    def dialects(self) -> frozenset[str]:
        """Other projects' names that pods may use, as the webhook is told. Raises NotKnownError."""
        webhook = self.workload("aliquot-webhook")
        return webhook.listed("dialects") if webhook else frozenset()


def names_told(workloads: Mapping[str, Fact[Workload | None]]) -> ResourceNames:
    """The resources' names, as the flags of the first component say that is installed. Raises NotKnownError."""
    for name in ("aliquot-webhook", "aliquot-scheduler", "aliquot-agent"):
        fact: Fact[Workload | None] = workloads.get(name, UNREAD)
        if one := fact.get():
            return ResourceNames.of(one.flag("resource-domain", DOMAIN))
    return DEFAULT_NAMES


def holds(pod: Pod, names: ResourceNames) -> bool:
    """Whether a container of a pod has a slice or a MIG instance."""
    return any(has_slice(one, names) for one in (*pod.spec.containers, *pod.spec.init_containers))


def has_slice(container: Container, names: ResourceNames) -> bool:
    """Whether a container has a slice or a MIG instance, perhaps since before the admin chose another domain."""
    return any(names.owns(name) or names.misnamed(name) for name in container.resources.limits)
