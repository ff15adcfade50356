"""`aliquot doctor` against a cluster over HTTP: healthy, broken in many ways at once, and with few rights."""

import base64
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.server.certs import new_authority, new_leaf
from tests.integration.doctored import NAMESPACE, Doctored
from tests.integration.identities import grant, make_account, token_of

Json = dict[str, Any]
DAY = dt.timedelta(days=1)
WEBHOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"


@pytest.fixture(scope="module", name="doctored")
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doctored]:
    """The chart on a pocket cluster; each test leaves it healthy."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        yield Doctored.install(cluster)


def bad(findings: list[Json]) -> dict[str, list[str]]:
    """What was seen, of all that is not ok, by check."""
    seen: dict[str, list[str]] = {}
    for one in findings:
        if one["result"] != "ok":
            seen.setdefault(one["check"], []).append(f"{one['result']}: {one['seen']}")
    return seen


def test_a_healthy_cluster(doctored: Doctored):
    """Everything was checked, and all is well; for people it fits on 80 columns, and the exit status is 0."""
    assert bad(doctored.findings()) == {}
    done = doctored.doctor()
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(" ok")
    assert max(map(len, done.stdout.splitlines())) <= 80


def encoded(text: bytes) -> str:
    """As in a Secret."""
    return base64.b64encode(text).decode()


def break_all(doctored: Doctored) -> None:
    """An expired certificate, a wrong caBundle, a right that is gone, another plugin, and a pod that helps itself."""
    kubectl = doctored.cluster.kubectl
    stranger = new_authority(DAY)
    names = [f"aliquot-scheduler.{NAMESPACE}.svc"]
    expired = new_leaf(stranger, "aliquot-scheduler", names, DAY, dt.datetime.now(dt.UTC) - 2 * DAY)
    data = {"tls.crt": encoded(expired.pem), "tls.key": encoded(expired.key_pem)}
    kubectl.patch("secrets", "aliquot-scheduler-tls", {"data": data}, NAMESPACE)
    webhooks = kubectl.get(WEBHOOKS, "aliquot", "")["webhooks"]
    for one in webhooks:
        one["clientConfig"]["caBundle"] = encoded(stranger.pem)
    kubectl.patch(WEBHOOKS, "aliquot", {"webhooks": webhooks}, "")
    kubectl.delete("clusterrolebindings.rbac.authorization.k8s.io", "aliquot-agent", "")
    doctored.node("gpu-1", **{"nvidia.com/gpu": "1"})
    doctored.pod("sly", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    doctored.cluster.kill("aliquot-webhook")


def mend_all(doctored: Doctored, binding: Json) -> None:
    """All of it undone."""
    kubectl = doctored.cluster.kubectl
    doctored.cluster.restart("aliquot-webhook")
    kubectl.patch("secrets", "aliquot-scheduler-tls", {"data": {"tls.crt": None, "tls.key": None}}, NAMESPACE)
    doctored.keep_certificates()
    kubectl.apply(
        {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")} | metadata(binding)
    )
    doctored.status("nodes", "", "gpu-1", {"allocatable": {"nvidia.com/gpu": None}})
    kubectl.delete("pods", "sly", grace=0)


def metadata(thing: Json) -> Json:
    """Its name alone."""
    return {"metadata": {"name": thing["metadata"]["name"]}}


@pytest.mark.slow
def test_a_cluster_that_is_broken_in_many_ways(doctored: Doctored):
    """Each is named with what to do, nothing else is; once they are mended all is well again."""
    binding = doctored.cluster.kubectl.get(
        "clusterrolebindings.rbac.authorization.k8s.io", "aliquot-agent", ""
    )
    break_all(doctored)
    findings = doctored.findings()
    seen = bad(findings)
    assert set(seen) == {"certificates", "rights", "neighbours", "bypasses", "services"}
    yesterday = (dt.datetime.now(dt.UTC) - DAY).strftime("%Y-%m-%d")
    assert f"failure: aliquot-scheduler-tls ended on {yesterday}." in seen["certificates"]
    assert any("has the caBundle of another CA" in words for words in seen["certificates"])
    assert seen["rights"][0].startswith("failure: aliquot-agent may not create events")
    assert "NVIDIA's device plugin works on 1 node" in seen["neighbours"][0]
    assert seen["bypasses"][0].endswith("default/sly")
    assert seen["services"][0].startswith("failure: aliquot-webhook is not ready")
    assert all(one["remedy"] for one in findings if one["result"] == "failure")
    shown = doctored.doctor()
    assert (shown.returncode, "6 failures" in shown.stdout) == (1, True), shown.stdout
    assert shown.stdout.splitlines()[1].startswith("  FAILURE")
    mend_all(doctored, binding)
    assert bad(doctored.findings()) == {}


def kubeconfig_of(doctored: Doctored, account: Json, path: Path) -> Path:
    """A kubeconfig of a service account."""
    document = yaml.safe_load(doctored.cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token_of(doctored.cluster, account)}
    path.write_text(yaml.safe_dump(document))
    return path


def test_an_admin_of_few_rights(doctored: Doctored, tmp_path: Path):
    """What may not be seen is not checked, with the right that is missing; what may be is checked."""
    account = make_account(doctored.cluster, "viewer")
    rule = {"apiGroups": ["", "aliquot.dev"], "resources": ["nodes", "gpunodes"], "verbs": ["list"]}
    discovery = {"nonResourceURLs": ["/version"], "verbs": ["get"]}
    grant(doctored.cluster, account, "viewer", rule, discovery)
    findings = doctored.findings(kubeconfig=kubeconfig_of(doctored, account, tmp_path / "kubeconfig"))
    ok = {one["check"] for one in findings if one["result"] == "ok"}
    assert ok == {"kubernetes", "runtimes"}
    assert {one["result"] for one in findings if one["check"] not in ok} == {"not checked"}
    reasons = {one["seen"] for one in findings}
    assert "you lack the right to list pods" in reasons
    assert "you lack the right to get deployments aliquot-webhook in aliquot-system" in reasons
    assert "you lack the right to create subjectaccessreviews.authorization.k8s.io" in reasons


def test_a_cluster_without_the_chart(tmp_path: Path):
    """The CRDs are missed by name, and there is no release that could be upgraded."""
    with PocketCluster(tmp_path) as cluster:
        cluster.start_apiserver()
        findings = Doctored(cluster).findings()
    assert "failure: there is no CRD gpunodes.aliquot.dev." in bad(findings)["definitions"]
    seen = [one["seen"] for one in findings if one["check"] == "inventory"]
    assert seen == ["the cluster has no gpunodes.aliquot.dev: there is no such CRD"]
    remedies = [one["remedy"] for one in findings if one["check"] in ("definitions", "webhook")]
    assert all(one.startswith("helm install aliquot CHART --namespace aliquot-system") for one in remedies)


def test_aliquot_is_looked_for_where_the_webhooks_configuration_calls_it(doctored: Doctored):
    """Unless a namespace is given: the half of all findings would be of one that nobody has used."""
    kubectl = doctored.cluster.kubectl
    webhooks = kubectl.get(WEBHOOKS, "aliquot", "")["webhooks"]
    moved = [
        {
            **one,
            "clientConfig": {
                **one["clientConfig"],
                "service": {**one["clientConfig"]["service"], "namespace": "gpus"},
            },
        }
        for one in webhooks
    ]
    absent = "failure: aliquot-scheduler is not installed in namespace gpus."
    kubectl.patch(WEBHOOKS, "aliquot", {"webhooks": moved}, "")
    try:
        assert absent in bad(doctored.findings())["components"]
        assert "components" not in bad(doctored.findings("--namespace", NAMESPACE))
    finally:
        kubectl.patch(WEBHOOKS, "aliquot", {"webhooks": webhooks}, "")


def test_bad_use(doctored: Doctored, tmp_path: Path):
    """Exit status 2 where there is no way to a cluster, 1 where it does not answer."""
    done = doctored.doctor(kubeconfig=tmp_path / "none")
    assert (done.returncode, "give --kubeconfig" in done.stderr) == (2, True)
    assert doctored.doctor("--most-pods", "0").returncode == 2
    document = yaml.safe_load(doctored.cluster.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "dead").write_text(yaml.safe_dump(document))
    done = doctored.doctor(kubeconfig=tmp_path / "dead")
    assert (done.returncode, "the API server does not answer" in done.stdout) == (1, True)
