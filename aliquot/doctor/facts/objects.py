"""The few fields of Kubernetes objects that only the doctor reads."""

from itertools import takewhile
from typing import Any, Final

import msgspec

from aliquot.kube.objects import Condition, Container, KubeObject, KubeStruct, NodeStatus, ObjectMeta, PodSpec
from aliquot.kube.objects import Node as PlainNode
from aliquot.kube.resources import Resource
from aliquot.kube.selectors import NodeSelector

ADMISSION: Final = "admissionregistration.k8s.io"


class NodeInfo(KubeStruct, frozen=True, kw_only=True):
    """What a node's kubelet says of itself."""

    kubelet_version: str = ""
    container_runtime_version: str = ""
    architecture: str = ""


class NodeState(NodeStatus, frozen=True, kw_only=True):
    """A node's status with it."""

    node_info: NodeInfo = NodeInfo()


class Node(PlainNode, frozen=True, kw_only=True):
    """A node."""

    status: NodeState = NodeState()

    @property
    def ready(self) -> bool:
        """Whether its kubelet reports."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class NodeAffinity(KubeStruct, frozen=True, kw_only=True):
    """Which nodes a pod must have."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(KubeStruct, frozen=True, kw_only=True):
    """Of a pod's affinity, that to nodes."""

    node_affinity: NodeAffinity | None = None


class TemplateSpec(PodSpec, frozen=True, kw_only=True):
    """What a workload's pods ask for."""

    affinity: Affinity | None = None


class Template(KubeStruct, frozen=True, kw_only=True):
    """A workload's pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(KubeStruct, frozen=True, kw_only=True):
    """How many pods of which kind."""

    replicas: int = 1
    template: Template = Template()


class WorkloadStatus(KubeStruct, frozen=True, kw_only=True):
    """How many there are, in a Deployment's words or in a DaemonSet's."""

    ready_replicas: int = 0
    number_ready: int = 0
    desired_number_scheduled: int | None = None


class Workload(KubeObject, frozen=True, kw_only=True):
    """A Deployment or a DaemonSet."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def ready(self) -> int:
        """How many of its pods are."""
        return self.status.ready_replicas + self.status.number_ready

    @property
    def wanted(self) -> int:
        """How many should be."""
        wanted = self.status.desired_number_scheduled
        return self.spec.replicas if wanted is None else wanted

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers of its pods, with their sidecars."""
        spec = self.spec.template.spec
        return (*spec.init_containers, *spec.containers)

    @property
    def words(self) -> tuple[str, ...]:
        """The command lines of its containers, one after another."""
        return tuple(word for one in self.containers for word in (*one.command, *one.args))

    def flag(self, name: str, default: str = "") -> str:
        """The value of `--name=value`, the last one."""
        start = f"--{name}="
        return ([default] + [word.removeprefix(start) for word in self.words if word.startswith(start)])[-1]

    def listed(self, name: str) -> frozenset[str]:
        """The words after `--name` in a container's arguments, up to the next flag."""
        for container in self.containers:
            if f"--{name}" in container.args:
                after = container.args[container.args.index(f"--{name}") + 1 :]
                return frozenset(takewhile(lambda word: not word.startswith("-"), after))
        return frozenset()

    @property
    def removes_files(self) -> bool:
        """Whether they are agents that remove what they have written (`agent.removeFiles`), and do nothing else."""
        return "remove-files" in self.words

    @property
    def version(self) -> str:
        """The version of Aliquot that its pods are labelled with."""
        return self.spec.template.metadata.labels.get("app.kubernetes.io/version", "")

    def meant_for(self, node: PlainNode) -> bool:
        """Whether a DaemonSet's pods belong on a node, by its labels."""
        spec, labels = self.spec.template.spec, node.metadata.labels
        if any(labels.get(key) != value for key, value in spec.node_selector.items()):
            return False
        affinity = spec.affinity.node_affinity if spec.affinity else None
        wanted = affinity.required if affinity else None
        return wanted is None or wanted.picks(node.metadata.name, labels)


class ServiceReference(KubeStruct, frozen=True, kw_only=True):
    """Where the API server calls a webhook."""

    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443


class ClientConfig(KubeStruct, frozen=True, kw_only=True):
    """The same, and by which CA it knows the webhook: PEM in base64."""

    ca_bundle: str = ""
    service: ServiceReference | None = None
    url: str = ""


class NamedExpression(KubeStruct, frozen=True, kw_only=True):
    """A match condition."""

    name: str = ""
    expression: str = ""


class Webhook(KubeStruct, frozen=True, kw_only=True):
    """One webhook of a configuration; selectors as they came."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    failure_policy: str = ""
    match_conditions: tuple[NamedExpression, ...] | None = None
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None


class WebhookConfiguration(KubeObject, frozen=True, kw_only=True):
    """A MutatingWebhookConfiguration."""

    webhooks: tuple[Webhook, ...] = ()


class TypeChecking(KubeStruct, frozen=True, kw_only=True):
    """What the control plane says of a policy's expressions."""

    expression_warnings: tuple[dict[str, str], ...] | None = ()


class PolicyStatus(KubeStruct, frozen=True, kw_only=True):
    """A policy's status."""

    type_checking: TypeChecking | None = None


class Policy(KubeObject, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicy."""

    status: PolicyStatus = PolicyStatus()


class BindingSpec(KubeStruct, frozen=True, kw_only=True):
    """What a policy's binding says."""

    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()
    match_resources: dict[str, Any] | None = None


class PolicyBinding(KubeObject, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicyBinding."""

    spec: BindingSpec = BindingSpec()


class ServedVersion(KubeStruct, frozen=True, kw_only=True):
    """A version of a custom resource."""

    name: str = ""
    served: bool = False
    storage: bool = False


class DefinitionSpec(KubeStruct, frozen=True, kw_only=True):
    """All of them."""

    versions: tuple[ServedVersion, ...] = ()


class DefinitionStatus(KubeStruct, frozen=True, kw_only=True):
    """Whether the API server serves them."""

    conditions: tuple[Condition, ...] | None = ()


class Definition(KubeObject, frozen=True, kw_only=True):
    """A CustomResourceDefinition."""

    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    """A ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


class SliceSpec(KubeStruct, frozen=True, kw_only=True):
    """Whose devices a ResourceSlice tells of, and where they are."""

    driver: str = ""
    node_name: str | None = None


class ResourceSlice(KubeObject, frozen=True, kw_only=True):
    """Devices for Dynamic Resource Allocation."""

    spec: SliceSpec = SliceSpec()


NODES: Final = Resource("", "v1", "nodes", Node, namespaced=False)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", ConfigMap)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", Workload)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", Workload)
WEBHOOKS: Final = Resource(
    ADMISSION, "v1", "mutatingwebhookconfigurations", WebhookConfiguration, namespaced=False
)
POLICIES: Final = Resource(ADMISSION, "v1", "validatingadmissionpolicies", Policy, namespaced=False)
POLICY_BINDINGS: Final = Resource(
    ADMISSION, "v1", "validatingadmissionpolicybindings", PolicyBinding, namespaced=False
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", Definition, namespaced=False
)
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", ResourceSlice, namespaced=False)
CLUSTER_POLICIES: Final = Resource("nvidia.com", "v1", "clusterpolicies", KubeObject, namespaced=False)
