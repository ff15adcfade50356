"""`helm install` on a real control plane: accepted, with the rights that are needed, upgraded, and taken away whole."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import free_port, wait_for
from aliquot.sandbox.gpus import SimCard
from tests.cluster.control_plane import LOOPBACK, ControlPlane, healthy
from tests.cluster.helm import CHART, REGISTRY, helm
from tests.cluster.programs import program_or_skip
from tests.cluster.release import NAMESPACE, Release, probe
from tests.cluster.scrapes import scrape
from tests.integration.plugin.conftest import short_directory
from tests.integration.plugin.world import World

pytestmark = pytest.mark.cluster

SECRETS = ("aliquot-ca", "aliquot-agent-tls", "aliquot-scheduler-tls", "aliquot-webhook-tls")
CARD = {"uuid": "GPU-1", "index": 0, "model": "NVIDIA H200", "memoryMiB": 16384, "healthy": True}
MERGE = "application/merge-patch+json"
WEBHOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.fixture
def release() -> Iterator[Release]:
    """A control plane of its own, for the chart's webhook and policies are the whole cluster's."""
    for name in ("etcd", "kube-apiserver", "helm", "kube-scheduler"):
        program_or_skip(name)
    with ControlPlane() as plane:
        plane.namespace("kube-system")
        yield Release(plane)


def bundles(release: Release) -> list[str]:
    """The CA that the API server knows each of our webhooks by."""
    configuration = release.kubectl.get(WEBHOOKS, "aliquot", "")
    return [each["clientConfig"].get("caBundle", "") for each in configuration["webhooks"]]


def test_it_is_installed_upgraded_rolled_back_and_taken_away(release: Release):
    """What the keeper has put into Secrets and webhooks stays, whatever Helm does; at the end nothing does."""
    notes = release.install()
    assert "rollout status deployment/aliquot-scheduler" in notes
    assert all(release.find(each) for each in release.objects())
    assert not any(release.secret(name) for name in SECRETS)
    release.keep_certificates()
    kept = {name: release.secret(name) for name in SECRETS}
    assert all({"tls.crt", "tls.key", "ca.crt"} <= data.keys() for data in kept.values())
    assert all(bundles(release))
    release.upgrade("--set", "dialects={hami}", "--set", "agent.slicesPerCard=20")
    assert {name: release.secret(name) for name in SECRETS} == kept
    release.keep_certificates()
    assert len(bundles(release)) == 3
    assert len(set(bundles(release))) == 1
    release.helm("rollback", "aliquot")
    assert {name: release.secret(name) for name in SECRETS} == kept
    assert len(bundles(release)) == 2
    assert all(bundles(release))
    ours = release.objects()
    release.helm("uninstall", "aliquot")
    assert {each["kind"] for each in ours if release.find(each)} == {"CustomResourceDefinition"}
    assert not release.kubectl.list("secrets", NAMESPACE)


def test_definitions_that_were_kept_are_taken_over_by_a_release_elsewhere(release: Release):
    """They stay when the release goes, and Helm has written on them whose they were."""
    release.install()
    release.helm("uninstall", "aliquot")
    scopes = ["--create-namespace", "--kubeconfig", str(release.plane.kubeconfig)]
    command = ["install", "aliquot", str(CHART), "--namespace", "gpu", *scopes]
    command += ["--set", f"image.registry={REGISTRY}"]
    with pytest.raises(AssertionError, match=r"invalid ownership metadata"):
        helm(*command)
    assert "Aliquot" in helm(*command, "--take-ownership")


def test_the_keeper_makes_its_own_secrets_anew_and_no_others(release: Release):
    """One that was deleted comes back, as Helm's own; not what an account's token would fill, or has another name."""
    release.install()
    release.keep_certificates()
    for name in SECRETS:
        release.kubectl.delete("secrets", name, NAMESPACE)
    release.keep_certificates()
    made = {name: release.secret(name) for name in SECRETS}
    assert all(made.values())
    release.upgrade("--set", "agent.slicesPerCard=7")
    release.helm("rollback", "aliquot")
    assert {name: release.secret(name) for name in SECRETS} == made
    release.kubectl.delete("secrets", "aliquot-ca", NAMESPACE)
    keeper = Kubectl(release.account("aliquot-certs"))
    account = {"kubernetes.io/service-account.name": "aliquot-scheduler"}
    for name, kind in (("aliquot-ca", "kubernetes.io/service-account-token"), ("mine", "Opaque")):
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": account}
        with pytest.raises(ApiError, match="the keeper of certificates, which makes its own alone"):
            keeper.create({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata})


BUNDLE_ALONE = "writes caBundle in a webhook configuration, and nothing else"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "1"}
REACHES = {
    "other requests": [{"op": "replace", "path": "/webhooks/0/rules", "value": [EVERYTHING]}],
    "all pods": [{"op": "remove", "path": "/webhooks/0/matchConditions"}],
    "another service": [{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "mine"}],
    "another address": [
        {"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://mine.example"}}
    ],
    "nothing": [{"op": "replace", "path": "/webhooks", "value": []}],
    "failing open": [{"op": "replace", "path": "/webhooks/1/failurePolicy", "value": "Ignore"}],
    "fewer namespaces": [
        {"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}
    ],
    "annotations": [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}],
    "another order": [{"op": "move", "from": "/webhooks/0", "path": "/webhooks/1"}],
    "an owner": [{"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]}],
}


def test_the_keeper_writes_the_ca_in_the_webhook_configuration_and_nothing_else(release: Release):
    """Who has taken it is shown no more pods than before, and keeps none from being looked at."""
    release.install()
    release.keep_certificates()
    assert all(bundles(release))
    keeper = Kubectl(release.account("aliquot-certs"))
    path = f"/apis/admissionregistration.k8s.io/v1/{WEBHOOKS.partition('.')[0]}/aliquot"
    before = release.kubectl.get(WEBHOOKS, "aliquot", "")
    first = next(iter(REACHES.values()))
    wait_for("the policy to hold", lambda: BUNDLE_ALONE in answer(keeper, path, first, dryRun="All"))
    for what, patch in REACHES.items():
        assert BUNDLE_ALONE in answer(keeper, path, patch), what
    assert release.kubectl.get(WEBHOOKS, "aliquot", "") == before


def answer(client: Kubectl, path: str, patch: list[dict[str, Any]], **query: str) -> str:
    """What the API server says to a patch."""
    try:
        return str(client.request("PATCH", path, patch, query, "application/json-patch+json"))
    except ApiError as error:
        return str(error)


@pytest.mark.parametrize("mode", ["own", "existing"])
def test_its_programs_have_the_rights_that_they_need(release: Release, mode: str):
    """From certificates to a bound pod: each as its own account, flags and files as the chart has them.

    kube-scheduler asks the replica beside it, which does not lead and passes the call on: all with the one certificate,
    and its name.
    """
    release.install("--set", f"scheduler.mode={mode}")
    release.keep_certificates()
    release.start_webhook()
    release.start_extender("leader")
    follower = release.start_extender("follower")
    if mode == "own":
        release.start_own_scheduler(follower)
    else:
        release.start_existing_scheduler(follower)
    # No node runs the webhook's pods: the API server would wait for it in vain.
    release.kubectl.delete(WEBHOOKS, "aliquot", "")
    wait_for("the API server to forget the webhook", lambda: not release.refusal(pod("p")))
    add_node(release, "n1")
    release.kubectl.create(pod("p"))
    bound = release.kubectl.wait_for("pods", "p", lambda found: found["spec"].get("nodeName"), 120)
    assert bound["spec"]["nodeName"] == "n1"
    assert CARD["uuid"] in bound["metadata"]["annotations"][PLACEMENT_ANNOTATION]
    for name in ("webhook", "leader", "follower", "aliquot-scheduler"):
        log = release.plane.processes[name].log.read_text()
        assert "forbidden" not in log.lower(), log


def test_pods_ask_by_the_names_that_the_admin_has_chosen(release: Release):
    """Shown to the webhook, guarded by the policies and bound with a card; names of the default domain are refused."""
    release.domain = "gpu.example.com"
    release.install("--set", f"resourceDomain={release.domain}")
    release.keep_certificates()
    release.start_own_scheduler(release.start_extender("leader"))
    release.lead_webhook_to(release.start_webhook())
    add_node(release, "n1", f"{release.domain}/gpu")
    old = release.refusal(probe("aliquot.dev"))
    assert f"aliquot.dev/gpu-mem: here this resource is called {release.domain}/gpu-mem" in old
    privileged = probe(release.domain)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "container main is privileged" in release.refusal(privileged)
    release.kubectl.create(probe(release.domain))
    bound = release.kubectl.wait_for("pods", "probe", lambda found: found["spec"].get("nodeName"), 120)
    assert bound["spec"]["schedulerName"] == "aliquot-scheduler"
    assert bound["spec"]["containers"][0]["resources"]["requests"][f"{release.domain}/gpu"] == "1"
    assert CARD["uuid"] in bound["metadata"]["annotations"][PLACEMENT_ANNOTATION]


def test_the_agent_has_the_rights_that_it_needs(release: Release, tmp_path: Path):
    """Its account publishes its node's cards and checks who scrapes it: whoever the values name, and nobody else."""
    release.install("--set", "monitoring.readers[0].namespace=default,monitoring.readers[0].name=default")
    release.keep_certificates()
    node = tmp_path.name.replace("_", "-")
    release.kubectl.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    agent = Node(release, node)
    tls, port = release.mounted("aliquot-agent-tls"), free_port()
    serving = ["--tls-cert", str(tls / "tls.crt"), "--tls-key", str(tls / "tls.key"), "--accept-tokens"]
    root = short_directory()
    world = World(root, node, agent, [SimCard()])
    world.flags += [*serving, "--metrics-port", str(port), "--metrics-host", LOOPBACK]
    world.kubelet.start()
    try:
        world.start_plugin()
        wait_for("the agent to be ready", lambda: healthy(f"https://{LOOPBACK}:{port}/readyz"), 60)
        status = release.kubectl.get("gpunodes.aliquot.dev", node, "")["status"]
        assert [card["uuid"] for card in status["cards"]] == world.uuids
        reader = release.plane.service_account("default", "default")
        for kubeconfig, answer in ((reader, 200), (release.account("aliquot-asker"), 403), (None, 401)):
            assert scrape(LOOPBACK, port, tls / "ca.crt", kubeconfig).status == answer
        assert "forbidden" not in world.log.lower(), world.log
    finally:
        world.close()
        shutil.rmtree(root)


@dataclass
class Node:
    """How a World reaches the API server: the agent as its account, with a token that names its node."""

    release: Release
    name: str
    process: None = None
    """It is not the World's to end."""

    @property
    def kubeconfig(self) -> Path:
        """The agent's."""
        return self.release.plane.service_account(NAMESPACE, "aliquot-agent", node=self.name)


def test_pod_security_lets_in_what_the_chart_says(release: Release):
    """Level restricted takes every pod but the agent's; the agent needs level privileged, for its host paths."""
    release.install()
    for level in ("privileged", "restricted"):
        release.plane.namespace(level, {"pod-security.kubernetes.io/enforce": level})
    for each in release.objects():
        if each["kind"] in {"Deployment", "DaemonSet"}:
            if each["kind"] == "Deployment":
                try_pod(release, each, "restricted")
            else:
                with pytest.raises(ApiError, match=r"violates PodSecurity.*hostPath"):
                    try_pod(release, each, "restricted")
            try_pod(release, each, "privileged")


def try_pod(release: Release, workload: dict[str, Any], namespace: str) -> None:
    """Make a pod of a workload, as a trial. Raises ApiError where it is refused."""
    template = workload["spec"]["template"]
    name = workload["metadata"]["name"]
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    release.kubectl.apply(account)
    release.plane.await_priorities("system-node-critical", "system-cluster-critical")
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": name, "namespace": namespace},
        "spec": template["spec"],
    }
    release.kubectl.request("POST", f"/api/v1/namespaces/{namespace}/pods", body, {"dryRun": "All"})


def add_node(release: Release, name: str, slices: str = "aliquot.dev/gpu") -> None:
    """A node as its kubelet and agent would tell of it; `slices` is the resource by which it counts them."""
    kubectl = release.kubectl
    kubectl.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    kubectl.patch("nodes", name, {"spec": {"taints": None}}, "")
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110", slices: "10"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}]
    status = {"capacity": capacity, "allocatable": capacity, "conditions": conditions}
    kubectl.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, media_type=MERGE)
    kubectl.create({"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}})
    path = f"/apis/aliquot.dev/v1alpha1/gpunodes/{name}/status"
    kubectl.request("PATCH", path, {"status": {"slicesPerCard": 10, "cards": [CARD]}}, media_type=MERGE)


def pod(name: str) -> dict[str, Any]:
    """A pod with a slice, as the webhook leaves one that has the interceptor by file."""
    limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi", "aliquot.dev/gpu-core": "30"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"aliquot.dev/inject": "file"},
        },
        "spec": {"schedulerName": "aliquot-scheduler", "containers": [container]},
    }
