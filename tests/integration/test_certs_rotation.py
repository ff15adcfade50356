"""Certificates that change under load: who serves and who calls does not fail for it."""

import json
import ssl
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import free_port
from tests.integration.certificates import NAMESPACE, bundle, keeping, prepare, secret
from tests.integration.extenders import Extender, create, manifest, two_nodes


class Projection:
    """A Secret as files that follow it, put in place as the kubelet does."""

    def __init__(self, cluster: PocketCluster, name: str, directory: Path) -> None:
        self._cluster, self._name, self.directory = cluster, name, directory
        self._seen: dict[str, bytes] = {}
        self.changes = 0
        self._end = threading.Event()
        directory.mkdir()
        self._look()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    @property
    def files(self) -> tuple[str, str, str]:
        """Certificate, key, and CAs."""
        cert, key, authorities = (str(self.directory / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        return cert, key, authorities

    def close(self) -> None:
        """Follow no more."""
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._end.wait(0.2):
            self._look()

    def _look(self) -> None:
        found = secret(self._cluster, self._name)
        if found == self._seen:
            return
        fresh = self.directory / f"..{self.changes}"
        fresh.mkdir()
        for key, content in found.items():
            (fresh / key).write_bytes(content)
            if not (self.directory / key).is_symlink():
                (self.directory / key).symlink_to(f"..data/{key}")
        (self.directory / "..new").symlink_to(fresh.name)
        (self.directory / "..new").rename(self.directory / "..data")
        self._seen, self.changes = found, self.changes + 1


@pytest.mark.slow
def test_rotation_under_load_fails_nobody(tmp_path: Path):
    """Leaves and the CA itself change under admissions and filters, which all succeed; nothing is restarted."""
    with two_nodes(tmp_path / "c") as cluster:
        prepare(cluster)
        with keeping(cluster, tmp_path):
            webhook = Projection(cluster, "aliquot-webhook-tls", tmp_path / "webhook")
            scheduler = Projection(cluster, "aliquot-scheduler-tls", tmp_path / "scheduler")
            try:
                _load(cluster, webhook, scheduler)
            finally:
                webhook.close()
                scheduler.close()


def _load(cluster: PocketCluster, webhook: Projection, scheduler: Projection) -> None:
    port = free_port()
    cert, key, _ = webhook.files
    argv = [sys.executable, "-m", "aliquot.webhook", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--tls-cert", cert, "--tls-key", key]
    cluster.start("webhook", argv, ready_url=f"https://127.0.0.1:{port}/readyz")
    _lead_to(cluster, port)
    cert, key, authorities = scheduler.files
    flags = ["--tls-cert", cert, "--tls-key", key, "--client-ca", authorities]
    extender = Extender(cluster, *flags, scheme="https")
    extender.start()
    end, admitted = threading.Event(), Tally()
    try:
        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(_admit, cluster, end, admitted) for _ in range(3)]
            working.append(pool.submit(_filter, cluster, extender, scheduler, end))
            try:
                authorities = _watch_until_enough(cluster, webhook, admitted, working)
            finally:
                end.set()
            *_, filtered = [one.result() for one in working]
    finally:
        extender.process.stop()
    print(
        f"{admitted.count} admissions, {filtered} filters, {webhook.changes} changes, {authorities} sets of CAs"
    )


class Tally:
    """Counts in several threads."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """One more."""
        with self._lock:
            self.count += 1


def _watch_until_enough(
    cluster: PocketCluster, webhook: Projection, admitted: Tally, working: list[Future[int]]
) -> int:
    """Until a thousand admissions, two whole changes of the CA, and leaves between; how many sets of CAs there were."""
    seen: set[bytes] = set()
    while admitted.count < 1000 or len(seen) < 6 or webhook.changes < 8:
        seen.add(bundle(cluster))
        for one in working:
            assert not one.done(), one.result()
        time.sleep(0.2)
    return len(seen)


def _lead_to(cluster: PocketCluster, port: int) -> None:
    """The Service of the configuration, as the pocket API server knows services."""
    meta = {"name": "aliquot-webhook", "namespace": NAMESPACE}
    spec = {"type": "ExternalName", "externalName": "127.0.0.1"}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot"
    found = cluster.kubectl.request("GET", path)
    changes = [
        {"op": "replace", "path": f"/webhooks/{n}/clientConfig/service/port", "value": port}
        for n in range(len(found["webhooks"]))
    ]
    cluster.kubectl.request("PATCH", path, changes, media_type="application/json-patch+json")


def _admit(cluster: PocketCluster, end: threading.Event, admitted: Tally) -> int:
    """Create pods, of which nothing is kept, until told to stop; each goes through the webhook."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    server = config["clusters"][0]["cluster"]["server"]
    headers = {
        "Authorization": f"Bearer {config['users'][0]['user']['token']}",
        "Content-Type": "application/json",
    }
    client = urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False)
    pod = manifest(name="load")
    pod["spec"]["schedulerName"] = "default-scheduler"
    while not end.is_set():
        path = f"{server}/api/v1/namespaces/default/pods?dryRun=All"
        answer = client.request("POST", path, body=json.dumps(pod), headers=headers, timeout=30)
        assert answer.status == 201, answer.data
        assert answer.json()["spec"]["schedulerName"] == "aliquot-scheduler", "the webhook was not asked"
        admitted.add()
    return admitted.count


def _filter(cluster: PocketCluster, extender: Extender, scheduler: Projection, end: threading.Event) -> int:
    """Ask as kube-scheduler does: certificate and key read for each new connection, CAs by whom was restarted."""
    pod, count = create(cluster), 0
    body = json.dumps({"Pod": pod, "NodeNames": ["n1", "n2"]}).encode()
    while not end.is_set():
        cert, key, authorities = scheduler.files
        with urllib3.PoolManager(ca_certs=authorities, cert_file=cert, key_file=key, retries=False) as client:
            for _ in range(3):
                try:
                    answer = client.request("POST", f"{extender.url}/filter", body=body, timeout=30)
                except (ssl.SSLError, urllib3.exceptions.SSLError) as error:
                    # Between two reads of a pair that changes; Go reads again, too.
                    if "key values mismatch" in str(error):
                        break
                    raise
                assert answer.status == 200
                assert answer.json()["NodeNames"]
                count += 1
    return count
