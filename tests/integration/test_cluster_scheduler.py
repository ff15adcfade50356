"""The stand-in scheduler against an extender that can be told to misbehave, held against real captures."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster, extender_entry
from aliquot.sandbox.cluster.objects import dig
from aliquot.sandbox.cluster.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

Obj = dict[str, Any]

WIRE = Path(__file__).parent.parent / "data" / "wire"
TIMEOUT_S = 2
"""How long the scheduler waits for the extender."""
RESOURCES = {"lab.example/vgpu": False, "lab.example/vgpu-mem": True}


class FakeExtender:
    """An HTTP extender that records bodies and answers as its `answers` say (a callable, or a failure)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Obj]] = []
        self.answers: dict[str, Any] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one call as told."""
        verb = handler.path.rsplit("/", 1)[-1]
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        how = self.answers.get(verb, {"filter": keep_all, "bind": lambda _: {}, "prioritize": score}[verb])
        self.calls.append((verb, body))
        if how == "close":
            handler.close_connection = True
            return
        if how == "hang":
            threading.Event().wait(3 * TIMEOUT_S)
            handler.close_connection = True
            return
        code, reply = (how, {}) if isinstance(how, int) else (200, how(body))
        content = json.dumps(reply).encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        handler.wfile.write(head + content)

    def verbs(self, pod: str) -> list[str]:
        """What was called about a pod, in order."""
        return [
            verb for verb, body in self.calls if pod in (body.get("PodName"), dig(body, "Pod.metadata.name"))
        ]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()


def keep_all(body: Obj) -> Obj:
    """A filter that keeps every node."""
    return {"NodeNames": body["NodeNames"], "FailedNodes": {}, "Error": ""}


def deny_all(body: Obj) -> Obj:
    """A filter that keeps none."""
    return {"NodeNames": [], "FailedNodes": dict.fromkeys(body["NodeNames"], "card fragmentation (lab)")}


def score(body: Obj) -> list[Obj]:
    """Scores that favour fake2."""
    return [{"Host": name, "Score": 10 if name == "fake2" else 0} for name in body["NodeNames"]]


@pytest.fixture(scope="module")
def extender() -> Iterator[FakeExtender]:
    """An extender that obeys."""
    extender = FakeExtender()
    yield extender
    extender.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, extender: FakeExtender) -> Iterator[PocketCluster]:
    """An API server, two nodes that are mere objects, and the scheduler."""
    with PocketCluster(tmp_path_factory.mktemp("sched")) as cluster:
        cluster.start_apiserver()
        for name in ("fake1", "fake2"):
            add_node(cluster, name)
        entry = extender_entry(
            extender.url, RESOURCES, prioritizeVerb="prioritize", httpTimeout=f"{TIMEOUT_S}s"
        )
        cluster.start_scheduler([entry], "--backoff", "0.1", "--longest-backoff", "0.2")
        yield cluster


@pytest.fixture(autouse=True)
def fresh(cluster: PocketCluster, extender: FakeExtender) -> Iterator[None]:
    """Well-behaved answers before, no pods after."""
    extender.answers.clear()
    yield
    for pod in cluster.kubectl.list("pods"):
        cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)


def add_node(cluster: PocketCluster, name: str, **spec: Any) -> None:
    """Add a Ready node with four slices."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    allocatable = {
        "cpu": "4",
        "memory": "8Gi",
        "pods": "110",
        "lab.example/vgpu": "4",
        "lab.example/vgpu-mem": "1",
    }
    status = {
        "allocatable": allocatable,
        "capacity": allocatable,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    path = f"/api/v1/nodes/{name}/status"
    cluster.kubectl.request("PATCH", path, {"status": status}, media_type="application/merge-patch+json")


def pod(name: str, limits: Obj | None = None, **spec: Any) -> Obj:
    """A pod that asks for one slice, or for `limits`."""
    limits = {"lab.example/vgpu": "1", "lab.example/vgpu-mem": "4096"} if limits is None else limits
    container = {"name": "c", "image": "x:1", "command": ["sleep", "9"], "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def condition(obj: Obj) -> Obj:
    """The PodScheduled condition, or nothing."""
    found = [c for c in dig(obj, "status.conditions") or () if c["type"] == "PodScheduled"]
    return found[0] if found else {}


def is_rejected(obj: Obj) -> bool:
    """Whether the scheduler has said no."""
    return condition(obj).get("status") == "False"


def shape(value: Any, path: str = "") -> set[str]:
    """Every path of a JSON value with its type; list items share one path."""
    if isinstance(value, dict):
        return {line for key, part in value.items() for line in shape(part, f"{path}/{key}")}
    if isinstance(value, list):
        return {line for part in value for line in shape(part, f"{path}[]")}
    return {f"{path}: {type(value).__name__}"}


def captured(name: str) -> Obj:
    """A body that a real scheduler sent, for a pod without a service account's token."""
    body: Obj = json.loads((WIRE / f"{name}.json").read_text())
    if "Pod" in body:  # A service account's token volume, which the pocket cluster does not mount.
        body["Pod"]["spec"].pop("volumes", None)
        for container in body["Pod"]["spec"]["containers"]:
            container.pop("volumeMounts", None)
    return body


def test_bodies_are_those_of_kube_scheduler(cluster: PocketCluster, extender: FakeExtender) -> None:
    """Filter's and bind's bodies have the captured ones' keys and types, in their order at the top."""
    cluster.kubectl.create(pod("low1"))
    wait_for("a bind", lambda: "bind" in extender.verbs("low1"))
    calls = {verb: body for verb, body in extender.calls if "low1" in json.dumps(body)}
    for verb in ("filter", "bind"):
        wire = captured(f"extender-{verb}")
        assert list(calls[verb]) == list(wire)
        assert shape(calls[verb]) == shape(wire)
    assert calls["filter"]["Nodes"] is None
    assert calls["filter"]["NodeNames"] == ["fake1", "fake2"]


def test_order_of_calls(cluster: PocketCluster, extender: FakeExtender) -> None:
    """Filter, prioritize when several nodes are left, bind at the best; no prioritize when one is left."""
    cluster.kubectl.create(pod("many"))
    wait_for("a bind", lambda: "bind" in extender.verbs("many"))
    assert extender.verbs("many") == ["filter", "prioritize", "bind"]
    assert next(b["Node"] for v, b in extender.calls if v == "bind" and b["PodName"] == "many") == "fake2"
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"][:1]}
    cluster.kubectl.create(pod("one"))
    wait_for("a bind", lambda: "bind" in extender.verbs("one"))
    assert extender.verbs("one") == ["filter", "bind"]


def test_pods_without_managed_resources_never_reach_the_extender(
    cluster: PocketCluster, extender: FakeExtender
) -> None:
    """Such a pod is bound by the scheduler itself, and an event says where."""
    cluster.kubectl.create(pod("plain", limits={"cpu": "1"}))
    bound = cluster.kubectl.wait_for("pods", "plain", lambda obj: obj["spec"].get("nodeName"))
    assert extender.verbs("plain") == []
    text = f"Scheduled: Successfully assigned default/plain to {bound['spec']['nodeName']}"
    wait_for("the event", lambda: text in cluster.kubectl.events("plain"))


def test_events_are_those_of_the_pod_that_has_the_name_now(
    cluster: PocketCluster, extender: FakeExtender
) -> None:
    """Not of one before it; of a pod that is gone they are told yet."""
    extender.answers["filter"] = deny_all
    cluster.kubectl.create(pod("again"))
    wait_for("the event", lambda: cluster.kubectl.events("again"))
    cluster.kubectl.delete("pods", "again", grace=0)
    cluster.kubectl.wait_gone("pods", "again")
    assert cluster.kubectl.events("again")
    cluster.kubectl.create(pod("again", schedulerName="nobody"))
    assert cluster.kubectl.events("again") == []


def test_in_tree_filters_come_first(cluster: PocketCluster, extender: FakeExtender) -> None:
    """With no node left by the in-tree filters the extender is not asked, and reasons are counted."""
    cluster.kubectl.create(pod("greedy", limits={"lab.example/vgpu": "9"}))
    text = condition(cluster.kubectl.wait_for("pods", "greedy", is_rejected))["message"]
    assert text.startswith("0/2 nodes are available: 2 Insufficient lab.example/vgpu. ")
    assert text.endswith("2 Preemption is not helpful for scheduling.")
    assert extender.verbs("greedy") == []
    cluster.kubectl.create(pod("picky", nodeSelector={"kubernetes.io/hostname": "fake1"}))
    wait_for("a filter", lambda: extender.verbs("picky"))
    assert next(b for v, b in extender.calls if dig(b, "Pod.metadata.name") == "picky")["NodeNames"] == [
        "fake1"
    ]


def test_reasons_of_the_extender_are_counted(cluster: PocketCluster, extender: FakeExtender) -> None:
    """FailedNodes end up, added up, in the condition and the event, in the captured sentence."""
    extender.answers["filter"] = deny_all
    cluster.kubectl.create(pod("deny"))
    rejected = condition(cluster.kubectl.wait_for("pods", "deny", is_rejected))
    expected = (
        "0/2 nodes are available: 2 card fragmentation (lab). no new claims to deallocate, preemption:"
        " 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    assert (rejected["reason"], rejected["message"]) == ("Unschedulable", expected)
    wait_for("the event", lambda: f"FailedScheduling: {expected}" in cluster.kubectl.events("deny"))


@pytest.mark.parametrize(
    ("verb", "answer", "text"),
    [
        ("filter", lambda _: {"Error": "extender says no way"}, "extender says no way"),
        ("filter", 500, "failed filter with extender at URL {url}/filter, code 500"),
        ("filter", "close", 'Post "{url}/filter": EOF'),
        (
            "filter",
            "hang",
            'Post "{url}/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
        ),
        ("bind", lambda _: {"Error": "bind refused (lab)"}, "bind refused (lab)"),
        ("bind", 500, "failed bind with extender at URL {url}/bind, code 500"),
    ],
)
def test_failures_are_told_and_tried_again(
    cluster: PocketCluster, extender: FakeExtender, verb: str, answer: Any, text: str
) -> None:
    """Each failure has the captured wording under SchedulerError, and the pod is tried again by itself."""
    extender.answers[verb] = answer
    cluster.kubectl.create(pod("failing"))
    rejected = condition(cluster.kubectl.wait_for("pods", "failing", is_rejected))
    assert (rejected["reason"], rejected["message"]) == ("SchedulerError", text.format(url=extender.url))
    before = extender.verbs("failing").count("bind")
    extender.answers.clear()
    wait_for("a new bind", lambda: extender.verbs("failing").count("bind") > before)


def test_prioritize_may_fail(cluster: PocketCluster, extender: FakeExtender) -> None:
    """An error of prioritize is ignored."""
    extender.answers["prioritize"] = 500
    cluster.kubectl.create(pod("scoreless"))
    wait_for("a bind", lambda: "bind" in extender.verbs("scoreless"))


def test_a_change_in_the_cluster_wakes_rejected_pods(cluster: PocketCluster, extender: FakeExtender) -> None:
    """A rejected pod is not tried again by itself, and is when its own annotations change."""
    extender.answers["filter"] = deny_all
    cluster.kubectl.create(pod("sleeper"))
    cluster.kubectl.wait_for("pods", "sleeper", is_rejected)
    tries = len(extender.verbs("sleeper"))
    extender.answers.clear()
    cluster.kubectl.patch("pods", "sleeper", {"metadata": {"annotations": {"touched": "1"}}})
    wait_for("a bind", lambda: "bind" in extender.verbs("sleeper"))
    assert extender.verbs("sleeper")[:tries] == ["filter"] * tries


def test_assumed_pods_count(cluster: PocketCluster, extender: FakeExtender) -> None:
    """A pod being bound takes its native share at once: a ninth of eight slots finds no room."""
    for number in range(8):
        cluster.kubectl.create(pod(f"fill{number}", limits={"lab.example/vgpu": "1"}))
    wait_for(
        "eight binds",
        lambda: sum(v == "bind" and b["PodName"].startswith("fill") for v, b in extender.calls) == 8,
    )
    cluster.kubectl.create(pod("ninth", limits={"lab.example/vgpu": "1"}))
    text = condition(cluster.kubectl.wait_for("pods", "ninth", is_rejected))["message"]
    assert "2 Insufficient lab.example/vgpu" in text
    assert text.endswith("2 No preemption victims found for incoming pod.")


def test_a_scheduler_that_was_killed_goes_on(cluster: PocketCluster, extender: FakeExtender) -> None:
    """Pods created while no scheduler runs are scheduled by the next one."""
    cluster.kill("scheduler")
    cluster.kubectl.create(pod("patient", limits={"cpu": "1"}))
    cluster.restart("scheduler")
    cluster.kubectl.wait_for("pods", "patient", lambda obj: obj["spec"].get("nodeName"))
