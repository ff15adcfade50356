"""The webhook as a process: TLS, AdmissionReview over the wire, and the pocket cluster's admission."""

import base64
import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for
from aliquot.server.certs import write_pair

if TYPE_CHECKING:
    from aliquot.server.tls import CertificatePair

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
WIRE = json.loads((ROOT / "tests/data/wire/admission-create.json").read_text())
CONFIGURATION = yaml.safe_load((ROOT / "deploy/webhook/configuration.yaml").read_text())
MEM = "aliquot.dev/gpu-mem"
PLACEMENT = "aliquot.dev/placement"


class Running:
    """A webhook process and a client that trusts its CA alone."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.pair: CertificatePair = write_pair(directory / "tls", ["127.0.0.1"])
        self.port = free_port()
        flags = ["--tls-cert", str(self.pair.cert), "--tls-key", str(self.pair.key), "--host", "127.0.0.1"]
        argv = [
            sys.executable,
            "-m",
            "aliquot.webhook",
            *flags,
            "--port",
            str(self.port),
            "--dialects",
            "hami",
            *more,
        ]
        self.process = Process(
            "webhook", argv, directory / "webhook.log", {"PYTHONPATH": str(ROOT)}, self.answers
        )

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"https://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether it serves now."""
        try:
            return self.get("/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def waits_for(self) -> str:
        """What it says it lacks to be ready; empty while it does not answer."""
        try:
            return self.get("/readyz").data.decode()
        except urllib3.exceptions.HTTPError:
            return ""

    def pool(self) -> urllib3.PoolManager:
        """A fresh client, so that the next request makes a new handshake."""
        return urllib3.PoolManager(ca_certs=str(self.pair.ca), retries=False)

    def get(self, path: str) -> urllib3.BaseHTTPResponse:
        """GET over a connection of its own."""
        return self.pool().request("GET", self.url + path, timeout=5)

    def post(self, body: bytes | Document) -> tuple[int, Document]:
        """POST to /mutate as the API server does: status and answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{self.url}/mutate?timeout=5s"
        reply = self.pool().request("POST", url, body=content, headers=headers, timeout=5)
        return reply.status, json.loads(reply.data)


@pytest.fixture(scope="module", name="webhook")
def run_webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One webhook process for all tests here."""
    running = Running(tmp_path_factory.mktemp("webhook"))
    running.process.start()
    yield running
    running.process.stop()


def review(limits: Document | None = None, **request: Any) -> Document:
    """The captured AdmissionReview, asking for our resources."""
    made = copy.deepcopy(WIRE)
    resources = {"limits": limits or {}, "requests": dict(limits or {})}
    made["request"]["object"]["spec"]["containers"][0]["resources"] = resources
    made["request"].update(request)
    return made


def patched(asked: Document, answer: Document) -> Document:
    """The pod after the answer's patch."""
    operations = json.loads(base64.b64decode(answer["response"]["patch"]))
    pod: Document = jsonpatch.apply_patch(asked["request"]["object"], operations)
    return pod


def test_a_captured_review_is_answered(webhook: Running):
    """The body of a real API server, with our resource in it, comes back as a JSON Patch for its uid."""
    asked = review({MEM: "8Gi"})
    status, answer = webhook.post(asked)
    assert (status, answer["apiVersion"], answer["kind"]) == (200, "admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == asked["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert answer["response"]["patchType"] == "JSONPatch"
    spec = patched(asked, answer)["spec"]
    assert spec["schedulerName"] == "aliquot-scheduler"
    assert spec["containers"][0]["resources"]["limits"] == {MEM: "8Gi", "aliquot.dev/gpu": "1"}


def test_a_pod_that_asks_for_nothing_is_left_alone(webhook: Running):
    """The captured pod as it was: allowed, no patch, no warnings."""
    assert webhook.post(WIRE)[1]["response"] == {"uid": WIRE["request"]["uid"], "allowed": True}


def test_updates_are_left_alone(webhook: Running):
    """Only new pods are changed, whatever the configuration sends; an edit may not touch the placement, no more."""
    edit = review({MEM: "8Gi"}, operation="UPDATE")
    edit["request"]["oldObject"] = edit["request"]["object"]
    status, answer = webhook.post(edit)
    assert (status, "patch" in answer["response"], answer["response"]["allowed"]) == (200, False, True)


def test_nonsense_is_denied_with_a_sentence(webhook: Running):
    """The API server shows the message to whoever applied the pod."""
    status, answer = webhook.post(review({MEM: "4096"}))
    assert (status, answer["response"]["allowed"], answer["response"]["status"]["code"]) == (200, False, 422)
    message = answer["response"]["status"]["message"]
    assert message == ("container 'main': aliquot.dev/gpu-mem: 4096 is 4096 bytes; did you mean 4096Mi?")


def test_what_is_no_pod_is_denied(webhook: Running):
    """A wrong rule in the configuration is said, not guessed around."""
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    status, answer = webhook.post(review(kind=kind))
    assert (status, answer["response"]["allowed"], answer["response"]["status"]["code"]) == (200, False, 400)
    assert "apps/v1 Deployment" in answer["response"]["status"]["message"]


def test_a_pod_that_is_none_is_denied(webhook: Running):
    """An object that cannot be read as a pod is not let in unread."""
    status, answer = webhook.post(review(object={"spec": {"containers": "none"}}))
    assert (status, answer["response"]["allowed"], answer["response"]["status"]["code"]) == (200, False, 400)


def nested(depth: int) -> bytes:
    """A review of a pod such as no honest one is."""
    asked = json.dumps(review({MEM: "4Gi"}))
    return asked.replace('"object": {', '"object": {"x": ' + "[" * depth + "]" * depth + ", ", 1).encode()


def test_a_deeply_nested_pod_is_changed_as_any_other(webhook: Running):
    """However deep it is, if it can be read."""
    status, answer = webhook.post(nested(600))
    assert (status, answer["response"]["allowed"], "patch" in answer["response"]) == (200, True, True)


def test_a_pod_nested_too_deep_is_refused(webhook: Running):
    """Reading it does not fail without an answer."""
    status, answer = webhook.post(nested(100_000))
    assert status == 400
    assert "error" in answer


BAD = {
    "cut short": json.dumps(WIRE).encode()[:500],
    "empty": b"",
    "no JSON": b"hello",
    "no UTF-8": b'{"kind": "\xff\xfe"}',
    "another version": json.dumps({**WIRE, "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "another kind": json.dumps({"apiVersion": "v1", "kind": "Pod"}).encode(),
    "no request": json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
    "no uid": json.dumps(review(uid="")).encode(),
    "nested without end": b'{"x":' * 100_000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_what_is_no_review_is_a_bad_request(webhook: Running, body: bytes):
    """There is no uid to answer to, so the call fails, with words for the log of the API server."""
    status, answer = webhook.post(body)
    assert status == 400
    assert answer["error"]


def test_it_counts_what_it_does(webhook: Running):
    """Prometheus sees calls by outcome and their time."""
    webhook.post(review({MEM: "8Gi"}))
    webhook.post(b"hello")
    text = webhook.get("/metrics").data.decode()
    assert 'aliquot_webhook_requests_total{outcome="changed"}' in text
    assert 'aliquot_webhook_requests_total{outcome="bad"}' in text
    assert 'aliquot_webhook_request_seconds_count{outcome="changed"}' in text
    assert webhook.get("/healthz").status == 200


def test_a_renewed_certificate_is_used_without_a_restart(webhook: Running):
    """The next handshake after renewal shows the new certificate."""
    before, pid = webhook.pair.cert.read_bytes(), webhook.process.pid
    write_pair(webhook.pair.cert.parent, ["127.0.0.1"])
    assert webhook.pair.cert.read_bytes() != before
    assert webhook.post(WIRE)[0] == 200
    assert webhook.process.pid == pid


def test_without_a_certificate_it_does_not_start(tmp_path: Path):
    """The reason is one line."""
    flags = ["--tls-cert", str(tmp_path / "no"), "--tls-key", str(tmp_path / "no"), "--port", "1"]
    process = Process(
        "webhook",
        [sys.executable, "-m", "aliquot.webhook", *flags],
        tmp_path / "log",
        {"PYTHONPATH": str(ROOT)},
    )
    process.start()
    wait_for("the webhook to end", lambda: not process.running)
    assert process.tail().startswith("aliquot-webhook: ")
    assert len(process.tail().splitlines()) == 1


NOBODY = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def test_until_it_has_read_the_quotas_it_makes_no_pod(tmp_path: Path):
    """It is alive, not ready, and has the API server try again; a default left out would be a whole card."""
    config = tmp_path / "kubeconfig"
    config.write_text(NOBODY % free_port())
    running = Running(tmp_path, "--quotas", "--kubeconfig", str(config))
    running.process.ready = lambda: "not read" in running.waits_for()
    try:
        running.process.start()
        _, answer = running.post(review({MEM: "8Gi"}))
    finally:
        running.process.stop()
    assert (answer["response"]["allowed"], answer["response"]["status"]["code"]) == (False, 503)
    assert "gpuquotas not read yet" in answer["response"]["status"]["message"]


@pytest.fixture(scope="module", name="cluster")
def run_cluster(webhook: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with the shipped configuration, pointed at the webhook."""
    with PocketCluster(tmp_path_factory.mktemp("c")) as cluster:
        cluster.start_apiserver()
        configuration = copy.deepcopy(CONFIGURATION)
        for entry in configuration["webhooks"]:
            bundle = base64.b64encode(webhook.pair.ca.read_bytes()).decode()
            entry["clientConfig"] = {"url": f"{webhook.url}/mutate", "caBundle": bundle}
        cluster.kubectl.apply(configuration)
        yield cluster


def pod(name: str, limits: Document, **spec: Any) -> Document:
    """A manifest."""
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]} | spec,
    }


def test_the_shipped_configuration_selects_our_pods(cluster: PocketCluster):
    """Ours, a dialect's and init containers' requests reach the webhook; the stored pod is the changed one."""
    side = {"name": "i", "image": "x", "resources": {"limits": {MEM: "1Gi"}}}
    asking = [
        pod("ours", {MEM: "2Gi"}),
        pod("hami", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
        pod("init", {}, initContainers=[side]),
    ]
    stored = cluster.kubectl.apply(*asking)
    assert {p["spec"]["schedulerName"] for p in stored} == {"aliquot-scheduler"}
    assert stored[1]["spec"]["containers"][0]["resources"]["limits"][MEM] == "3000Mi"


def test_a_refused_pod_is_not_stored(cluster: PocketCluster):
    """Whoever applies it reads why."""
    with pytest.raises(ApiError, match="did you mean 4096Mi"):
        cluster.kubectl.create(pod("bad", {MEM: "4096"}))
    assert cluster.kubectl.find("pods", "bad") is None


def test_what_hami_would_do_and_aliquot_does_not_is_refused(cluster: PocketCluster):
    """A manifest is not run on another card than it names; kubectl shows what to write."""
    made = pod("picky", {"nvidia.com/gpu": "1", "nvidia.com/priority": "1"})
    made["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A100"}
    with pytest.raises(
        ApiError, match=r"use-gputype: 'A100' .*card-model.*nvidia.com/priority: '1' .*"
    ) as caught:
        cluster.kubectl.create(made)
    assert "annotation aliquot.dev/priority, 0 to 9" in str(caught.value)
    assert cluster.kubectl.find("pods", "picky") is None


def test_a_forged_placement_does_not_get_in(cluster: PocketCluster):
    """Even a pod that asks for nothing else is shown to the webhook for it."""
    made = pod("forged", {})
    made["metadata"]["annotations"] = {"aliquot.dev/placement": "{}", "other": "x"}
    (stored,) = cluster.kubectl.apply(made)
    assert stored["metadata"]["annotations"] == {"other": "x"}


@pytest.mark.parametrize("edit", ["{}", None])
def test_a_placement_cannot_be_edited_once_it_is_written(cluster: PocketCluster, edit: str | None):
    """What the Binding wrote stays; everything else of the pod may change as before."""
    name = f"bound-{len(str(edit))}"
    made = cluster.kubectl.create(pod(name, {MEM: "1Gi"}))
    binding = {
        "metadata": {
            "name": name,
            "uid": made["metadata"]["uid"],
            "annotations": {PLACEMENT: "the scheduler's"},
        },
        "target": {"kind": "Node", "name": "n1"},
    }
    cluster.kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)
    change = {"metadata": {"annotations": {PLACEMENT: edit, "other": "x"}, "labels": {"l": "y"}}}
    cluster.kubectl.patch("pods", name, change)
    meta = cluster.kubectl.get("pods", name)["metadata"]
    assert meta["annotations"] == {PLACEMENT: "the scheduler's", "other": "x"}
    assert meta["labels"] == {"l": "y"}


def test_a_placement_cannot_be_brought_in_by_an_edit(cluster: PocketCluster):
    """A pod that waits has none, and gets none from anybody but the scheduler."""
    cluster.kubectl.create(pod("waits", {MEM: "1Gi"}))
    cluster.kubectl.patch("pods", "waits", {"metadata": {"annotations": {PLACEMENT: "{}"}}})
    assert PLACEMENT not in cluster.kubectl.get("pods", "waits")["metadata"].get("annotations", {})


def test_while_the_webhook_is_down_only_our_pods_wait(webhook: Running, cluster: PocketCluster):
    """Killed, it stops pods with slices and nobody else; started again, it goes on."""
    webhook.process.kill()
    cluster.kubectl.create(pod("bystander", {"cpu": "1"}))
    with pytest.raises(ApiError, match="webhook"):
        cluster.kubectl.create(pod("ours-too", {MEM: "2Gi"}))
    webhook.process.start()
    stored = cluster.kubectl.create(pod("ours-too", {MEM: "2Gi"}))
    assert stored["spec"]["schedulerName"] == "aliquot-scheduler"
