"""Admission webhooks as the pocket cluster's API server calls them, held against a real AdmissionReview."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.server.certs import write_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.kubectl import Kubectl

Obj = dict[str, Any]

WIRE = Path(__file__).parent.parent / "data" / "wire"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
    "scope": "Namespaced",
}
WANTS_GPU = {
    "name": "wants-vgpu",
    "expression": "object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits)"
    " && c.resources.limits.exists(k, k.startsWith('lab.example/')))",
}


class FakeWebhook:
    """A webhook over TLS that records reviews; `answer` makes the response from a request."""

    def __init__(self, directory: Path) -> None:
        self.reviews: list[Obj] = []
        self.headers: Obj = {}
        self.path = ""
        self.callers: set[Any] = set()
        self.answer: Any = lambda _: {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.pair = write_pair(directory, ["127.0.0.1", "hook.lab.svc"])
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pair.cert, self.pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one review."""
        review = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.reviews.append(review)
        self.headers, self.path = dict(handler.headers), handler.path
        self.callers.add(handler.client_address)
        response = {"uid": review["request"]["uid"], "allowed": True} | self.answer(review["request"])
        kind = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        content = json.dumps({**kind, "response": response}).encode()
        handler.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()

    def configuration(self, **changes: Any) -> Obj:
        """A configuration of this webhook; `changes` to its only entry."""
        bundle = base64.b64encode(self.pair.ca.read_bytes()).decode()
        entry = {
            "name": "pods.lab.example",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/mutate", "caBundle": bundle},
            "rules": [RULE],
            "matchConditions": [WANTS_GPU],
            **changes,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "lab"},
            "webhooks": [entry],
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server alone."""
    with PocketCluster(tmp_path_factory.mktemp("adm")) as cluster:
        cluster.start_apiserver()
        yield cluster


@pytest.fixture
def webhook(tmp_path: Path, cluster: PocketCluster) -> Iterator[FakeWebhook]:
    """A webhook that allows; nothing is configured before and after."""
    webhook = FakeWebhook(tmp_path)
    yield webhook
    webhook.close()
    for configuration in cluster.kubectl.list("mutatingwebhookconfigurations.admissionregistration.k8s.io"):
        name = configuration["metadata"]["name"]
        cluster.kubectl.delete("mutatingwebhookconfigurations.admissionregistration.k8s.io", name)
    for pod in cluster.kubectl.list("pods"):
        cluster.kubectl.delete("pods", pod["metadata"]["name"])


@pytest.fixture
def kubectl(cluster: PocketCluster) -> Kubectl:
    """The cluster's client."""
    return cluster.kubectl


def pod(name: str, *, gpu: bool = True) -> Obj:
    """A pod that asks for a slice, or for nothing."""
    limits = {"lab.example/vgpu": "1"} if gpu else {}
    container = {
        "name": "main",
        "image": "lab.local/busybox:1",
        "command": ["sh"],
        "resources": {"limits": limits},
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def patching(*operations: Obj) -> Any:
    """An answer that patches."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"patchType": "JSONPatch", "patch": encoded}


def test_the_review_is_the_real_servers(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """The AdmissionReview has the captured one's fields; the object is defaulted and not yet stored."""
    kubectl.apply(webhook.configuration())
    kubectl.create(pod("w1"))
    (review,) = webhook.reviews
    wire = json.loads((WIRE / "admission-create.json").read_text())
    assert list(review) == list(wire)
    assert list(review["request"]) == list(wire["request"])
    for key in ("kind", "resource", "requestKind", "requestResource", "operation", "oldObject", "dryRun"):
        assert review["request"][key] == wire["request"][key]
    ours, real = review["request"]["object"], wire["request"]["object"]
    only_there = {"automountServiceAccountToken"}
    assert set(ours["spec"]) == set(real["spec"]) - only_there
    assert set(ours["spec"]["containers"][0]) == set(real["spec"]["containers"][0])
    assert ours["spec"]["containers"][0]["resources"] == real["spec"]["containers"][0]["resources"]
    assert ours["status"] == real["status"] == {}
    assert "uid" not in ours["metadata"]
    assert webhook.path == "/mutate?timeout=1s"
    assert webhook.headers["User-Agent"] == "kube-apiserver-admission"


def test_a_patch_is_applied_and_defaulted_again(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """A limit that a webhook adds gets its request, as every limit does."""
    path = "/spec/containers/0/resources/limits/lab.example~1mem"
    webhook.answer = patching({"op": "add", "path": path, "value": "2048Mi"})
    kubectl.apply(webhook.configuration())
    resources = kubectl.create(pod("patched"))["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"lab.example/vgpu": "1", "lab.example/mem": "2Gi"}


def test_pods_that_do_not_match_never_reach_it(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """By CEL matchConditions, a pod without the resource is not shown to the webhook."""
    kubectl.apply(webhook.configuration())
    kubectl.create(pod("plain", gpu=False))
    assert webhook.reviews == []


def test_a_denial_is_told(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """The client gets the webhook's code and sentence, and nothing is stored."""
    webhook.answer = lambda _: {"allowed": False, "status": {"code": 422, "message": "too much"}}
    kubectl.apply(webhook.configuration())
    with pytest.raises(ApiError) as caught:
        kubectl.create(pod("denied"))
    assert caught.value.status == 422
    assert str(caught.value) == 'admission webhook "pods.lab.example" denied the request: too much'
    assert kubectl.find("pods", "denied") is None


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: {"uid": "another"},
        lambda _: {"patchType": "JSONPatch", "patch": "bm8="},
        patching({"op": "remove", "path": "/spec/nothing/there"}),
        lambda _: threading.Event().wait(2) or {},
    ],
    ids=["foreign uid", "no json", "impossible patch", "timeout"],
)
def test_a_broken_answer_is_an_internal_error(webhook: FakeWebhook, kubectl: Kubectl, answer: Any) -> None:
    """Under failurePolicy Fail a response that cannot be used refuses the pod with 500."""
    webhook.answer = answer
    kubectl.apply(webhook.configuration())
    with pytest.raises(ApiError) as caught:
        kubectl.create(pod("broken"))
    assert (caught.value.status, caught.value.reason) == (500, "InternalError")
    assert kubectl.find("pods", "broken") is None


def test_a_webhook_that_is_down(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """Fail: matching pods are refused and others are not; Ignore: all pass."""
    dead = {"url": "https://127.0.0.1:1/mutate"}
    kubectl.apply(webhook.configuration(clientConfig=dead))
    with pytest.raises(ApiError, match=r'failed calling webhook "pods\.lab\.example"') as caught:
        kubectl.create(pod("stopped"))
    assert caught.value.status == 500
    kubectl.create(pod("unaffected", gpu=False))
    kubectl.apply(webhook.configuration(clientConfig=dead, failurePolicy="Ignore"))
    kubectl.create(pod("ignored"))


def test_an_unknown_authority_is_refused(webhook: FakeWebhook, kubectl: Kubectl, tmp_path: Path) -> None:
    """A webhook whose certificate the configured CA did not sign is not believed."""
    other = write_pair(tmp_path / "other", ["127.0.0.1"])
    configuration = webhook.configuration()
    config = configuration["webhooks"][0]["clientConfig"]
    config["caBundle"] = base64.b64encode(other.ca.read_bytes()).decode()
    kubectl.apply(configuration)
    with pytest.raises(ApiError, match="failed calling webhook"):
        kubectl.create(pod("untrusted"))
    assert webhook.reviews == []


def test_connections_are_kept(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """One call after the other takes one connection, as the real API server keeps a client for each webhook."""
    kubectl.apply(webhook.configuration())
    for number in range(5):
        kubectl.create(pod(f"kept-{number}"))
    assert len(webhook.reviews) == 5
    assert len(webhook.callers) == 1


def test_services_and_selectors(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """A Service of type ExternalName is followed under its own name; an objectSelector narrows."""
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}})
    spec = {"type": "ExternalName", "externalName": "127.0.0.1"}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hook", "namespace": "lab"},
            "spec": spec,
        }
    )
    configuration = webhook.configuration(objectSelector={"matchLabels": {"shown": "yes"}})
    config = configuration["webhooks"][0]["clientConfig"]
    del config["url"]
    config["service"] = {"namespace": "lab", "name": "hook", "path": "/mutate", "port": webhook.port}
    kubectl.apply(configuration)
    kubectl.create(pod("hidden"))
    assert webhook.reviews == []
    shown = pod("shown")
    shown["metadata"]["labels"] = {"shown": "yes"}
    kubectl.create(shown)
    assert len(webhook.reviews) == 1


def test_reinvocation(webhook: FakeWebhook, kubectl: Kubectl) -> None:
    """A webhook that a later one has changed the object after is asked once more."""
    first, second = (webhook.configuration(reinvocationPolicy="IfNeeded") for _ in range(2))
    second["metadata"]["name"] = "second"
    second["webhooks"][0]["clientConfig"] = {
        **second["webhooks"][0]["clientConfig"],
        "url": f"https://127.0.0.1:{webhook.port}/second",
    }
    calls: list[str] = []

    def answer(_: Obj) -> Obj:
        calls.append(webhook.path)
        if not webhook.path.startswith("/second"):
            return {}
        patched: Obj = patching({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})(_)
        return patched

    webhook.answer = answer
    kubectl.apply(first, second)
    assert kubectl.create(pod("twice"))["metadata"]["labels"] == {"a": "b"}
    assert calls == ["/mutate?timeout=1s", "/second?timeout=1s", "/mutate?timeout=1s"]
