"""The whole of Aliquot on this machine: simulated cards, a pocket cluster, and the real services.

Every part is a process of its own, so that each can be killed and started again; what it is told stays the same.
"""

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import free_port
from aliquot.sandbox.gpus import SimCard, SimMachine
from aliquot.server.certs import write_pair
from aliquot.server.tls import CertificatePair

SOURCE_ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = Path(__file__).parent / "manifests"
"""Links to the checkout's `deploy` and `examples`, which a wheel holds as files."""
LOOPBACK = "127.0.0.1"
DIALECT = "hami"
FAST_RETRY = ("--first-retry", "0.3", "--retry-period", "1", "--restart-backoff", "0.5")
"""The kubelet's patience, shortened: a real one tries again after 15 s."""


@dataclass(frozen=True)
class Node:
    """A node's name, its simulated machine, and where its agent keeps things and serves metrics."""

    name: str
    machine: SimMachine
    directory: Path
    metrics_port: int

    @property
    def agent(self) -> str:
        """The name of the agent's process."""
        return f"plugin-{self.name}"

    @property
    def tenants(self) -> Path:
        """The agent's directories of pages: `<pod UID>/<container>/`."""
        return self.directory / "run" / "tenants"


class Stack:
    """A cluster with Aliquot installed; leaving the context ends all of it.

    Args:
        root: an empty directory with a short path (Unix sockets live below it).
        nodes: name → its cards.
        agent_flags, apiserver_flags: further flags of every node agent, and of the API server.
        port: gives each server its port.
    """

    def __init__(
        self,
        root: Path,
        nodes: Mapping[str, Sequence[SimCard]],
        agent_flags: Sequence[str] = (),
        apiserver_flags: Sequence[str] = (),
        port: Callable[[], int] = free_port,
    ) -> None:
        self.root = root
        self.cluster = PocketCluster(root / "c", port=port)
        self.nodes = {
            name: Node(name, SimMachine(root / name / "machine", cards), root / name, port())
            for name, cards in nodes.items()
        }
        self.webhook_port, self.extender_port = port(), port()
        self._agent_flags, self._apiserver_flags = tuple(agent_flags), tuple(apiserver_flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.down()

    @property
    def kubectl(self) -> Kubectl:
        """The client of the cluster."""
        return self.cluster.kubectl

    def start(self) -> None:
        """Start everything, in the order in which an administrator would."""
        self.start_cluster()
        self.start_services()
        for node in self.nodes.values():
            self.start_agent(node)

    def start_cluster(self) -> None:
        """Start the API server and, for each node, its machine and kubelet; install the CRDs."""
        self.cluster.start_apiserver(*self._apiserver_flags)
        self.kubectl.apply(*sorted((MANIFESTS / "crds").glob("*.yaml")))
        for node in self.nodes.values():
            node.machine.create()
            machine = {"SIMGPU_DIR": str(node.machine.root)}
            self.cluster.start_kubelet(node.name, *FAST_RETRY, dev_root=node.machine.dev_dir, env=machine)

    def start_services(self) -> None:
        """Start webhook and extender, and tell API server and scheduler of them."""
        pair = write_pair(self.root / "tls", [LOOPBACK])
        self.start_service("webhook", "aliquot.webhook", self.webhook_port, pair, "--quotas")
        self.start_extenders(pair)
        self.kubectl.apply(self._webhook_configuration(pair))
        self.cluster.start_scheduler([self._extender_entry(pair)])

    def start_extenders(self, pair: CertificatePair) -> None:
        """Start what the scheduler asks."""
        self.start_service("extender", "aliquot.scheduler_ext", self.extender_port, pair)

    def kubeconfig_of(self, service: str) -> Path:  # noqa: ARG002 - for who gives each a way of its own
        """How a service, by the name of its process, finds the API server."""
        return self.cluster.kubeconfig

    def start_agent(self, node: Node) -> None:
        """Start a node's agent and wait until it serves."""
        paths = self.cluster.node(node.name)
        flags = {
            "--node-name": node.name,
            "--kubeconfig": self.kubeconfig_of(node.agent),
            "--kubelet-dir": paths.root,
            "--state-dir": node.directory / "state",
            "--run-dir": node.directory / "run",
            "--cdi-dir": paths.cdi,
            "--driver-root": node.machine.lib_dir,
            "--dev-root": node.machine.dev_dir,
            "--proc-root": node.machine.root / "proc",
            "--sys-root": node.machine.sys_dir,
            "--metrics-port": node.metrics_port,
            "--metrics-host": LOOPBACK,
        }
        given = [str(word) for pair in flags.items() for word in pair]
        self.cluster.start(
            node.agent,
            [sys.executable, "-P", "-m", "aliquot.plugin", "--no-pod-cgroups", *given, *self._agent_flags],
            env=node.machine.env(),
            ready=partial(self._answers, f"http://{LOOPBACK}:{node.metrics_port}/readyz"),
        )

    def metrics(self, service: str) -> str:
        """What a service tells Prometheus: `webhook`, `extender`, or a node's name."""
        url = {
            "webhook": f"https://{LOOPBACK}:{self.webhook_port}/metrics",
            "extender": f"https://{LOOPBACK}:{self.extender_port}/metrics",
            **{name: f"http://{LOOPBACK}:{node.metrics_port}/metrics" for name, node in self.nodes.items()},
        }[service]
        return self._get(url).data.decode()

    def start_service(self, name: str, module: str, port: int, pair: CertificatePair, *flags: str) -> None:
        """Start a module that serves over TLS at a port of loopback."""
        argv = [sys.executable, "-P", "-m", module, "--port", str(port), "--dialects", DIALECT, *flags]
        argv += ["--kubeconfig", str(self.kubeconfig_of(name)), "--host", LOOPBACK]
        argv += ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
        self.cluster.start(name, argv, ready=partial(self._answers, f"https://{LOOPBACK}:{port}/readyz"))

    def _answers(self, url: str) -> bool:
        try:
            return self._get(url).status == HTTPStatus.OK
        except urllib3.exceptions.HTTPError:
            return False

    def _get(self, url: str) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(ca_certs=str(self.root / "tls" / "ca.crt"), retries=False) as pool:
            return pool.request("GET", url, timeout=5)

    def _webhook_configuration(self, pair: CertificatePair) -> dict[str, Any]:
        """The shipped configuration, pointed at this machine."""
        configuration: dict[str, Any] = yaml.safe_load(
            (MANIFESTS / "webhook" / "configuration.yaml").read_text("utf-8")
        )
        for entry in configuration["webhooks"]:
            entry["clientConfig"] = {
                "url": f"https://{LOOPBACK}:{self.webhook_port}/mutate",
                "caBundle": base64.b64encode(pair.ca.read_bytes()).decode(),
            }
        return configuration

    def _extender_entry(self, pair: CertificatePair) -> dict[str, Any]:
        """The shipped scheduler's extender, pointed at this machine."""
        configuration = yaml.safe_load((MANIFESTS / "scheduler" / "configuration.yaml").read_text())
        entry: dict[str, Any] = configuration["extenders"][0]
        entry["urlPrefix"] = f"https://{LOOPBACK}:{self.extender_port}"
        entry["enableHTTPS"] = True
        entry["tlsConfig"] = {"caData": base64.b64encode(pair.ca.read_bytes()).decode()}
        return entry
