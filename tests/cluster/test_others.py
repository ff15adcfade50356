"""What the chart makes for other projects, by their own definitions; and the oldest Helm that it is for."""

import base64
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.server.certs import write_pair
from tests.cluster.access import is_served
from tests.cluster.control_plane import ControlPlane
from tests.cluster.custom_resources import CERT_MANAGER, PROMETHEUS_OPERATOR, Json, definitions
from tests.cluster.existing import Existing
from tests.cluster.helm import NAMESPACE, HelmRelease, rendered
from tests.cluster.programs import program_or_skip
from tests.tools.debian import NotAvailableError

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("alone")]

MONITORED: Json = {"monitoring": {name: {"enabled": True} for name in ("serviceMonitors", "rules")}}
BY_CERT_MANAGER: Json = {"certificates": {"mode": "cert-manager"}}
HAVE = ("--api-versions=monitoring.coreos.com/v1", "--api-versions=cert-manager.io/v1")
RELEASE = "helm.sh/release.v1"
"""The type of the Secrets in which Helm keeps what it has installed."""
INJECTOR = "system:serviceaccount:cert-manager:cert-manager-cainjector"
ADMISSION, WEBHOOKS = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"

both_helms = pytest.mark.parametrize("which", ["helm", "helm3"])


@pytest.fixture(scope="module", name="plane")
def start_plane() -> Iterator[ControlPlane]:
    """A control plane of our own: what is defined on it concerns no other test."""
    for name in ("etcd", "kube-apiserver", "helm", "helm3"):
        program_or_skip(name)
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module", name="shared")
def start_shared() -> Iterator[ControlPlane]:
    """Another, which has the resources of cert-manager and Prometheus Operator."""
    for name in ("etcd", "kube-apiserver", "helm", "helm3"):
        program_or_skip(name)
    try:
        defined = [*definitions(CERT_MANAGER), *definitions(PROMETHEUS_OPERATOR)]
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    with ControlPlane() as plane:
        for each in defined:
            plane.kubectl.create(each)
            wait_for(each["metadata"]["name"], partial(is_served, plane.kubectl, each["spec"]), 60)
        yield plane


@pytest.mark.parametrize("values", [{}, MONITORED | BY_CERT_MANAGER])
def test_the_oldest_helm_renders_the_same(plane: ControlPlane, values: Json) -> None:
    """Object by object, for a cluster of the oldest Kubernetes. Only the order of unknown kinds may differ."""
    options = ["--kube-version=1.30.0", *HAVE]
    oldest, newest = (rendered(values, options=options, which=which) for which in ("helm3", "helm"))
    assert sorted(oldest, key=str) == sorted(newest, key=str)


def test_the_oldest_helm_is_to_be_told_for_which_kubernetes_it_renders(plane: ControlPlane) -> None:
    """Helm 3.14 takes a cluster that it does not see for 1.29."""
    with pytest.raises(
        AssertionError, match=r"kubeVersion: >=1\.30\.0-0 which is incompatible with .* v1\.29\.0"
    ):
        rendered(which="helm3")


@both_helms
@pytest.mark.parametrize(
    ("values", "words"),
    [(MONITORED, "install Prometheus Operator first"), (BY_CERT_MANAGER, "install cert-manager first")],
)
def test_what_a_cluster_does_not_serve_is_refused_with_what_helps(
    plane: ControlPlane, which: str, values: Json, words: str
) -> None:
    """Before anything of it is made."""
    release = HelmRelease(plane, which)
    with pytest.raises(AssertionError, match=words):
        release.install_idle(**values)
    assert [each for each in plane.kubectl.list("secrets", NAMESPACE) if each["type"] == RELEASE] == []


@both_helms
def test_it_is_installed_beside_both(shared: ControlPlane, which: str) -> None:
    """All of it is there, and no field of it is one that the projects do not know."""
    release = HelmRelease(shared, which)
    release.install_idle(**MONITORED, **BY_CERT_MANAGER)
    made = release.objects()
    assert [each for each in made if not release.find(each)] == []
    assert {each["kind"] for each in made} >= {"Certificate", "Issuer", "ServiceMonitor", "PrometheusRule"}
    with Existing(shared.kubeconfig) as cluster:
        assert [words for each in made if (words := cluster.refusal(each))] == []
    release.helm("uninstall", "aliquot", "--wait")
    assert [each for each in made if release.find(each)] == []


@both_helms
def test_an_upgrade_leaves_the_ca_that_cert_manager_has_injected(
    shared: ControlPlane, tmp_path: Path, which: str
) -> None:
    """The injector writes it where the annotation says; without it the API server would not call the webhook."""
    release = HelmRelease(shared, which)
    release.install_idle(**BY_CERT_MANAGER)
    grant(shared, INJECTOR, {"apiGroups": [ADMISSION], "resources": [WEBHOOKS], "verbs": ["get", "update"]})
    injector = Kubectl(shared.user(INJECTOR))
    stored = injector.get(f"{WEBHOOKS}.{ADMISSION}", "aliquot", "")
    wanted = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/aliquot-webhook"}
    assert wanted.items() <= stored["metadata"]["annotations"].items()
    written = base64.b64encode(write_pair(tmp_path, ["x"]).ca.read_bytes()).decode()
    for webhook in stored["webhooks"]:
        webhook["clientConfig"]["caBundle"] = written
    injector.request("PUT", f"/apis/{ADMISSION}/v1/{WEBHOOKS}/aliquot", stored)
    release.upgrade("--set", "webhook.replicas=3")
    after = injector.get(f"{WEBHOOKS}.{ADMISSION}", "aliquot", "")
    assert {webhook["clientConfig"]["caBundle"] for webhook in after["webhooks"]} == {written}
    release.helm("uninstall", "aliquot", "--wait")


def grant(cluster: ControlPlane, user: str, rule: Json) -> None:
    """Gives a user one right."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "injector"}}
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": "injector"}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    cluster.kubectl.apply(
        {**rbac, "kind": "ClusterRole", "rules": [rule]},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects},
    )
