"""Who may call the extender, the webhook and the agent: by certificate, by token, or not at all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Extender, create, two_nodes
from tests.integration.identities import Document, Identities, grant, make_account, token_of
from tests.integration.replicas import NAMESPACE, TAKES_OVER_S

SCHEDULER = "aliquot-scheduler"
METRICS = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
QUESTIONS = {"nonResourceURLs": ["/why", "/defragment"], "verbs": ["get"]}
DRY_RUNS = {"nonResourceURLs": ["/filter-dryrun"], "verbs": ["post"]}


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """Two nodes with two cards each, Prometheus' account and the one for questions."""
    with two_nodes(tmp_path_factory.mktemp("c")) as cluster:
        cluster.kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "aliquot-system"}}
        )
        grant(cluster, make_account(cluster, "prometheus"), "metrics", METRICS)
        asker = make_account(cluster, "aliquot-asker", "aliquot-system")
        grant(cluster, asker, "questions", QUESTIONS, DRY_RUNS)
        grant(cluster, make_account(cluster, "aliquot-asker", "default"), "questions-here", QUESTIONS)
        yield cluster


@pytest.fixture(scope="module", name="identities")
def make_identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    """A CA."""
    return Identities.make(tmp_path_factory.mktemp("pki"))


class Guarded(Extender):
    """An extender that lets in certificates and tokens; the test's own client is kube-scheduler."""

    def __init__(self, cluster: PocketCluster, identities: Identities, *more: str) -> None:
        super().__init__(cluster, *identities.flags(SCHEDULER), "--accept-tokens", *more, scheme="https")
        self.identities = identities
        self.pool = identities.client(SCHEDULER)

    def as_(
        self, common_name: str, method: str, path: str, body: Document | None = None, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        """A call as somebody else, by certificate or by headers."""
        content = None if body is None else json.dumps(body).encode()
        client = self.identities.client(common_name)
        return client.request(method, self.url + path, body=content, headers=headers, timeout=10)


@pytest.fixture(scope="module", name="extender")
def run_extender(cluster: PocketCluster, identities: Identities) -> Iterator[Guarded]:
    """The only extender."""
    extender = Guarded(cluster, identities)
    extender.start()
    yield extender
    extender.process.stop()


def bearer(token: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token}"}


VERBS = ("/filter", "/preempt", "/bind", "/prioritize", "/volcano/allocateFunc")


def test_kube_scheduler_is_known_by_its_certificate(cluster: PocketCluster, extender: Guarded):
    """Filter and bind as ever, also on the connection that asks for metrics between."""
    pod = create(cluster)
    (node,) = extender.filter(pod, "n1", "n2")["NodeNames"]
    assert extender.get("/metrics").status == 200
    assert extender.bind(pod, node) == ""


@pytest.mark.parametrize("path", ["/filter", "/preempt", "/bind", "/volcano/allocateFunc"])
@pytest.mark.parametrize(("name", "status"), [("", 401), ("aliquot-webhook", 403), ("prometheus", 403)])
def test_nobody_else_schedules(cluster: PocketCluster, extender: Guarded, path: str, name: str, status: int):
    """Not without a certificate, not with another's, and never by token; a sentence says why."""
    before = extender.promised()
    asker = {"kind": "ServiceAccount", "name": "aliquot-asker", "namespace": "aliquot-system"}
    body: Document = {"Pod": create(cluster), "NodeNames": ["n1"]}
    answer = extender.as_(name, "POST", path, body, **bearer(token_of(cluster, asker)))
    assert answer.status == status
    assert path in answer.json()["error"]
    assert extender.promised() == before


def test_a_certificate_of_another_ca_ends_the_connection(extender: Guarded, tmp_path: Path):
    """Whatever name it bears."""
    others = Identities.make(tmp_path / "pki")
    cert, key = others.issue(SCHEDULER)
    stranger = urllib3.PoolManager(
        ca_certs=str(extender.identities.ca), cert_file=str(cert), key_file=str(key), retries=False
    )
    with pytest.raises(urllib3.exceptions.HTTPError):
        stranger.request("POST", f"{extender.url}/filter", body=b"{}", timeout=5)


def test_health_is_for_everybody(extender: Guarded):
    """The kubelet shows nothing."""
    assert [extender.as_("", "GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]


def test_metrics_are_for_those_who_may(cluster: PocketCluster, extender: Guarded):
    """By certificate or by token; 401 without anything, 403 with what opens something else."""
    prometheus = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
    asker = {"kind": "ServiceAccount", "name": "aliquot-asker", "namespace": "aliquot-system"}
    assert extender.as_("prometheus", "GET", "/metrics").status == 200
    assert extender.as_("", "GET", "/metrics", **bearer(token_of(cluster, prometheus))).status == 200
    assert (
        extender.as_("", "GET", "/metrics", **bearer(token_of(cluster, prometheus, "aliquot"))).status == 200
    )
    nothing = extender.as_("", "GET", "/metrics")
    assert (nothing.status, nothing.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert extender.as_("aliquot-webhook", "GET", "/metrics").status == 403
    assert extender.as_("", "GET", "/metrics", **bearer("nonsense")).status == 401
    assert extender.as_("", "GET", "/metrics", Authorization="Basic YTpi").status == 401
    refused = extender.as_("", "GET", "/metrics", **bearer(token_of(cluster, asker)))
    assert refused.status == 403
    assert refused.json()["error"] == (
        "system:serviceaccount:aliquot-system:aliquot-asker may not get /metrics: "
        "grant it as a nonResourceURL by a ClusterRole"
    )


def test_questions_are_for_those_who_may(cluster: PocketCluster, extender: Guarded):
    """Each by its own right."""
    asker = {"kind": "ServiceAccount", "name": "aliquot-asker", "namespace": "aliquot-system"}
    prometheus = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
    pod = create(cluster)
    path = f"/why?namespace=default&pod={pod['metadata']['name']}"
    body: Document = {"Pod": pod, "NodeNames": ["n1"]}
    for headers, status in (
        (bearer(token_of(cluster, asker)), 200),
        (bearer(token_of(cluster, prometheus)), 403),
        ({}, 401),
    ):
        assert extender.as_("", "GET", path, **headers).status == status
        assert extender.as_("", "GET", "/defragment?gpu-mem=1Gi", **headers).status == status
        assert extender.as_("", "POST", "/filter-dryrun", body, **headers).status == status
    assert extender.as_("prometheus", "GET", path).status == 403
    assert extender.as_(SCHEDULER, "GET", path).status == 200


@pytest.mark.slow
def test_a_right_that_is_taken_away_is_gone_soon(cluster: PocketCluster, extender: Guarded):
    """An answer is kept for seconds, not for ever."""
    brief = make_account(cluster, "brief")
    grant(cluster, brief, "brief", METRICS)
    token = token_of(cluster, brief)
    assert extender.as_("", "GET", "/metrics", **bearer(token)).status == 200
    cluster.kubectl.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/brief")
    wait_for(
        "the token to be nobody's",
        lambda: extender.as_("", "GET", "/metrics", **bearer(token)).status == 401,
        200.0,
    )


def serve(cluster: PocketCluster, name: str, port: int) -> None:
    """A Service in front of an extender."""
    meta = {"name": name, "namespace": "default"}
    ports = [{"name": "https", "port": 9443}]
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}})
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port}]}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [subset]})


def aliquot(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a user types."""
    command, *more = words
    argv = [sys.executable, "-m", "aliquot.cli", command, "--kubeconfig", str(kubeconfig), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def kubeconfig_of(cluster: PocketCluster, account: Document, path: Path) -> Path:
    """A kubeconfig of a service account."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token_of(cluster, account)}
    path.write_text(yaml.safe_dump(document))
    return path


def install_webhooks(cluster: PocketCluster, namespace: str) -> None:
    """The webhooks' configuration of an Aliquot in this namespace; it is asked about nothing."""
    service = {"namespace": namespace, "name": "aliquot-webhook"}
    cluster.kubectl.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "aliquot"},
            "webhooks": [{"name": "pods.aliquot.dev", "clientConfig": {"service": service}}],
        }
    )


@pytest.mark.slow
def test_the_command_is_let_in_through_the_api_server_and_past_it(
    cluster: PocketCluster, extender: Guarded, identities: Identities, tmp_path: Path
):
    """By a token made for it, of the account in the Service's namespace; who may not have one is told so.

    The Service is that of the namespace which the webhooks' configuration calls, for those who may read it.
    """
    serve(cluster, "guarded", extender.port)
    pod = str(create(cluster)["metadata"]["name"])
    through = ("why", "--service", "default/guarded:9443", pod)
    past = ("why", "--extender", extender.url, "--ca", str(identities.ca), pod)
    assert aliquot(cluster.kubeconfig, *through).returncode == 0
    assert aliquot(cluster.kubeconfig, *past).returncode == 0
    cert, key = map(str, identities.issue(SCHEDULER))
    assert aliquot(Path("/no/kubeconfig"), *past, "--cert", cert, "--key", key).returncode == 0
    install_webhooks(cluster, "default")
    serve(cluster, "aliquot-scheduler", extender.port)
    assert aliquot(cluster.kubeconfig, "why", pod).returncode == 0
    poor = make_account(cluster, "poor")
    tenant = aliquot(kubeconfig_of(cluster, poor, tmp_path / "tenant"), *through)
    assert tenant.returncode == 125
    assert (
        "you may not ask the extender: your user needs the Role aliquot-ask of namespace default"
        in tenant.stderr
    )
    assert "kubectl -n default create rolebinding aliquot-ask --role=aliquot-ask --user=USER" in tenant.stderr
    assert 'cannot get resource "services/proxy"' in tenant.stderr
    assert "if Aliquot is not in" not in tenant.stderr
    usual = aliquot(tmp_path / "tenant", "why", pod)
    assert "if Aliquot is not in aliquot-system, give --service NAMESPACE/NAME:PORT" in usual.stderr
    grant(
        cluster,
        poor,
        "proxy",
        {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]},
        namespace="default",
    )
    mine = kubeconfig_of(cluster, poor, tmp_path / "poor")
    other = (*through, "--account", "aliquot-system/aliquot-asker")
    for words, namespace in ((through, "default"), (past, "aliquot-system"), (other, "aliquot-system")):
        refused = aliquot(mine, *words)
        assert refused.returncode == 125
        assert "needs the Role aliquot-ask of namespace" in refused.stderr
        assert f"no token of the service account {namespace}/aliquot-asker" in refused.stderr
        assert 'cannot create resource "serviceaccounts/token"' in refused.stderr
        assert "needs a client certificate (--client-ca) or a bearer token" in refused.stderr
    tokens = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": ["aliquot-asker"],
        "verbs": ["create"],
    }
    for namespace in ("default", "aliquot-system"):
        grant(cluster, poor, f"tokens-{namespace}", tokens, namespace=namespace)
    assert aliquot(mine, *through).returncode == 0
    assert aliquot(mine, *past).returncode == 0


def test_no_other_token_is_taken_from_the_header_that_passes_the_proxy(
    cluster: PocketCluster, extender: Guarded
):
    """One for the API server must never travel that way, though it might be let in."""
    asker = {"kind": "ServiceAccount", "name": "aliquot-asker", "namespace": "aliquot-system"}
    path = "/defragment?gpu-mem=1Gi"
    plain, ours = token_of(cluster, asker), token_of(cluster, asker, "aliquot")
    refused = extender.as_("", "GET", path, **{"Aliquot-Token": plain})
    assert refused.status == 401
    assert "must be for the audience aliquot" in refused.json()["error"]
    assert extender.as_("", "GET", path, **{"Aliquot-Token": ours}).status == 200


@pytest.mark.slow
def test_without_the_api_server_tokens_cannot_be_checked_and_certificates_can(
    identities: Identities, tmp_path: Path
):
    """503 for who brings a token; kube-scheduler and Prometheus with certificates notice nothing."""
    with two_nodes(tmp_path / "c") as cluster:
        account = make_account(cluster, "prometheus")
        token = token_of(cluster, account)
        extender = Guarded(cluster, identities)
        extender.start()
        try:
            cluster.kill("apiserver")
            answer = extender.as_("", "GET", "/metrics", **bearer(token))
            assert answer.status == 503
            assert "the token cannot be checked now" in answer.json()["error"]
            assert extender.as_("prometheus", "GET", "/metrics").status == 200
            assert extender.as_(SCHEDULER, "GET", "/metrics").status == 200
        finally:
            extender.process.stop()


@pytest.mark.slow
def test_replicas_know_each_other_by_name(cluster: PocketCluster, identities: Identities):
    """A certificate that names no address will do, and a follower passes on what it has let in itself."""
    replicas = []
    cert, key = identities.issue("replica", "aliquot-scheduler.aliquot-system.svc", "127.0.0.1")
    for number in range(2):
        flags = ["--leader-elect", "--lease-namespace", NAMESPACE, "--identity", f"r{number}"]
        flags += ["--tls-ca", str(identities.ca), "--client-names", "replica", SCHEDULER]
        flags += ["--tls-server-name", "aliquot-scheduler.aliquot-system.svc"]
        replica = Guarded(cluster, identities, *flags)
        argv = list(replica.process.argv)
        argv[argv.index("--tls-cert") + 1], argv[argv.index("--tls-key") + 1] = str(cert), str(key)
        replica.process.argv = [*argv, "--advertise-url", replica.url.replace("127.0.0.1", "localhost")]
        replicas.append(replica)
    asker = {"kind": "ServiceAccount", "name": "aliquot-asker", "namespace": "aliquot-system"}
    headers = bearer(token_of(cluster, asker))
    try:
        for replica in replicas:
            replica.start()
        leads = wait_for(
            "one to lead",
            lambda: [b"aliquot_scheduler_leader 1.0" in r.get("/metrics").data for r in replicas],
            TAKES_OVER_S,
        )
        wait_for(
            "exactly one to lead",
            lambda: sum(b"aliquot_scheduler_leader 1.0" in r.get("/metrics").data for r in replicas) == 1,
            TAKES_OVER_S,
        )
        assert leads
        pod = create(cluster)
        for replica in replicas:
            found = wait_for(
                "filter through each", lambda r=replica: r.filter(pod, "n1", "n2").get("NodeNames"), 60.0
            )
            assert len(found) == 1
            assert replica.as_("", "GET", "/defragment?gpu-mem=1Gi", **headers).status == 200
            assert replica.as_("", "POST", "/filter", {"Pod": pod, "NodeNames": ["n1"]}).status == 401
    finally:
        for replica in replicas:
            replica.process.kill()


WRONG = {
    "a right that there is not": (
        ["--client-names", "x=everything"],
        "is no NAME or NAME=schedule,ask,metrics",
    ),
    "no name": (["--client-names", "=metrics"], "is no NAME"),
    "certificates without TLS": (["--client-ca", "/x"], "--client-ca needs --tls-cert and --tls-key"),
}


@pytest.mark.parametrize("service", ["aliquot.scheduler_ext", "aliquot.plugin"])
@pytest.mark.parametrize("flags", WRONG)
def test_flags_that_make_no_sense(service: str, flags: str):
    """Said at the start, with the flag's name."""
    given, why = WRONG[flags]
    argv = [sys.executable, "-m", service, *given]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert why in done.stderr
