"""Another domain for the resources: the chart's value reaches every service, and pods get slices by the new names."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.cli.demo.stack import LOOPBACK, Node, Stack
from aliquot.libshim.control_page import read_control
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from aliquot.server.certs import CertificatePair
from tests.deploy import charts
from tests.integration.journey.auditor import placement_of
from tests.integration.journey.pods import WAIT, container, plain, pod

pytestmark = pytest.mark.slow

DOMAIN = "gpu.example.com"
Json = dict[str, Any]


class Renamed(Stack):
    """A stack told of the resources' domain as the chart's services are; `domain` may be changed between starts."""

    domain = DOMAIN

    def rendered(self, kind: str, name: str) -> Json:
        """An object of the chart."""
        return charts.one(charts.objects({"resourceDomain": self.domain, "dialects": ["hami"]}), kind, name)

    def flags(self, kind: str, name: str) -> list[str]:
        """What the chart tells a service of the domain."""
        found = [each["args"] for _, each in charts.containers([self.rendered(kind, name)]) if "args" in each]
        return [word for words in found for word in words if word.startswith("--resource-domain=")]

    def start_service(self, name: str, module: str, port: int, pair: CertificatePair, *flags: str) -> None:
        """Start a module with the chart's flags."""
        workload = {"webhook": "aliquot-webhook", "extender": "aliquot-scheduler"}[name]
        super().start_service(name, module, port, pair, *self.flags("Deployment", workload), *flags)

    def start_agent(self, node: Node) -> None:
        """Start a node's agent with the chart's flags."""
        self._agent_flags = tuple(self.flags("DaemonSet", "aliquot-agent"))
        super().start_agent(node)

    def choose(self, domain: str) -> None:
        """Install the chart anew with another domain: its services are replaced."""
        self.domain = domain
        for name in ("webhook", "extender", "scheduler", *(node.agent for node in self.nodes.values())):
            self.cluster.kill(name)
        self.start_services()
        for node in self.nodes.values():
            self.start_agent(node)

    def _webhook_configuration(self, pair: CertificatePair) -> Json:
        usual = super()._webhook_configuration(pair)
        calls = {entry["name"]: entry["clientConfig"] for entry in usual["webhooks"]}
        configuration = self.rendered("MutatingWebhookConfiguration", "aliquot")
        for entry in configuration["webhooks"]:
            entry["clientConfig"] = calls[entry["name"]]
        return configuration

    def _extender_entry(self, pair: CertificatePair) -> Json:
        usual = super()._extender_entry(pair)
        data = self.rendered("ConfigMap", "aliquot-scheduler")["data"]
        (entry,) = yaml.safe_load(next(iter(data.values())))["extenders"]
        assert LOOPBACK in entry["urlPrefix"]
        return {**entry, "urlPrefix": usual["urlPrefix"], "tlsConfig": usual["tlsConfig"]}


@pytest.fixture
def renamed() -> Iterator[Renamed]:
    """A node of one card; nothing is started yet. Its path is short: sockets live below it."""
    root = Path(tempfile.mkdtemp(prefix="aq-"))
    try:
        with Renamed(root, {"node-1": (SimCard(),)}) as stack:
            yield stack
    finally:
        shutil.rmtree(root, ignore_errors=True)


def asking(name: str, mem: str, domain: str = DOMAIN, command: Sequence[str] = WAIT) -> Json:
    """A pod with a slice of so much memory and a tenth of the card's time."""
    return pod(name, container("main", {f"{domain}/gpu-mem": mem, f"{domain}/gpu-core": "10"}, command))


def limit_of(stack: Stack, stored: Json) -> tuple[int, int]:
    """Memory and share in the control page of a pod's container."""
    (node,) = stack.nodes.values()
    (card,) = read_control(node.tenants / stored["metadata"]["uid"] / "main" / "control").cards
    return card.memory_bytes >> 20, card.core_percent


def offered(stack: Stack, resource: str) -> str:
    """How much of a resource the node has."""
    allocatable: dict[str, str] = stack.kubectl.get("nodes", "node-1", "")["status"]["allocatable"]
    return allocatable.get(resource, "0")


def test_a_pod_gets_its_slice_by_the_names_that_the_admin_has_chosen(renamed: Renamed) -> None:
    """Admitted, placed, bound and let in by the agent; names of the default domain are refused with the right ones."""
    renamed.start()
    wait_for("slices", lambda: offered(renamed, f"{DOMAIN}/gpu") == "10")
    assert offered(renamed, "aliquot.dev/gpu") == "0"
    renamed.kubectl.apply(asking("first", "3Gi"))
    stored = renamed.kubectl.wait_phase("first", "Running", "Failed")
    assert stored["spec"]["schedulerName"] == "aliquot-scheduler"
    assert stored["spec"]["containers"][0]["resources"]["requests"][f"{DOMAIN}/gpu"] == "1"
    (card,) = placement_of(stored)["containers"][0]["cards"]
    assert (card["memoryMiB"], card["cores"]) == (3072, 10)
    assert limit_of(renamed, stored) == (3072, 10)
    with pytest.raises(ApiError, match=f"aliquot.dev/gpu-mem: here this resource is called {DOMAIN}/gpu-mem"):
        renamed.kubectl.apply(plain("old", mem="1Gi"))
    renamed.kubectl.apply(asking("second", "14Gi"))
    wait_for("a reason", lambda: "memory" in " ".join(renamed.kubectl.events("second")))
    renamed.kubectl.delete("pods", "first", grace=0)
    renamed.kubectl.wait_phase("second", "Running")


@pytest.mark.slow
def test_pods_of_the_names_before_run_on(renamed: Renamed) -> None:
    """The domain changes while a pod runs: it keeps its slice, its container restarts, its memory stays counted."""
    renamed.domain = "aliquot.dev"
    renamed.start()
    go, gone = renamed.root / "go", renamed.root / "gone"
    once = f"until test -e {go}; do sleep 0.1; done; test -e {gone} && exec sleep 1000; touch {gone}; exit 1"
    renamed.kubectl.apply(asking("before", "12Gi", "aliquot.dev", command=["sh", "-c", once]))
    before = renamed.kubectl.wait_phase("before", "Running")
    renamed.choose(DOMAIN)
    wait_for("slices", lambda: offered(renamed, f"{DOMAIN}/gpu") == "10")
    go.touch()
    restarted = renamed.kubectl.wait_for("pods", "before", _has_restarted, deadline=60)
    assert placement_of(restarted) == placement_of(before)
    assert limit_of(renamed, restarted) == (12288, 10)
    renamed.kubectl.apply(asking("large", "6Gi"), asking("small", "3Gi"))
    small = renamed.kubectl.wait_phase("small", "Running")
    assert limit_of(renamed, small) == (3072, 10)
    assert not renamed.kubectl.get("pods", "large")["spec"].get("nodeName")
    renamed.kubectl.delete("pods", "before", grace=0)
    renamed.kubectl.wait_phase("large", "Running")


def _has_restarted(stored: Json) -> bool:
    (status,) = stored["status"].get("containerStatuses") or [{}]
    return bool(status.get("restartCount")) and "running" in status.get("state", {})
