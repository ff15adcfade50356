"""A pocket cluster on which the chart's objects are, with real certificates, a real webhook and a real extender.

Nothing makes pods of Deployments there: what their controllers and kubelets would tell is written as they would. The
doctor asks over real HTTP.
"""

import base64
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import free_port
from tests.cluster.control_plane import healthy
from tests.deploy import charts

Json = dict[str, Any]

NAMESPACE: Final = "aliquot-system"
LOOPBACK: Final = "127.0.0.1"
MERGE: Final = "application/merge-patch+json"
APPLIED: Final = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "Service",
    "Deployment",
    "DaemonSet",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
)
SYSTEM: Final = {
    "kind": "ClusterRole",
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "metadata": {"name": "system:kube-scheduler"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}],
}
"""What every real cluster has."""
VERSION: Final = "v1.36.2"
"""As the pocket cluster says."""
CARD: Final = {"uuid": "GPU-1", "index": 0, "memoryMiB": 16384, "health": "Healthy"}


@dataclass
class Doctored:
    """The cluster, with nothing wrong."""

    cluster: PocketCluster

    @classmethod
    def install(cls, cluster: PocketCluster) -> Self:
        """What an admin, kubelets and controllers do."""
        made = cls(cluster)
        cluster.start_apiserver("--history", "4000")
        kubectl = cluster.kubectl
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, SYSTEM)
        objects = sorted(
            (one for one in charts.objects({}, kubernetes=VERSION) if one["kind"] in APPLIED), key=_order
        )
        tenant = made.pod("chat", limits={"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi"})
        made.place(tenant)
        for one in objects:
            kubectl.apply(one)
        made.node("gpu-1")
        made.agent("gpu-1")
        made.keep_certificates()
        made.serve("aliquot-webhook", "aliquot.webhook", "https", ["--accept-tokens", "--quotas"])
        made.serve("aliquot-scheduler", "aliquot.scheduler_ext", "extender", ["--accept-tokens"])
        for kind, plural in (("Deployment", "deployments"), ("DaemonSet", "daemonsets")):
            for one in objects:
                if one["kind"] == kind:
                    made.complete(plural, one)
        return made

    def doctor(self, *flags: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the command."""
        argv = [sys.executable, "-m", "aliquot.cli", "doctor", *flags]
        argv += ["--kubeconfig", str(kubeconfig or self.cluster.kubeconfig)]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    def findings(self, *flags: str, kubeconfig: Path | None = None) -> list[Json]:
        """What it finds; its exit status says whether something failed."""
        done = self.doctor("--json", *flags, kubeconfig=kubeconfig)
        found: list[Json] = json.loads(done.stdout)["findings"]
        assert done.returncode == int(any(one["result"] == "failure" for one in found)), done.stderr
        return found

    def pod(self, name: str, limits: Json | None = None, env: Json | None = None) -> Json:
        """A pod that runs on gpu-1."""
        container = {"name": "main", "image": "example/app", "resources": {"limits": limits or {}}}
        container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
        body["spec"]["nodeName"] = "gpu-1"
        created = self.cluster.kubectl.create({"apiVersion": "v1", "kind": "Pod", **body})
        self.status("pods", "default", name, {"phase": "Running"})
        return created

    def place(self, pod: Json) -> None:
        """Writes a pod's placement, as its Binding would."""
        container = ContainerPlacement("main", ContainerKind.REGULAR, (CardShare("GPU-1", 4096, 0),))
        text = encode_placement(Placement(pod["metadata"]["uid"], "gpu-1", (container,)))
        change = {"metadata": {"annotations": {"aliquot.dev/placement": text}}}
        self.cluster.kubectl.patch("pods", pod["metadata"]["name"], change)

    def node(self, name: str, **more: str) -> None:
        """A node with a card as kubelet and agent tell of it; `more` resources that it serves."""
        labels = {"aliquot.dev/gpu-node": "true"}
        self.cluster.kubectl.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}},
            {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}},
        )
        info = {"kubeletVersion": VERSION, "containerRuntimeVersion": "containerd://2.4.2"}
        allocatable = {"cpu": "8", "pods": "110", "aliquot.dev/gpu": "10", **more}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"nodeInfo": info, "allocatable": allocatable, "conditions": conditions}
        self.status("nodes", "", name, status)
        self.status("gpunodes.aliquot.dev", "", name, {"slicesPerCard": 10, "cards": [CARD]})

    def agent(self, node: str) -> None:
        """The agent's pod, as its DaemonSet makes it."""
        template = self.cluster.kubectl.get("daemonsets.apps", "aliquot-agent", NAMESPACE)["spec"]["template"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "aliquot-agent", "uid": "1"}
        metadata = {**template["metadata"], "name": "aliquot-agent-x", "namespace": NAMESPACE}
        body = {
            "metadata": {**metadata, "ownerReferences": [owner]},
            "spec": {**template["spec"], "nodeName": node},
        }
        self.cluster.kubectl.create({"apiVersion": "v1", "kind": "Pod", **body})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.status("pods", NAMESPACE, "aliquot-agent-x", ready)

    def complete(self, plural: str, workload: Json) -> None:
        """Says that all pods of a workload are ready."""
        status = {"readyReplicas": workload["spec"].get("replicas", 1)}
        if plural == "daemonsets":
            status = {"desiredNumberScheduled": 1, "numberReady": 1}
        self.status(f"{plural}.apps", NAMESPACE, workload["metadata"]["name"], status)

    def keep_certificates(self) -> None:
        """Has the keeper look once, for the certificates that the chart names."""
        (keeper,) = [one for one in charts.objects({}) if named(one, "Deployment", "aliquot-certs")]
        args = keeper["spec"]["template"]["spec"]["containers"][0]["args"]
        argv = [sys.executable, "-m", "aliquot.cli", "certs", "keep", "--once"]
        argv += ["--kubeconfig", str(self.cluster.kubeconfig)]
        argv += [word for word in args if word.startswith("--leaf=")]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)

    def serve(self, name: str, module: str, port_name: str, flags: list[str]) -> None:
        """Starts a service with its Secret's certificate, behind its Service."""
        directory = self.cluster.root / name
        directory.mkdir()
        for key, value in self.cluster.kubectl.get("secrets", f"{name}-tls", NAMESPACE)["data"].items():
            (directory / key).write_bytes(base64.b64decode(value))
        listening = free_port()
        tls = ["--tls-cert", str(directory / "tls.crt"), "--tls-key", str(directory / "tls.key")]
        argv = [sys.executable, "-m", module, "--host", LOOPBACK, "--port", str(listening), *tls, *flags]
        argv += ["--kubeconfig", str(self.cluster.kubeconfig)]
        self.cluster.start(name, argv, ready=partial(healthy, f"https://{LOOPBACK}:{listening}/readyz"))
        subset = {
            "addresses": [{"ip": LOOPBACK}],
            "ports": [{"name": port_name, "port": listening}],
        }
        metadata = {"name": name, "namespace": NAMESPACE}
        self.cluster.kubectl.apply(
            {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}
        )

    def status(self, resource: str, namespace: str, name: str, status: Json) -> None:
        """Writes an object's status, as who owns it does."""
        plural, _, group = resource.partition(".")
        version = "v1alpha1" if group == "aliquot.dev" else "v1"
        root = f"/apis/{group}/{version}" if group else "/api/v1"
        inside = f"/namespaces/{namespace}" if namespace else ""
        path = f"{root}{inside}/{plural}/{name}/status"
        self.cluster.kubectl.request("PATCH", path, {"status": status}, media_type=MERGE)


def named(one: Json, kind: str, name: str) -> bool:
    """Whether an object is this one."""
    return bool(one["kind"] == kind and one["metadata"]["name"] == name)


def _order(one: Json) -> int:
    return APPLIED.index(one["kind"])
