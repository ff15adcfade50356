"""A real Prometheus that scrapes as the chart's ServiceMonitors say, with the certificates that the keeper makes."""

import base64
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from aliquot.cli.demo.stack import LOOPBACK, MANIFESTS, Stack
from aliquot.sandbox.cluster.processes import free_port, wait_for
from aliquot.sandbox.gpus import SimCard
from tests.deploy.charts import NAMESPACE, containers, objects, one
from tests.observe.prometheus import PATIENCE_S, Prometheus, Target

pytestmark = pytest.mark.slow

FOUND = objects({"monitoring": {"serviceMonitors": {"enabled": True}}})
MOUNTED = "/etc/aliquot/tls"
NODE = "node-1"
MODULES = {"aliquot-webhook": "aliquot.webhook", "aliquot-scheduler": "aliquot.scheduler_ext"}


class Secured(Stack):
    """A cluster whose services serve and let in as the chart says. The kubelet's probes show no certificate."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, {NODE: [SimCard()]})
        (agent,) = self.nodes.values()
        self.ports = {
            "aliquot-agent": agent.metrics_port,
            "aliquot-certs": free_port(),
            "aliquot-scheduler": self.extender_port,
            "aliquot-webhook": self.webhook_port,
        }

    def start(self) -> None:
        """Start the keeper of certificates, and then all that waits for one."""
        self.start_cluster()
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.kubectl.apply(yaml.safe_load((MANIFESTS / "webhook" / "configuration.yaml").read_text()))
        here = ["--metrics-host", LOOPBACK, "--metrics-port", str(self.ports["aliquot-certs"])]
        self._run("aliquot-certs", "aliquot.cli", "certs", "keep", *words("aliquot-certs", "certs"), *here)
        for name, module in MODULES.items():
            where = ["--host", LOOPBACK, "--port", str(self.ports[name])]
            self._run(name, module, *where, *self.serving(name))
        (agent,) = self.nodes.values()
        self._agent_flags = tuple(self.serving("aliquot-agent"))
        self.start_agent(agent)

    def _run(self, name: str, module: str, *flags: str) -> None:
        argv = [sys.executable, "-P", "-m", module, *flags, "--kubeconfig", str(self.cluster.kubeconfig)]
        self.cluster.start(name, argv, ready_url=f"https://{LOOPBACK}:{self.ports[name]}/readyz")

    def serving(self, name: str) -> list[str]:
        """The chart's flags that say how a service serves and whom it lets in, with this machine's files."""
        container = "extender" if name == "aliquot-scheduler" else name.removeprefix("aliquot-")
        given = words(name, container)
        (start,) = [at for at, word in enumerate(given) if word.startswith("--tls-cert=")]
        chosen = given[start : given.index("--accept-tokens") + 1]
        return [word.replace(MOUNTED, str(self.mounted(f"{name}-tls"))) for word in chosen]

    def mounted(self, name: str) -> Path:
        """A directory with what a Secret holds."""
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        for key, value in self.kubectl.get("secrets", name, NAMESPACE)["data"].items():
            written = directory / f".{key}"
            written.write_bytes(base64.b64decode(value))
            written.replace(directory / key)  # at once, as a kubelet does: services read it meanwhile
        return directory

    def _answers(self, url: str) -> bool:  # noqa: ARG002 - the agent is all that is asked here
        """Whether the agent is ready: over TLS, which a stack's own agents do not speak."""
        try:
            return self.client("aliquot-agent").request("GET", "/readyz", retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def client(self, name: str, shown: str = "") -> urllib3.HTTPSConnectionPool:
        """Calls a service, and shows the certificate of a Secret, or none."""
        host, more = f"{name}.{NAMESPACE}.svc", {}
        if shown:
            cert, key = (str(self.mounted(shown) / f"tls.{kind}") for kind in ("crt", "key"))
            more = {"cert_file": cert, "key_file": key}
        ca = str(self.mounted(f"{name}-tls") / "ca.crt")
        return urllib3.HTTPSConnectionPool(
            LOOPBACK, self.ports[name], ca_certs=ca, server_hostname=host, assert_hostname=host, **more
        )

    def targets(self) -> list[Target]:
        """What the ServiceMonitors have Prometheus scrape of our own servers, with the Secrets' files."""
        return [
            Target(
                each["metadata"]["name"],
                f"{LOOPBACK}:{self.ports[each['metadata']['name']]}",
                {},
                self._file(endpoint["tlsConfig"]["ca"]["secret"]),
                self._scraped(endpoint),
            )
            for each in FOUND
            if each["kind"] == "ServiceMonitor"
            for endpoint in each["spec"]["endpoints"]
            if endpoint["port"] != "kube-scheduler"
        ]

    def _scraped(self, endpoint: dict[str, Any]) -> dict[str, Any]:
        """An endpoint's part of the configuration, as Prometheus Operator writes it."""
        assert not {"bearerTokenFile", "authorization"} & endpoint.keys()
        tls = endpoint["tlsConfig"]
        assert tls.keys() == {"ca", "cert", "keySecret", "serverName"}
        return {
            "tls_config": {
                "server_name": tls["serverName"],
                "cert_file": str(self._file(tls["cert"]["secret"])),
                "key_file": str(self._file(tls["keySecret"])),
            }
        }

    def _file(self, reference: dict[str, str]) -> Path:
        return self.mounted(reference["name"]) / reference["key"]


def words(workload: str, container: str) -> list[str]:
    """The arguments of a container of the chart's."""
    kind = "DaemonSet" if workload == "aliquot-agent" else "Deployment"
    own = one(FOUND, kind, workload)
    (found,) = [each["args"] for _, each in containers([own]) if each["name"] == container]
    return list(found)


@pytest.fixture(scope="module")
def stack() -> Iterator[Secured]:
    """All services, each ready by a question that shows no certificate. Its path is short: sockets live below it."""
    with tempfile.TemporaryDirectory(prefix="aq-") as root, Secured(Path(root)) as made:
        made.start()
        yield made


def test_prometheus_scrapes_every_service_by_certificate(stack: Secured, tmp_path: Path):
    """Without any token."""
    scraped = stack.targets()
    assert {target.job for target in scraped} == stack.ports.keys()
    with Prometheus(tmp_path / "p", scraped) as prometheus:
        wait_for("all to be tried", lambda: len(prometheus.query("up")) == len(scraped), PATIENCE_S)
        wait_for("all to be scraped", lambda: not prometheus.unscraped(), PATIENCE_S)
        ends = prometheus.wait_for("aliquot_certificate_expires_timestamp_seconds")
        assert {labels["job"] for labels, _ in ends} >= stack.ports.keys() - {"aliquot-certs"}


@pytest.mark.parametrize("name", ["aliquot-agent", "aliquot-certs", "aliquot-scheduler", "aliquot-webhook"])
def test_metrics_are_for_prometheus_certificate_alone(stack: Secured, name: str):
    """Those who show none are answered as before: health is for everybody. A node's own certificate opens nothing."""
    answers = {
        shown: stack.client(name, shown).request("GET", "/metrics").status
        for shown in ("", "aliquot-agent-tls", "aliquot-prometheus-tls")
    }
    assert answers == {"": 401, "aliquot-agent-tls": 403, "aliquot-prometheus-tls": 200}
    for path in ("/healthz", "/readyz"):
        assert stack.client(name).request("GET", path).status == 200


def test_prometheus_certificate_opens_nothing_else(stack: Secured):
    """It neither schedules nor asks why."""
    extender = stack.client("aliquot-scheduler", "aliquot-prometheus-tls")
    for method, path in (("POST", "/filter"), ("POST", "/bind"), ("GET", "/why"), ("GET", "/defragment")):
        assert extender.request(method, path, body=b"{}").status == 403


def test_the_api_server_calls_the_webhook_without_a_certificate(stack: Secured):
    """As it does in most clusters: what is no AdmissionReview is called so, and nobody is asked who calls."""
    assert stack.client("aliquot-webhook").request("POST", "/mutate", body=b"{}").status == 400
