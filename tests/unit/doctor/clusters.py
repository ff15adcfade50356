"""A healthy cluster as the doctor reads it: the chart as rendered, real certificates, nodes as kubelets have them."""

import base64
import copy
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar

import msgspec

from aliquot.crds.gpu_node import GPUNode
from aliquot.doctor.all_checks import CLUSTER_CHECKS
from aliquot.doctor.check import run
from aliquot.doctor.facts import objects
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster, Pods
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.rights import RIGHTS
from aliquot.doctor.finding import Finding, Result
from aliquot.kube.objects import Pod
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from aliquot.server.cert_rotation import Secret
from aliquot.server.certs import Authority, new_authority, new_leaf
from tests.deploy import charts

Json = dict[str, Any]
T = TypeVar("T")
NAMESPACE = "aliquot-system"
NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
DAYS_90 = dt.timedelta(days=90)
DAEMON = {"kind": "DaemonSet", "name": "x", "controller": True}


def read(document: Mapping[str, Any], kind: type[T]) -> T:
    """A document as the doctor reads it off the API server."""
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


@cache
def authority() -> Authority:
    """The CA of the cluster."""
    return new_authority(dt.timedelta(days=3650), NOW - dt.timedelta(days=10))


def secret(name: str, begun: dt.timedelta = dt.timedelta(days=1), **more: Any) -> Secret:
    """A service's certificate as the keeper makes it, begun so long before NOW; `more` are arguments of new_leaf."""
    service = name.removesuffix("-tls")
    given = {"common_name": service, "names": [f"{service}.{NAMESPACE}.svc"], "life": DAYS_90, **more}
    signing = given.pop("authority", authority())
    leaf = new_leaf(signing, now=NOW - begun, **given)
    data = {"tls.crt": leaf.pem, "tls.key": leaf.key_pem, "ca.crt": signing.pem}
    return read({"data": {key: base64.b64encode(text).decode() for key, text in data.items()}}, Secret)


@cache
def rendered() -> tuple[Json, ...]:
    """What the chart makes of its defaults."""
    return tuple(charts.objects({}, kubernetes="v1.37.2"))


def of_kind(kind: str) -> Iterator[Json]:
    """Copies of the chart's objects of a kind."""
    return (copy.deepcopy(one) for one in rendered() if one["kind"] == kind)


def named(kind: str, name: str) -> Json:
    """A copy of one of them."""
    (found,) = [one for one in of_kind(kind) if one["metadata"]["name"] == name]
    return found


def workload(name: str, change: Json | None = None, args: Sequence[str] = ()) -> objects.Workload:
    """A component whose pods are ready; `change` is merged into its status, `args` follow its first container's."""
    kind = "DaemonSet" if name == "aliquot-agent" else "Deployment"
    document = named(kind, name)
    document["spec"]["template"]["spec"]["containers"][0]["args"] += list(args)
    ready = {"desiredNumberScheduled": 1, "numberReady": 1}
    usual_status = ready if kind == "DaemonSet" else {"readyReplicas": document["spec"]["replicas"]}
    document["status"] = {**usual_status, **(change or {})}
    return read(document, objects.Workload)


def configuration(**changes: Any) -> objects.WebhookConfiguration:
    """The webhook configuration with the CA's word; `changes` of each webhook, in the API's names."""
    document = named("MutatingWebhookConfiguration", "aliquot")
    for one in document["webhooks"]:
        one["clientConfig"]["caBundle"] = base64.b64encode(authority().pem).decode()
        one.update(changes)
    return read(document, objects.WebhookConfiguration)


def definition(name: str, **changes: Any) -> objects.Definition:
    """A CRD that is established; `changes` of its spec."""
    document = named("CustomResourceDefinition", name)
    document["spec"].update(changes)
    document["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return read(document, objects.Definition)


def node(
    name: str = "gpu-1", *, ready: bool = True, info: Json | None = None, **resources: str
) -> objects.Node:
    """A node with two cards, as its kubelet tells of it; `resources` it serves beside."""
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "aliquot.dev/gpu": "20", **resources}
    told = {
        "kubeletVersion": "v1.37.2",
        "containerRuntimeVersion": "containerd://2.4.2",
        "architecture": "amd64",
    }
    status = {
        "allocatable": allocatable,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "nodeInfo": {**told, **(info or {})},
    }
    labels = {"aliquot.dev/gpu-node": "true"}
    return read({"metadata": {"name": name, "labels": labels}, "status": status}, objects.Node)


def gpu_node(name: str = "gpu-1", **changes: Any) -> GPUNode:
    """What its agent has published; `changes` of the second card."""
    cards: list[Json] = [
        {"uuid": f"GPU-{name}-{n}", "index": n, "memoryMiB": 16384, "health": "Healthy"} for n in range(2)
    ]
    cards[1].update(changes)
    return read({"metadata": {"name": name}, "status": {"slicesPerCard": 10, "cards": cards}}, GPUNode)


def pod(name: str, node_name: str = "gpu-1", **more: Any) -> Pod:
    """A running pod; keywords: limits, env, image, namespace, labels, owner, annotations, meta, spec, status."""
    container: Json = {"name": "main", "image": more.get("image", "example/app")}
    container["resources"] = {"limits": more.get("limits", {})}
    container["env"] = more.get("env", [])
    metadata: Json = {"name": name, "namespace": more.get("namespace", "default"), "uid": f"uid-{name}"}
    metadata["labels"] = more.get("labels", {})
    metadata["annotations"] = more.get("annotations", {})
    metadata["ownerReferences"] = [{**DAEMON, "name": more["owner"]}] if "owner" in more else []
    spec = {"nodeName": node_name, "containers": [container], **more.get("spec", {})}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        **more.get("status", {}),
    }
    return read({"metadata": {**metadata, **more.get("meta", {})}, "spec": spec, "status": status}, Pod)


def tenant(name: str, card: str = "GPU-gpu-1-0", **more: Any) -> Pod:
    """A pod with a slice, placed on a card of gpu-1."""
    container = ContainerPlacement("main", ContainerKind.REGULAR, (CardShare(card, 4096, 30),))
    text = encode_placement(Placement(f"uid-{name}", "gpu-1", (container,)))
    more = {"annotations": {"aliquot.dev/placement": text}, **more}
    return pod(name, limits={"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi"}, **more)


def agent_pod(node_name: str = "gpu-1") -> Pod:
    """The agent's pod of a node."""
    labels = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "agent"}
    labels["app.kubernetes.io/version"] = version("aliquot")
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return pod(
        f"agent-{node_name}", node_name, namespace=NAMESPACE, labels=labels, env=env, owner="aliquot-agent"
    )


def pods(*more: Pod) -> Fact[Pods]:
    """A tenant, the agent's pod, and these."""
    return Fact.of(Pods((tenant("chat"), agent_pod(), *more)))


def policies() -> tuple[objects.Policy, ...]:
    """The chart's."""
    return tuple(read(one, objects.Policy) for one in of_kind("ValidatingAdmissionPolicy"))


def bindings(**changes: Any) -> tuple[objects.PolicyBinding, ...]:
    """Theirs; `changes` of each spec."""
    found = list(of_kind("ValidatingAdmissionPolicyBinding"))
    for one in found:
        one["spec"].update(changes)
    return tuple(read(one, objects.PolicyBinding) for one in found)


@cache
def healthy() -> Cluster:
    """A cluster with which nothing is wrong."""
    names = ("gpunodes.aliquot.dev", "gpupools.aliquot.dev", "gpuquotas.aliquot.dev")
    return Cluster(
        NAMESPACE,
        NOW,
        version=Fact.of("v1.37.2"),
        nodes=Fact.of((node(),)),
        gpu_nodes=Fact.of((gpu_node(),)),
        pools=Fact.of(()),
        pods=pods(),
        own_pods=Fact.of((agent_pod(),)),
        workloads={name: Fact.of(workload(name)) for name in COMPONENTS},
        webhooks=Fact.of(configuration()),
        policies=Fact.of(policies()),
        bindings=Fact.of(bindings()),
        definitions={name: Fact.of(definition(name)) for name in names},
        configuration=Fact.of(read(named("ConfigMap", "aliquot-scheduler"), objects.ConfigMap)),
        secrets={f"{name}-tls": Fact.of(secret(f"{name}-tls")) for name in COMPONENTS},
        ready={"aliquot-webhook": Fact.of(""), "aliquot-scheduler": Fact.of("")},
        rights={right: Fact.of(value=True) for right in RIGHTS},
        slices=Fact.of(()),
        operators=Fact.of(()),
    )


def broken(**changes: Any) -> Cluster:
    """The healthy one with other facts."""
    return replace(healthy(), **changes)


def found(cluster: Cluster, check: str = "") -> list[Finding]:
    """What one check, or all, find in a cluster."""
    return list(run([one for one in CLUSTER_CHECKS if check in ("", one.name)], cluster))


def worst(cluster: Cluster, check: str) -> Finding:
    """The worst that a check finds."""
    return min(found(cluster, check), key=lambda one: list(Result).index(one.result))
