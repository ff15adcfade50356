"""Aliquot on a real cluster of one node, from its Helm chart: a release of Helm's, every service a pod.

What stands for hardware is told in values that an admin has, too: where the driver is, and what NVIDIA's container
runtime would bring into the agent's container.
"""

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.cluster import images
from tests.cluster.control_plane import SERVICE_NETWORK, START_S, ControlPlane
from tests.cluster.helm import REGISTRY
from tests.cluster.node import NAME, Node, check_rights
from tests.cluster.programs import program
from tests.cluster.release import NAMESPACE, Release, probe
from tests.cluster.runtime import SIMULATED
from tests.cluster.services import remove_addresses

ROOT = Path(__file__).parents[2]
MACHINE = SIMULATED / "machine"
VALUES: Mapping[str, Any] = {
    "image": {"registry": REGISTRY},
    "dialects": ["hami"],
    "webhook": {"replicas": 1},
    "scheduler": {"replicas": 1},
    "agent": {
        "driverRoot": str(MACHINE / "driver"),
        "extraArgs": [
            f"--dev-root={MACHINE}/dev",
            f"--sys-root={MACHINE}/sys",
            f"--proc-root={MACHINE}/proc",
        ],
        "extraEnv": [
            {"name": "LD_LIBRARY_PATH", "value": "/host/driver"},
            {"name": "SIMGPU_DEV", "value": f"{MACHINE}/dev"},
        ],
    },
}
WORKLOADS = (
    ("deployments.apps", "aliquot-certs"),
    ("deployments.apps", "aliquot-webhook"),
    ("deployments.apps", "aliquot-scheduler"),
    ("daemonsets.apps", "aliquot-agent"),
)
CLUSTER_WIDE = (
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
)
"""What of the chart is in no namespace."""
NAMESPACED = (
    *("deployments", "daemonsets", "pods", "services", "secrets", "configmaps", "serviceaccounts"),
    *("roles", "rolebindings", "networkpolicies", "poddisruptionbudgets"),
)
OURS = ("--selector", "app.kubernetes.io/part-of=aliquot")
READY_S = 240.0
SLICE = "aliquot.dev/gpu"
RUN = "/run/aliquot/host"
SLICES_PER_CARD = 10
"""Both as the chart has them by default."""


class Installation:
    """A control plane with all its parts, a node with simulated cards, and Aliquot; leaving the context ends it all."""

    def __init__(self, cards: Sequence[SimCard]) -> None:
        check_rights()
        self._images = [
            images.pause_image(),
            images.tenant_image(),
            images.service_image(),
            images.scheduler_image(),
        ]
        self.plane = ControlPlane()
        self.release = Release(self.plane)
        self.node = Node(self.plane, cards)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.plane)
            self.plane.start_controllers()
            self.plane.start_scheduler()
            stack.enter_context(self.node)
            stack.callback(remove_addresses, SERVICE_NETWORK)
            self._start_services()
            self.node.runtime.load(self._images)
            self.ensure()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def kubectl(self) -> Kubectl:
        """The admin's client."""
        return self.plane.kubectl

    @property
    def slices(self) -> int:
        """How many the node offers."""
        return SLICES_PER_CARD * len(self.node.machine.cards)

    def install(self) -> None:
        """As an admin would: a namespace, and `helm install`."""
        self.plane.namespace(NAMESPACE)
        values = self.plane.root / "values.yaml"
        values.write_text(yaml.safe_dump(dict(VALUES)))
        self.release.install("--values", str(values))
        self.await_services()

    def await_services(self, patience: float = READY_S) -> None:
        """Return once all services are ready, and the API server has slices to give and a webhook to ask.

        It hears of the slices from the kubelet, and calls the webhook when the Service leads to the pod.
        """
        try:
            for resource, name in WORKLOADS:
                self.kubectl.wait_for(resource, name, _is_whole, patience, NAMESPACE)
            self.kubectl.wait_for(
                "nodes", NAME, lambda n: self._slices_of(n) == str(self.slices), START_S, namespace=""
            )
            wait_for(
                "the webhook to be called",
                lambda: not self.release.refusal(probe(self.release.domain)),
                START_S,
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.report()}") from error

    def restart_kubelet(self) -> None:
        """SIGKILL the kubelet and start it again; return once an agent has told it of the cards' slices.

        A pod that it looks at before that is given up for good.
        """
        self.node.restart_kubelet()
        self._await_slices()

    def kill_agent(self) -> None:
        """SIGKILL the agent; the kubelet starts it again."""
        self._killed = self.pid_of("aliquot-plugin")
        assert self._killed, "no agent runs"
        self.node.box.run("kill", "-KILL", str(self._killed))

    def await_agent(self) -> None:
        """Return once an agent other than the killed one works."""
        wait_for("another agent", lambda: self.pid_of("aliquot-plugin") not in (0, self._killed), START_S)
        self._await_slices()
        self.await_services()

    def _await_slices(self) -> None:
        """Return once an agent serves the kubelet; what the API server says may be of the agent before."""
        resource = f"{self.release.domain}/gpu"
        wait_for("the kubelet to have slices", lambda: self.node.offered(resource) == self.slices, START_S)

    def _slices_of(self, node: Mapping[str, Any]) -> str:
        return str(node["status"]["allocatable"].get(f"{self.release.domain}/gpu", ""))

    def pid_of(self, script: str) -> int:
        """The process of a service, by its id on the node; 0 where there is none."""
        found = [
            pid for pid, line in self.node.box.processes().items() if f"/usr/local/bin/{script} " in line
        ]
        return found[0] if found else 0

    def report(self) -> str:
        """What the services' pods and the kubelet have to say, for who looks for a fault."""
        lines = list[str]()
        for pod in self.kubectl.list("pods", NAMESPACE):
            name = pod["metadata"]["name"]
            lines += [f"== {name}: {pod['status'].get('phase')}", *self.kubectl.events(name, NAMESPACE)]
            for container in pod["spec"]["containers"]:
                with contextlib.suppress(ApiError):
                    log = self.kubectl.logs(name, container["name"], NAMESPACE)
                    lines += [f"-- {container['name']}", *log.splitlines()[-15:]]
        return "\n".join(lines)

    def ensure(self) -> None:
        """Install where there is nothing, as at the start, or where a test has taken everything away."""
        if self.kubectl.find("namespaces", NAMESPACE, ""):
            self.await_services()
        else:
            self._label_node()
            self.install()

    def _label_node(self) -> None:
        """Say which node has cards: nothing here finds out by itself."""
        self.kubectl.patch(
            "nodes", NAME, {"metadata": {"labels": {"aliquot.dev/gpu-node": "true"}}}, namespace=""
        )

    def clear(self) -> None:
        """Take away all of Aliquot that is there, and the default namespace's pods: the cluster is as before."""
        self.run_kubectl("delete", "pods", "--all", "--namespace", "default", "--grace-period", "1")
        self.run_kubectl("delete", ",".join(CLUSTER_WIDE), *OURS)
        self.run_kubectl("delete", "rolebindings", "--all-namespaces", *OURS)
        self.run_kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
        self.run_kubectl("delete", "pods", "--all", "--namespace", NAMESPACE, "--grace-period", "1")
        self.run_kubectl("wait", "namespace", NAMESPACE, "--for=delete", f"--timeout={READY_S}s")
        self.run_kubectl("label", "node", NAME, "aliquot.dev/gpu-node-")
        self.node.box.run("sh", "-c", "rm -rf /var/lib/aliquot/* /run/aliquot/*")

    def ours(self) -> str:
        """All objects of the chart that are there, in whatever namespace, a line each."""
        kinds = ",".join((*CLUSTER_WIDE, *NAMESPACED))
        return self.run_kubectl("get", kinds, "--all-namespaces", "--output", "name", *OURS)

    def run_kubectl(self, *arguments: str) -> str:
        """What the real kubectl prints. Raises CalledProcessError."""
        argv = [str(program("kubectl")), "--kubeconfig", str(self.plane.kubeconfig), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def _start_services(self) -> None:
        """Have the addresses of Services lead to their pods."""
        remove_addresses(SERVICE_NETWORK)
        argv = [sys.executable, "-m", "tests.cluster.services", "--kubeconfig", str(self.plane.kubeconfig)]
        argv += ["--api", self.plane.server.removeprefix("https://")]
        self.plane.start("services", ["/usr/bin/env", f"PYTHONPATH={ROOT}", *argv])
        wait_for("the API server's own address", _has_api_address, START_S)


def _is_whole(workload: Mapping[str, Any]) -> bool:
    """Whether all pods that a Deployment or DaemonSet wants are ready, and of what it says now, and no others are."""
    status = workload["status"]
    wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas", 0))
    seen = status.get("observedGeneration") == workload["metadata"]["generation"]
    current = status.get("updatedNumberScheduled", status.get("updatedReplicas", 0))
    ready = status.get("numberReady", status.get("readyReplicas", 0))
    return bool(seen and wanted and wanted == current == ready == status.get("replicas", wanted))


def _has_api_address() -> bool:
    shown = subprocess.run(["ip", "address", "show", "dev", "lo"], capture_output=True, text=True, check=True)
    return "10.96.0.1/" in shown.stdout
