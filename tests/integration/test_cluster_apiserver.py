"""The pocket cluster's API server, asked over HTTPS as any client would."""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from aliquot.sandbox.cluster.client import ApiError, Credentials
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.kubectl import Kubectl

Obj = dict[str, Any]

UNSERVED = (
    ("/apis/not.there", "404 page not found"),
    ("/apis/not.there/v1/things", "404 page not found"),
    ("/nothing", "404 page not found"),
    ("/apis/apps/v9", "the server could not find the requested resource"),
    ("/apis/apps/v1/things", "the server could not find the requested resource"),
    ("/api/v1/namespaces/default/things", "the server could not find the requested resource"),
)
"""Paths that lead nowhere, and what kube-apiserver 1.37 says of each: tests/cluster/test_control_plane.py asks it."""


def pod(name: str = "", **changes: Any) -> Obj:
    """A pod that asks for one slice; `limits`, or fields of its spec."""
    limits = changes.pop("limits", {"lab.example/vgpu": "1"})
    container = {"name": "main", "image": "x:1", "command": ["sleep", "9"], "resources": {"limits": limits}}
    spec = {"containers": [container], **changes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server alone, with a short history."""
    with PocketCluster(tmp_path_factory.mktemp("api")) as cluster:
        cluster.start_apiserver("--history", "50")
        yield cluster


@pytest.fixture
def kubectl(cluster: PocketCluster) -> Kubectl:
    """The cluster's client."""
    return cluster.kubectl


def bind(kubectl: Kubectl, name: str, uid: str, node: str = "n1", **metadata: Any) -> Obj:
    """Bind a pod as a scheduler does."""
    body = {"metadata": {"name": name, "uid": uid, **metadata}, "target": {"kind": "Node", "name": node}}
    return kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)


class Stream:
    """A watch, read line by line with a deadline."""

    def __init__(self, cluster: PocketCluster, path: str, **query: str) -> None:
        credentials = Credentials.of_kubeconfig(cluster.kubeconfig)
        pool = urllib3.PoolManager(ssl_context=credentials.trust(), retries=False)
        query = {"watch": "true", "timeoutSeconds": "20", **query}
        headers = {"Authorization": f"Bearer {credentials.token}"}
        url = credentials.server + path
        self._reply = pool.request(
            "GET", url, fields=query, headers=headers, preload_content=False, timeout=20
        )
        self._lines = self._read()

    def _read(self) -> Iterator[Obj]:
        rest = b""
        for chunk in self._reply.stream(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)

    def next(self) -> Obj:
        """The next event."""
        return next(self._lines)

    def close(self) -> None:
        """Leave."""
        self._reply.close()


def test_defaults_of_a_pod_are_filled_in(kubectl: Kubectl) -> None:
    """A created pod has what a real API server adds: requests, policies, uid, phase, canonical quantities."""
    created = kubectl.create(pod("defaults", limits={"lab.example/vgpu": 1, "lab.example/mem": "8192Mi"}))
    resources = created["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"lab.example/vgpu": "1", "lab.example/mem": "8Gi"}
    assert created["spec"]["schedulerName"] == "default-scheduler"
    assert created["spec"]["restartPolicy"] == "Always"
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["metadata"]["uid"]


@pytest.mark.parametrize(("path", "said"), UNSERVED)
def test_a_path_that_is_not_served(kubectl: Kubectl, path: str, said: str) -> None:
    """Without its group there is no Status object but plain text, which the client reads as well."""
    with pytest.raises(ApiError) as caught:
        kubectl.request("GET", path)
    assert (caught.value.status, str(caught.value)) == (404, said)


def test_generate_name(kubectl: Kubectl) -> None:
    """A name is made up after metadata.generateName."""
    obj = pod()
    obj["metadata"] = {"generateName": "some-", "namespace": "default"}
    assert kubectl.create(obj)["metadata"]["name"].startswith("some-")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"limits": {"lab.example/vgpu": "0.5"}}, 422, 'Invalid value: "500m": must be an integer'),
        ({"limits": {"lab.example/vgpu": "-1"}}, 422, "must be greater than or equal to 0"),
        ({"limits": {"lab.example/vgpu": "1e9Ei"}}, 400, "quantities must match the regular expression"),
        ({"limits": {"vgpu": "1"}}, 422, "must be a standard resource type or fully qualified"),
        ({"restartPolicy": "Sometimes"}, 422, 'spec.restartPolicy: Unsupported value: "Sometimes"'),
        ({"containers": []}, 422, "spec.containers: Required value"),
    ],
)
def test_a_pod_that_is_wrong_is_refused(kubectl: Kubectl, change: Obj, code: int, message: str) -> None:
    """Invalid pods get the real server's code and sentence, and are not stored."""
    with pytest.raises(ApiError) as caught:
        kubectl.create(pod("wrong", **change))
    assert caught.value.status == code
    assert message in str(caught.value)
    assert kubectl.find("pods", "wrong") is None


def test_extended_resource_without_limit_is_refused(kubectl: Kubectl) -> None:
    """An extended resource in requests alone is refused, as it cannot be overcommitted."""
    obj = pod("no-limit")
    obj["spec"]["containers"][0]["resources"] = {"requests": {"lab.example/vgpu": "1"}}
    with pytest.raises(ApiError, match="Limit must be set for non overcommitable resources"):
        kubectl.create(obj)


def test_a_name_can_be_taken_once(kubectl: Kubectl) -> None:
    """A second create under the same name is 409 AlreadyExists."""
    kubectl.create(pod("twice"))
    with pytest.raises(ApiError) as caught:
        kubectl.create(pod("twice"))
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")


def test_replace_needs_the_latest_version(kubectl: Kubectl) -> None:
    """A PUT with an old resourceVersion is 409 Conflict and changes nothing."""
    obj = kubectl.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    )
    path = "/api/v1/namespaces/default/configmaps/c"
    kubectl.request("PUT", path, {**obj, "data": {"a": "2"}})
    with pytest.raises(ApiError) as caught:
        kubectl.request("PUT", path, {**obj, "data": {"a": "3"}})
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert kubectl.get("configmaps", "c")["data"] == {"a": "2"}


def test_binding_sets_node_annotations_and_labels_in_one_write(kubectl: Kubectl) -> None:
    """A Binding merges its annotations and labels into the pod with spec.nodeName, in one resourceVersion."""
    obj = pod("bound")
    obj["metadata"]["annotations"] = {"kept": "yes"}
    created = kubectl.create(obj)
    uid, version = created["metadata"]["uid"], int(created["metadata"]["resourceVersion"])
    bind(kubectl, "bound", uid, annotations={"place": "here"}, labels={"l": "1"})
    bound = kubectl.get("pods", "bound")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"kept": "yes", "place": "here"}
    assert bound["metadata"]["labels"] == {"l": "1"}
    assert int(bound["metadata"]["resourceVersion"]) == version + 1
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"


def test_binding_is_guarded(kubectl: Kubectl) -> None:
    """A Binding with another UID, or of a pod that is bound, is 409 and changes nothing."""
    uid = kubectl.create(pod("guarded"))["metadata"]["uid"]
    with pytest.raises(ApiError) as caught:
        bind(kubectl, "guarded", "another", annotations={"x": "y"})
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert "nodeName" not in kubectl.get("pods", "guarded")["spec"]
    bind(kubectl, "guarded", uid)
    with pytest.raises(ApiError, match='already assigned to node "n1"') as caught:
        bind(kubectl, "guarded", uid, node="n2")
    assert caught.value.status == 409


def test_pod_spec_is_immutable(kubectl: Kubectl) -> None:
    """An update may not change a pod's resources; annotations may change."""
    kubectl.create(pod("fixed"))
    kubectl.patch("pods", "fixed", {"metadata": {"annotations": {"a": "b"}}})
    with pytest.raises(ApiError, match="pod updates may not change fields") as caught:
        kubectl.patch("pods", "fixed", {"spec": {"restartPolicy": "Never"}})
    assert caught.value.status == 422


def test_status_and_spec_are_apart(kubectl: Kubectl) -> None:
    """The status subresource changes the status alone; the object's own path leaves the status alone."""
    kubectl.create(pod("parts"))
    path = "/api/v1/namespaces/default/pods/parts"
    merge = "application/merge-patch+json"
    kubectl.request("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, media_type=merge)
    kubectl.request("PATCH", path, {"status": {"phase": "Failed"}}, media_type=merge)
    assert kubectl.get("pods", "parts")["status"]["phase"] == "Running"


def test_apply_says_who_applies(kubectl: Kubectl) -> None:
    """Server-side apply without a field manager is refused, as the real server refuses it."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody"}}
    path = "/api/v1/namespaces/default/configmaps/nobody"
    with pytest.raises(ApiError, match="fieldManager: Required value: is required for apply patch") as caught:
        kubectl.request("PATCH", path, settings, media_type="application/apply-patch+yaml")
    assert caught.value.status == 422
    kubectl.request("PATCH", path, settings, {"fieldManager": "me"}, "application/apply-patch+yaml")


def test_strategic_merge_patches_lists_by_key(kubectl: Kubectl) -> None:
    """Conditions are merged by type, as a kubelet's and a scheduler's writes need."""
    kubectl.create(pod("conditions"))
    path = "/api/v1/namespaces/default/pods/conditions/status"
    strategic = "application/strategic-merge-patch+json"
    for kind, status in (("A", "True"), ("B", "False"), ("A", "False")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        kubectl.request("PATCH", path, patch, media_type=strategic)
    conditions = kubectl.get("pods", "conditions")["status"]["conditions"]
    assert [(c["type"], c["status"]) for c in conditions] == [("A", "False"), ("B", "False")]


def test_graceful_deletion_waits_for_the_kubelet(kubectl: Kubectl) -> None:
    """A bound pod keeps its object with a deletionTimestamp until it is deleted with grace 0."""
    bind(kubectl, "leaving", kubectl.create(pod("leaving"))["metadata"]["uid"])
    kubectl.delete("pods", "leaving", grace=7)
    leaving = kubectl.get("pods", "leaving")["metadata"]
    assert leaving["deletionTimestamp"]
    assert leaving["deletionGracePeriodSeconds"] == 7
    kubectl.delete("pods", "leaving", grace=0)
    assert kubectl.find("pods", "leaving") is None
    kubectl.create(pod("unbound"))
    kubectl.delete("pods", "unbound")
    assert kubectl.find("pods", "unbound") is None


def test_finalizers_hold_an_object(kubectl: Kubectl) -> None:
    """An object with finalizers goes only when the last one is removed."""
    metadata = {"name": "held", "finalizers": ["x.example/y"]}
    kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    kubectl.delete("configmaps", "held")
    assert kubectl.get("configmaps", "held")["metadata"]["deletionTimestamp"]
    kubectl.patch("configmaps", "held", {"metadata": {"finalizers": None}})
    assert kubectl.find("configmaps", "held") is None


def test_selectors(kubectl: Kubectl) -> None:
    """Lists are filtered by labels and by the fields that Kubernetes allows."""
    for name, labels in (("s1", {"a": "1"}), ("s2", {"a": "2", "b": ""}), ("s3", {})):
        obj = pod(name)
        obj["metadata"]["labels"] = labels | {"group": "selectors"}
        bind(kubectl, name, kubectl.create(obj)["metadata"]["uid"], node=f"node-{name}")

    def names(**query: str) -> list[str]:
        return [
            o["metadata"]["name"] for o in kubectl.list("pods", **query) if o["metadata"]["name"][0] == "s"
        ]

    assert names(labelSelector="a in (1,2),!b") == ["s1"]
    assert names(labelSelector="group=selectors,a!=1") == ["s2", "s3"]
    assert names(fieldSelector="spec.nodeName=node-s3") == ["s3"]
    assert names(fieldSelector="metadata.name=s2,status.phase=Pending") == ["s2"]
    with pytest.raises(ApiError, match=r"field label not supported: spec\.containers") as caught:
        names(fieldSelector="spec.containers=1")
    assert caught.value.status == 400


def test_watch_sees_objects_enter_and_leave_its_selection(cluster: PocketCluster, kubectl: Kubectl) -> None:
    """A watch with a field selector gets ADDED when a pod is bound to its node, DELETED when it is gone."""
    stream = Stream(cluster, "/api/v1/pods", fieldSelector="spec.nodeName=w1", allowWatchBookmarks="true")
    bind(kubectl, "watched", kubectl.create(pod("watched"))["metadata"]["uid"], node="w1")
    kubectl.patch("pods", "watched", {"metadata": {"annotations": {"x": "1"}}})
    kubectl.delete("pods", "watched", grace=0)
    seen = [stream.next() for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    stream.close()


def test_watch_resumes_after_a_restart(cluster: PocketCluster, kubectl: Kubectl) -> None:
    """A SIGKILL of the server loses nothing: objects, versions and the history that watches resume from."""
    before = kubectl.create(pod("durable"))
    version = before["metadata"]["resourceVersion"]
    kubectl.create(pod("later"))
    cluster.kill("apiserver")
    with pytest.raises(ApiError):
        kubectl.get("pods", "durable")
    cluster.restart("apiserver")
    assert kubectl.get("pods", "durable") == before
    stream = Stream(cluster, "/api/v1/namespaces/default/pods", resourceVersion=version)
    event = stream.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "later")
    stream.close()


def test_a_torn_journal_line_is_dropped(cluster: PocketCluster, kubectl: Kubectl) -> None:
    """What a kill left half written was never answered, and does not stop the server from starting."""
    kept = kubectl.create(pod("kept"))
    cluster.kill("apiserver")
    with (cluster.root / "apiserver/store/journal.jsonl").open("ab") as journal:
        journal.write(b'{"v":999999,"t":"ADD')
    cluster.restart("apiserver")
    assert kubectl.get("pods", "kept") == kept
    later = kubectl.create(pod("after-torn"))
    cluster.restart("apiserver")
    assert kubectl.get("pods", "after-torn") == later


def test_history_is_bounded(cluster: PocketCluster, kubectl: Kubectl) -> None:
    """A watch from before the history gets an ERROR event 410 Expired."""
    obj = kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "busy"}})
    for number in range(60):
        kubectl.patch("configmaps", "busy", {"data": {"n": str(number)}})
    stream = Stream(cluster, "/api/v1/configmaps", resourceVersion=obj["metadata"]["resourceVersion"])
    event = stream.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    stream.close()


def test_bookmark_at_the_end_of_a_watch(cluster: PocketCluster, kubectl: Kubectl) -> None:
    """A watch that times out ends with a bookmark of the newest version."""
    version = kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mark"}})
    stream = Stream(
        cluster,
        "/api/v1/nodes",
        timeoutSeconds="1",
        allowWatchBookmarks="true",
        resourceVersion=version["metadata"]["resourceVersion"],
    )
    event = stream.next()
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version["metadata"]["resourceVersion"])


def test_custom_resources(kubectl: Kubectl) -> None:
    """A CustomResourceDefinition serves its kind: pruned, defaulted, validated, with a status apart."""
    properties = {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}}},
        "status": {"type": "object", "properties": {"seen": {"type": "string"}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget"}
    kubectl.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.lab.example"},
            "spec": {"group": "lab.example", "scope": "Cluster", "names": names, "versions": [version]},
        }
    )
    widget = {"apiVersion": "lab.example/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"odd": 1}}
    created = kubectl.create({**widget, "status": {"seen": "no"}})
    assert created["spec"] == {"size": 3}
    assert "status" not in created
    path = "/apis/lab.example/v1/widgets/w"
    merge = "application/merge-patch+json"
    patched = kubectl.request("PATCH", f"{path}/status", {"status": {"seen": "yes"}}, media_type=merge)
    assert (patched["status"], patched["metadata"]["generation"]) == ({"seen": "yes"}, 1)
    assert kubectl.patch("widgets.lab.example", "w", {"spec": {"size": 5}})["metadata"]["generation"] == 2
    with pytest.raises(ApiError, match="greater than or equal to 1"):
        kubectl.patch("widgets.lab.example", "w", {"spec": {"size": 0}})
    kubectl.delete("customresourcedefinitions.apiextensions.k8s.io", "widgets.lab.example")
    with pytest.raises(ApiError):
        kubectl.request("GET", path)


def test_no_token_no_answer(cluster: PocketCluster) -> None:
    """A request without the bearer token is 401; health checks are open."""
    credentials = Credentials.of_kubeconfig(cluster.kubeconfig)
    with urllib3.PoolManager(ssl_context=credentials.trust(), retries=False) as pool:
        assert pool.request("GET", f"{credentials.server}/api/v1/pods").status == 401
        assert pool.request("GET", f"{credentials.server}/readyz").status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"kind":"Node"}', b'{"metadata": 5}'])
def test_unreadable_bodies_are_refused(cluster: PocketCluster, body: bytes) -> None:
    """Bytes that are no pod are 400, never 500."""
    credentials = Credentials.of_kubeconfig(cluster.kubeconfig)
    with urllib3.PoolManager(ssl_context=credentials.trust(), retries=False) as pool:
        headers = {"Authorization": f"Bearer {credentials.token}", "Content-Type": "application/json"}
        url = f"{credentials.server}/api/v1/namespaces/default/pods"
        reply = pool.request("POST", url, body=body, headers=headers)
    assert reply.status in (400, 422)
    assert reply.json()["kind"] == "Status"


def test_concurrent_patches_all_arrive(kubectl: Kubectl, cluster: PocketCluster) -> None:
    """Patches without a resourceVersion never conflict: each is applied to what is there."""
    kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}})

    def write(key: str) -> None:
        kubectl.patch("configmaps", "shared", {"data": {key: "1"}})

    threads = [threading.Thread(target=write, args=(f"k{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = wait_for("all keys", lambda: kubectl.get("configmaps", "shared").get("data"))
    assert len(data) == 8


def test_secret_string_data(kubectl: Kubectl) -> None:
    """A Secret's stringData is stored encoded."""
    obj = kubectl.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    )
    assert obj["data"] == {"k": base64.b64encode(b"v").decode()}
    assert "stringData" not in obj
