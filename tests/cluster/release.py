"""The chart as a release on a real control plane: installed by Helm, its programs run here as pods would run them.

There is no node, so nothing starts the pods; flags, rights and certificates are the chart's.
"""

import base64
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import free_port, wait_for
from tests.cluster.control_plane import LOOPBACK, ControlPlane, healthy
from tests.cluster.helm import NAMESPACE, HelmRelease, Json
from tests.cluster.programs import program

MODULES: Final = {
    "aliquot": "aliquot.cli",
    "aliquot-webhook": "aliquot.webhook",
    "aliquot-scheduler-ext": "aliquot.scheduler_ext",
}
MOUNTED: Final = "/etc/aliquot/tls"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot"
PODS: Final = "/api/v1/namespaces/default/pods"


def probe(domain: str) -> Json:
    """A pod with a slice, by resources of this domain."""
    limits = {f"{domain}/gpu-mem": "1Gi"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [container]},
    }


class Release(HelmRelease):
    """Aliquot's release on a control plane; `domain` is that of the resources it was installed with."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.plane = plane
        self.domain = "aliquot.dev"

    def refusal(self, pod: Json) -> str:
        """Why the API server would not have a pod of the default namespace now; empty where it would."""
        try:
            self.kubectl.request("POST", PODS, pod, query={"dryRun": "All"})
        except ApiError as error:
            return str(error)
        return ""

    def secret(self, name: str) -> dict[str, bytes]:
        """What is in a Secret."""
        data = self.kubectl.get("secrets", name, NAMESPACE).get("data", {})
        return {key: base64.b64decode(value) for key, value in data.items()}

    def mounted(self, name: str) -> Path:
        """A directory with what is in a Secret, as the kubelet would make it."""
        directory = self.plane.root / name
        directory.mkdir(exist_ok=True)
        for key, value in self.secret(name).items():
            (directory / key).write_bytes(value)
        return directory

    def account(self, name: str) -> Path:
        """A kubeconfig of a service account of the chart's."""
        return self.plane.service_account(NAMESPACE, name)

    def container(self, workload: str, name: str) -> Json:
        """A container of a Deployment, as it is in the cluster."""
        pod = self.kubectl.get("deployments.apps", workload, NAMESPACE)["spec"]["template"]["spec"]
        every = (*pod.get("initContainers", ()), *pod["containers"])
        (found,) = [each for each in every if each["name"] == name]
        return found

    def command(self, workload: str, name: str, changes: dict[str, str]) -> list[str]:
        """A container's command line with the rights of its account, and paths and addresses of this machine."""
        container = self.container(workload, name)
        program_name, *first = unsupervised(container["command"])
        words = [*first, *container["args"]]
        for ours, here in changes.items():
            words = [word.replace(ours, here) for word in words]
        return [sys.executable, "-m", MODULES[program_name], *words, f"--kubeconfig={self.account(workload)}"]

    def keep_certificates(self) -> None:
        """Have the keeper look once, as its account."""
        command = [*self.command("aliquot-certs", "certs", {}), "--once"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start_webhook(self) -> int:
        """The port of a webhook that is ready."""
        port = free_port()
        tls = self.mounted("aliquot-webhook-tls")
        changes = {"--port=8443": f"--port={port}", MOUNTED: str(tls)}
        self._start(
            "webhook", [*self.command("aliquot-webhook", "webhook", changes), f"--host={LOOPBACK}"], port
        )
        return port

    def lead_webhook_to(self, port: int) -> None:
        """Have the webhook's Service lead to a port of this machine, and wait until pods go there.

        No pod stands behind the Service, and the API server goes on calling where it did until its watch tells it.
        """
        here = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
        self.kubectl.patch("services", "aliquot-webhook", {"spec": here}, NAMESPACE)
        count = len(self.kubectl.request("GET", WEBHOOKS)["webhooks"])
        changes = [
            {"op": "replace", "path": f"/webhooks/{number}/clientConfig/service/port", "value": port}
            for number in range(count)
        ]
        self.kubectl.request("PATCH", WEBHOOKS, changes, media_type="application/json-patch+json")
        answers = healthy(f"https://{LOOPBACK}:{port}/readyz")
        wait_for(f"the API server to call port {port}", lambda: self._calls(port, answers=answers))

    def _calls(self, port: int, *, answers: bool) -> bool:
        """Whether a pod with a slice is let in, or, where nobody answers there, refused in words that name the port."""
        refusal = self.refusal(probe(self.domain))
        return not refusal if answers else f":{port}/" in refusal

    def start_extender(self, name: str) -> int:
        """The port of a replica that is ready."""
        port = free_port()
        changes = {
            "--port=9443": f"--port={port}",
            "--host=0.0.0.0": f"--host={LOOPBACK}",
            "$(POD_IP):9443": f"{LOOPBACK}:{port}",
            "$(POD_NAME)": name,
            MOUNTED: str(self.mounted("aliquot-scheduler-tls")),
        }
        self._start(name, self.command("aliquot-scheduler", "extender", changes), port)
        return port

    def scheduler_configuration(self, key: str, changes: dict[str, str]) -> Json:
        """What the ConfigMap says under a key, with certificates and addresses of this machine."""
        text = self.kubectl.get("configmaps", "aliquot-scheduler", NAMESPACE)["data"][key]
        for ours, here in changes.items():
            assert ours in text
            text = text.replace(ours, here)
        configuration: Json = yaml.safe_load(text)
        return configuration

    def start_own_scheduler(self, extender: int) -> None:
        """kube-scheduler as the chart has it, and an extender at this port beside it."""
        changes = {
            f"{LOOPBACK}:9443": f"{LOOPBACK}:{extender}",
            MOUNTED: str(self.mounted("aliquot-scheduler-tls")),
        }
        configuration = self.scheduler_configuration("configuration.yaml", changes)
        configuration["clientConnection"] = {"kubeconfig": str(self.account("aliquot-scheduler"))}
        path = self.plane.root / "aliquot-scheduler.yaml"
        path.write_text(yaml.safe_dump(configuration))
        port = free_port()
        flags = [
            word.replace("--secure-port=10259", f"--secure-port={port}").replace(MOUNTED, changes[MOUNTED])
            for word in self.container("aliquot-scheduler", "kube-scheduler")["args"]
            if not word.startswith("--config=")
        ]
        command = [str(program("kube-scheduler")), f"--config={path}", f"--bind-address={LOOPBACK}", *flags]
        self.plane.start("aliquot-scheduler", command, partial(healthy, f"https://{LOOPBACK}:{port}/healthz"))

    def start_existing_scheduler(self, extender: int) -> None:
        """The cluster's kube-scheduler, with what the chart says that its configuration needs."""
        changes = {
            f"aliquot-scheduler.{NAMESPACE}.svc:9443": f"{LOOPBACK}:{extender}",
            "/etc/kubernetes/aliquot": str(self.mounted("aliquot-scheduler-tls")),
        }
        self.plane.start_scheduler(
            self.scheduler_configuration("snippet.yaml", changes), name="aliquot-scheduler"
        )

    def _start(self, name: str, command: list[str], port: int) -> None:
        self.plane.start(name, command, partial(healthy, f"https://{LOOPBACK}:{port}/readyz"))


def unsupervised(command: list[str]) -> list[str]:
    """What a container's command starts, where that is a supervisor."""
    return command[command.index("--") + 1 :] if "--" in command else command
