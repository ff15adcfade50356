"""Who may read the metrics of the keeper of certificates, which shows one of those that it keeps."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import free_port, wait_for
from tests.integration.identities import grant, make_account, token_of
from tests.integration.test_callers import METRICS, bearer
from tests.integration.test_certs_keep import secret

HOST = "keeper.example"
COMMAND = [sys.executable, "-m", "aliquot.cli", "certs", "keep"]


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server, and the accounts of Prometheus and of somebody else."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "aliquot-system"}}
        )
        grant(cluster, make_account(cluster, "prometheus"), "metrics", METRICS)
        make_account(cluster, "other")
        yield cluster


@pytest.fixture(scope="module", name="url")
def run_keeper(cluster: PocketCluster) -> str:
    """Where a keeper answers that serves with a certificate of its own making."""
    port = free_port()
    leaves = ["--leaf", f"keeper-tls={HOST}", "--leaf", "prometheus-tls=prometheus", "--leaf", "web-tls=web"]
    guarded = [*leaves, "--metrics-leaf", "keeper-tls", "--accept-tokens"]
    listens = ["--metrics-host", "127.0.0.1", "--metrics-port", str(port)]
    url = f"https://127.0.0.1:{port}"
    argv = [*COMMAND, "--kubeconfig", str(cluster.kubeconfig), *listens, *guarded]
    cluster.start("keeper", argv, ready_url=f"{url}/readyz")
    return url


def client(cluster: PocketCluster, directory: Path, shown: str = "") -> urllib3.PoolManager:
    """Who trusts what the Secrets say is to be trusted, and shows the certificate of one."""
    (directory / "ca.crt").write_bytes(secret(cluster, "keeper-tls")["ca.crt"])
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    if shown:
        for name in ("tls.crt", "tls.key"):
            (directory / name).write_bytes(secret(cluster, shown)[name])
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return urllib3.PoolManager(ssl_context=context, assert_hostname=HOST, server_hostname=HOST, retries=False)


@pytest.mark.parametrize(
    ("who", "status"),
    [
        (("", ""), 401),
        (("", "prometheus"), 200),
        (("", "other"), 403),
        (("prometheus-tls", ""), 200),
        (("web-tls", ""), 403),
    ],
)
def test_metrics_are_for_who_may_read_them(
    cluster: PocketCluster, url: str, tmp_path: Path, who: tuple[str, str], status: int
):
    """By token, or by a certificate of the CA that it keeps; of that CA is its own certificate, too."""
    shown, account = who
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    headers = bearer(token_of(cluster, subject)) if account else {}
    answer = client(cluster, tmp_path, shown).request("GET", f"{url}/metrics", headers=headers)
    assert answer.status == status
    assert (b"aliquot_certs_expiry" in answer.data) == (status == 200)


def test_health_is_for_everybody(cluster: PocketCluster, url: str, tmp_path: Path):
    """The kubelet shows nothing."""
    for path in ("/healthz", "/readyz"):
        assert client(cluster, tmp_path).request("GET", url + path).status == 200


def test_a_renewed_certificate_is_shown_at_the_next_handshake(cluster: PocketCluster, tmp_path: Path):
    """And the CA that comes with it decides whose certificates count."""
    port = free_port()
    listens = ["--metrics-host", "127.0.0.1", "--metrics-port", str(port), "--namespace", "default"]
    leaves = ["--leaf", f"keeper-tls={HOST}", "--metrics-leaf", "keeper-tls"]
    brief = ["--every", "0.2", "--leaf-days", str(3 / 86400)]
    argv = [*COMMAND, "--kubeconfig", str(cluster.kubeconfig), *listens, *leaves, *brief]
    cluster.start("brief", argv, ready_url=f"https://127.0.0.1:{port}/readyz")
    first = ssl.get_server_certificate(("127.0.0.1", port))
    wait_for("another certificate", lambda: ssl.get_server_certificate(("127.0.0.1", port)) != first, 30.0)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--metrics-leaf", "other-tls"], "other-tls is none of the certificates that are kept"),
        (["--accept-tokens"], "--accept-tokens needs --metrics-leaf"),
        (["--metrics-leaf", "aliquot-agent-tls", "--client-names", "a=b"], "--client-names: 'a=b'"),
    ],
)
def test_what_cannot_work_is_refused(flags: list[str], words: str, cluster: PocketCluster):
    """Before anything is kept."""
    argv = [*COMMAND, "--kubeconfig", str(cluster.kubeconfig), *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode
    assert words in done.stderr
