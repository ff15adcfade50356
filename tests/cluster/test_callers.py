"""Who may call, on real components: tokens of kube-apiserver, kube-scheduler's certificate, kept certificates."""

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.integration.extenders import Extender, add_node, create
from tests.integration.identities import Document, Identities, grant, make_account, token_of
from tests.integration.test_callers import METRICS, SCHEDULER, Guarded, bearer

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NAMESPACE = "aliquot-certificates"
CONFIGURATIONS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.fixture(scope="module", name="plane")
def with_resources(control_plane: ControlPlane) -> PocketCluster:
    """The control plane with our resources; what tests ask of a cluster, both have."""
    control_plane.define(*(ROOT / "deploy/crds").glob("*.yaml"))
    return cast("PocketCluster", control_plane)


@pytest.fixture(name="identities")
def make_identities(tmp_path: Path) -> Identities:
    """A CA."""
    return Identities.make(tmp_path / "pki")


@pytest.fixture(name="node")
def make_node(plane: PocketCluster) -> Iterator[str]:
    """A node with a card that is a mere object."""
    add_node(plane, "with-a-card", ["card-a"])
    taints = {"spec": {"taints": None}}
    plane.kubectl.request(
        "PATCH", "/api/v1/nodes/with-a-card", taints, media_type="application/merge-patch+json"
    )
    yield "with-a-card"
    for resource in ("nodes", "gpunodes.aliquot.dev"):
        plane.kubectl.delete(resource, "with-a-card", "")


def test_metrics_are_for_accounts_that_rbac_lets_in(
    control_plane: ControlPlane, plane: PocketCluster, identities: Identities
):
    """By its own token, and by one for us alone; another audience's, or another account's, opens nothing."""
    prometheus, other = make_account(plane, "prometheus"), make_account(plane, "other")
    grant(plane, prometheus, "aliquot-metrics", METRICS)
    url = {"path": "/metrics", "verb": "get"}
    wait_for(
        "the role to hold",
        lambda: control_plane.may("system:serviceaccount:default:prometheus", nonResourceAttributes=url),
    )
    extender = Guarded(plane, identities)
    extender.start()
    try:
        for headers, status in (
            (bearer(token_of(plane, prometheus)), 200),
            (bearer(token_of(plane, prometheus, "aliquot")), 200),
            (bearer(token_of(plane, prometheus, "somebody else")), 401),
            (bearer(token_of(plane, other)), 403),
            (bearer("nonsense"), 401),
            ({}, 401),
        ):
            assert extender.as_("", "GET", "/metrics", **headers).status == status
    finally:
        extender.process.stop()


def test_kube_scheduler_reads_its_certificate_anew(plane: PocketCluster, identities: Identities, node: str):
    """Another name in the same files opens for it when it connects again; it is not restarted."""
    program_or_skip("kube-scheduler")
    cert, key = (identities.directory / name for name in ("mine.crt", "mine.key"))

    def show(name: str) -> None:
        for issued, file in zip(identities.issue(name), (cert, key), strict=True):
            issued.replace(file)

    show("first")
    extender = Extender(plane, *identities.flags(SCHEDULER), "--client-names", "first", scheme="https")
    extender.pool = identities.client("first")
    configuration = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
    entry = configuration["extenders"][0]
    entry["tlsConfig"] = {"caFile": str(identities.ca), "certFile": str(cert), "keyFile": str(key)}
    entry |= {"urlPrefix": extender.url, "enableHTTPS": True}
    control_plane = cast("ControlPlane", plane)
    try:
        extender.start()
        wait_for("the card to be known", lambda: "card-a" in extender.known())
        control_plane.start_scheduler(configuration, "aliquot-scheduler")
        pid = control_plane.processes["aliquot-scheduler"].pid
        assert _placed(plane, create(plane, gib=1, name="with-the-first")) == node
        extender.process.stop()
        show("second")
        argv = list(extender.process.argv)
        argv[argv.index("first")] = "second"
        extender.process.argv, extender.pool = argv, identities.client("second")
        extender.start()
        assert _placed(plane, create(plane, gib=1, name="with-the-second")) == node
        assert control_plane.processes["aliquot-scheduler"].pid == pid
    finally:
        if "aliquot-scheduler" in control_plane.processes:
            control_plane.processes["aliquot-scheduler"].stop()
        extender.process.stop()
        for pod in plane.kubectl.list("pods", "default"):
            plane.kubectl.delete("pods", pod["metadata"]["name"], grace=0)


def _placed(plane: PocketCluster, pod: Document) -> str:
    """The node that a pod comes to."""
    name = pod["metadata"]["name"]
    return str(wait_for(f"{name} to be placed", lambda: _node_of(plane, name), 60.0))


def _node_of(plane: PocketCluster, name: str) -> str:
    return str(plane.kubectl.get("pods", name, "default")["spec"].get("nodeName", ""))


def test_certificates_are_kept_by_several_at_once(plane: PocketCluster):
    """From nothing, by three that start together: one CA, that all the webhooks trust; then nothing is written."""
    cast("ControlPlane", plane).namespace(NAMESPACE)
    configuration = yaml.safe_load((ROOT / "deploy/webhook/configuration.yaml").read_text())
    configuration["metadata"]["name"] = NAMESPACE  # not ours, that other tests may have
    for webhook in configuration["webhooks"]:
        webhook["failurePolicy"] = "Ignore"
        webhook["clientConfig"]["service"]["namespace"] = NAMESPACE
    plane.kubectl.apply(configuration)
    try:
        together = [threading.Thread(target=_keep, args=(plane,)) for _ in range(3)]
        for one in together:
            one.start()
        for one in together:
            one.join()
        _keep(plane)
        before = _versions(plane)
        authorities = _secret(plane, "aliquot-ca")["ca.crt"]
        found = plane.kubectl.find(CONFIGURATIONS, NAMESPACE, "")
        assert found
        assert {webhook["clientConfig"]["caBundle"] for webhook in found["webhooks"]} == {authorities}
        assert {_secret(plane, name)["ca.crt"] for name in before} == {authorities}
        assert base64.b64decode(authorities).count(b"BEGIN CERTIFICATE") == 1
        _keep(plane)
        assert _versions(plane) == before
    finally:
        plane.kubectl.delete(CONFIGURATIONS, NAMESPACE, "")


def _keep(plane: PocketCluster) -> None:
    """One look of a keeper."""
    argv = [
        sys.executable,
        "-m",
        "aliquot.cli",
        "certs",
        "keep",
        "--once",
        "--kubeconfig",
        str(plane.kubeconfig),
    ]
    argv += ["--namespace", NAMESPACE, "--configuration", NAMESPACE]
    subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=True)


def _secret(plane: PocketCluster, name: str) -> dict[str, str]:
    data: dict[str, str] = plane.kubectl.get("secrets", name, NAMESPACE)["data"]
    return data


def _versions(plane: PocketCluster) -> dict[str, str]:
    """Which version each Secret has."""
    listed = plane.kubectl.list("secrets", NAMESPACE)
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed}
