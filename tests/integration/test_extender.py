"""The extender as a process against the pocket cluster's API server, called as kube-scheduler calls it."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.server.certs import write_pair
from tests.integration.extenders import (
    GPU,
    MEM,
    Document,
    Extender,
    add_node,
    create,
    fresh_nodes,
    manifest,
    no_nodes,
    patch_status,
    publish,
)

ROOT = Path(__file__).parents[2]
FILTER = json.loads((ROOT / "tests/data/wire/extender-filter.json").read_text())
BIND = json.loads((ROOT / "tests/data/wire/extender-bind.json").read_text())
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
PLACEMENT = "aliquot.dev/placement"


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes."""
    with no_nodes(tmp_path_factory.mktemp("c")) as cluster:
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """One extender for all tests here; some of them kill it and start it again."""
    extender = Extender(cluster)
    extender.start()
    yield extender
    extender.process.stop()


@pytest.fixture(name="nodes")
def make_nodes(running: Extender) -> Iterator[list[str]]:
    """Two nodes with two cards of 16 GiB each, and no pods."""
    with fresh_nodes(running) as names:
        yield names


@pytest.fixture(name="extender")
def see_nodes(running: Extender, nodes: list[str]) -> Extender:
    """The extender, which has seen this test's nodes."""
    return running


def stored(cluster: PocketCluster, pod: Document) -> Document:
    """A pod as it is now."""
    return cluster.kubectl.get("pods", pod["metadata"]["name"])


def cards(pod: Document) -> list[str]:
    """UUIDs in a stored pod's placement."""
    placement = json.loads(pod["metadata"]["annotations"][PLACEMENT])
    assert placement["podUID"] == pod["metadata"]["uid"]
    assert placement["node"] == pod["spec"]["nodeName"]
    return [share["uuid"] for container in placement["containers"] for share in container["cards"]]


def test_the_journey_of_a_pod(cluster: PocketCluster, extender: Extender):
    """Filter names one node and reserves; bind writes node and placement at once."""
    pod = create(cluster)
    assert extender.filter(pod, "n1", "n2") == {"NodeNames": ["n1"]}
    assert extender.promised() == {"n1-a": 4096}
    assert "nodeName" not in stored(cluster, pod)["spec"]
    assert extender.bind(pod, "n1") == ""
    assert cards(stored(cluster, pod)) == ["n1-a"]
    assert extender.promised() == {"n1-a": 4096}


def test_a_pod_that_goes_frees_its_card(cluster: PocketCluster, extender: Extender):
    """Deleted before or after its bind, or finished: the ledger follows the watch."""
    waiting, bound, done = create(cluster), create(cluster), create(cluster)
    for pod in (waiting, bound, done):
        extender.filter(pod, "n1")
    for pod in (bound, done):
        assert extender.bind(pod, "n1") == ""
    for pod in (waiting, bound):
        cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    path = f"/api/v1/namespaces/default/pods/{done['metadata']['name']}"
    patch_status(cluster, path, {"phase": "Succeeded"})
    wait_for("all cards to be free", lambda: extender.promised() == {})
    assert "deleted" in extender.filter(waiting, "n1")["Error"]
    assert extender.bind(waiting, "n1") != ""


def test_captured_calls_are_understood(cluster: PocketCluster, extender: Extender):
    """The bodies of a real kube-scheduler, with our resource for the laboratory's."""
    body = copy.deepcopy(FILTER)
    resources = {"limits": {MEM: "4Gi"}, "requests": {MEM: "4Gi"}}
    body["Pod"]["spec"]["containers"][0]["resources"] = resources
    body["NodeNames"] = ["n2", "n1"]
    assert extender.post("/filter", body) == (200, {"NodeNames": ["n1"]})
    status, answer = extender.post("/bind", {**BIND, "Node": "n1"})
    assert status == 200
    assert "default/low1" in answer["Error"]  # this cluster has no such pod
    assert extender.promised() == {}


BAD = {
    "cut short": json.dumps(FILTER).encode()[:700],
    "empty": b"",
    "no JSON": b"hello",
    "a pod without a UID": json.dumps({"Pod": {"metadata": {"name": "x"}}, "NodeNames": []}).encode(),
    "nodes instead of names": json.dumps({**FILTER, "NodeNames": None, "Nodes": {"items": []}}).encode(),
    "no object": b"[1, 2]",
    "nested without end": b'{"x":' * 100_000,
    "nested where nobody looks": b'{"PodName": "x", "y": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_bad_bodies_change_nothing(cluster: PocketCluster, extender: Extender, verb: str, body: bytes):
    """HTTP 400 and a sentence; reservations stay as they were."""
    pod = create(cluster)
    extender.filter(pod, "n1")
    status, answer = extender.post(f"/{verb}", body)
    assert status == 400
    assert answer["Error"]
    assert extender.promised() == {"n1-a": 4096}


def test_reasons_add_up(cluster: PocketCluster, extender: Extender):
    """Nodes of a kind have the same text, in the map that says whether preemption could help."""
    add_node(cluster, "n3", [])
    add_node(cluster, "n4", ["n4-a"], health="Unhealthy", reason="XID 79")
    for name in ("n1", "n2"):
        for _ in range(2):
            assert extender.bind(create(cluster, gib=15), name) == ""
    wait_for("n4 to be known", lambda: "n4-a" in extender.known())
    assert extender.filter(create(cluster, gib=4), "n1", "n2", "n3", "n4") == {
        "NodeNames": [],
        "FailedNodes": dict.fromkeys(["n1", "n2"], "short of memory on every card"),
        "FailedAndUnresolvableNodes": {"n3": "node has no Aliquot agent", "n4": "card unhealthy"},
    }


def test_a_request_that_passed_by_the_webhook_is_refused_in_words(cluster: PocketCluster, extender: Extender):
    """No node can cure a request that makes no sense."""
    pod = create(cluster)
    pod["spec"]["containers"][0]["resources"] = {"limits": {MEM: "4096"}}
    (text,) = extender.filter(pod, "n1")["FailedAndUnresolvableNodes"].values()
    assert "did you mean 4096Mi?" in text


def test_a_pod_of_others_passes(cluster: PocketCluster, extender: Extender):
    """A pod without slices may go anywhere and is bound without cards."""
    pod = create(cluster, containers=[{"name": "main", "image": "x"}])
    assert extender.filter(pod, "n1", "n9") == {"NodeNames": ["n1", "n9"]}
    assert extender.bind(pod, "n2") == ""
    assert "annotations" not in stored(cluster, pod)["metadata"]


@pytest.mark.slow
def test_killed_at_any_step_it_loses_nothing(cluster: PocketCluster, extender: Extender):
    """SIGKILL before filter, between filter and bind, and after bind; the next process goes on."""
    pod, later = create(cluster, gib=12), create(cluster, gib=12)
    restart(extender)
    extender.filter(pod, "n1")
    restart(extender)
    assert extender.bind(pod, "n1") == ""
    restart(extender)
    assert extender.promised() == {"n1-a": 12288}
    assert extender.bind(pod, "n1") == ""
    assert extender.filter(later, "n1") == {"NodeNames": ["n1"]}
    assert extender.bind(later, "n1") == ""
    assert cards(stored(cluster, later)) == ["n1-b"]


def restart(extender: Extender) -> None:
    """SIGKILL, and a fresh process."""
    extender.process.kill()
    extender.start()


def test_pods_from_before_the_webhook_are_told(cluster: PocketCluster, extender: Extender):
    """No scheduler asks Aliquot for them; pods that ask for no slice, or of our scheduler, are not told."""
    missed = create(cluster, schedulerName="default-scheduler")["metadata"]["name"]
    seen = create(cluster)["metadata"]["name"]
    plain = manifest(schedulerName="default-scheduler")
    plain["spec"]["containers"][0]["resources"] = {}
    cluster.kubectl.create(plain)
    extender.process.kill()
    extender.start()
    wait_for("the event", lambda: cluster.kubectl.events(missed))
    (event,) = cluster.kubectl.events(missed)
    assert event == (
        "PastWebhook: schedulerName is default-scheduler, which does not ask Aliquot: the pod was made while the "
        "webhook was away, and waits for ever; delete it and make it anew"
    )
    assert not cluster.kubectl.events(seen)
    assert not cluster.kubectl.events(plain["metadata"]["name"])


def test_a_bind_repeated_elsewhere_is_refused(cluster: PocketCluster, extender: Extender):
    """A pod is bound once."""
    pod = create(cluster)
    assert extender.bind(pod, "n1") == ""
    assert "bound to n1 already" in extender.bind(pod, "n2")
    assert extender.filter(pod, "n1", "n2") == {"NodeNames": ["n1"]}
    assert "n1" in extender.filter(pod, "n2")["Error"]


def test_a_pod_bound_by_somebody_else_is_not_claimed(cluster: PocketCluster, extender: Extender):
    """Without a placement in the pod there is no success to report."""
    pod = create(cluster)
    extender.filter(pod, "n1")
    name = pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    cluster.kubectl.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", binding)
    assert "somebody else" in extender.bind(pod, "n1")
    wait_for("the reservation to go", lambda: extender.promised() == {})


def test_a_pod_made_anew_under_its_name_is_another(cluster: PocketCluster, extender: Extender):
    """The UID tells them apart: the old one's bind is refused, the new one is placed for itself."""
    old = create(cluster, name="twin")
    extender.filter(old, "n1")
    cluster.kubectl.delete("pods", "twin", grace=0)
    new = create(cluster, gib=8, name="twin")
    assert "twin" in extender.bind(old, "n1")
    assert extender.bind(new, "n1") == ""
    wait_for("the old one to be forgotten", lambda: extender.promised() == {"n1-a": 8192})


def test_a_card_that_breaks_between_filter_and_bind_is_left(cluster: PocketCluster, extender: Extender):
    """Bind looks at the cards again and takes another one of that node."""
    pod = create(cluster)
    extender.filter(pod, "n1")
    broken = {"uuid": "n1-a", "index": 0, "memoryMiB": 16384, "health": "Unhealthy"}
    both = {GPU: "2", MEM: "1Gi"}
    probe = manifest(
        containers=[{"name": "main", "image": "x", "resources": {"limits": both, "requests": both}}]
    )
    asked = {"Pod": probe, "NodeNames": ["n1"]}
    assert extender.post("/filter-dryrun", asked)[1]["NodeNames"] == ["n1"]
    publish(cluster, "n1", [broken, {"uuid": "n1-b", "index": 1, "memoryMiB": 16384}])
    wait_for("the news", lambda: not extender.post("/filter-dryrun", asked)[1]["NodeNames"])
    assert extender.bind(pod, "n1") == ""
    assert cards(stored(cluster, pod)) == ["n1-b"]


def test_before_it_knows_the_cluster_it_answers_errors(cluster: PocketCluster, nodes: list[str]):
    """While the API server is away a fresh extender is alive, not ready, and makes no guess."""
    pod = create(cluster)
    extender = Extender(cluster)
    cluster.kill("apiserver")
    try:
        extender.process.start()
        assert extender.get("/readyz").status == 503
        assert "not read yet" in extender.filter(pod, "n1")["Error"]
        assert "not read yet" in extender.bind(pod, "n1")
        cluster.restart("apiserver")
        wait_for("the extender to be ready", lambda: extender.get("/readyz").status == 200)
        assert extender.filter(pod, "n1") == {"NodeNames": ["n1"]}
    finally:
        if not cluster.processes["apiserver"].running:
            cluster.restart("apiserver")
        extender.process.stop()


def test_while_the_api_server_is_away_bind_fails_and_the_place_is_kept(
    cluster: PocketCluster, extender: Extender
):
    """Nobody knows what became of the write; the card stays taken until the retry."""
    pod = create(cluster)
    extender.filter(pod, "n1")
    cluster.kill("apiserver")
    try:
        assert extender.bind(pod, "n1") != ""
        assert extender.promised() == {"n1-a": 4096}
    finally:
        cluster.restart("apiserver")
    assert extender.bind(pod, "n1") == ""
    assert cards(stored(cluster, pod)) == ["n1-a"]


def test_https_and_metrics(cluster: PocketCluster, nodes: list[str], tmp_path: Path):
    """The same over TLS; every call is counted and timed."""
    pair = write_pair(tmp_path, ["127.0.0.1"])
    extender = Extender(cluster, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), scheme="https")
    extender.pool = urllib3.PoolManager(ca_certs=str(pair.ca), retries=False)
    try:
        extender.start()
        pod = create(cluster)
        extender.filter(pod, "n1")
        waiting = extender.get("/metrics").data.decode()
        assert extender.bind(pod, "n1") == ""
        text = extender.get("/metrics").data.decode()
    finally:
        extender.process.stop()
    assert 'aliquot_scheduler_placements{stage="reserved"} 1.0' in waiting
    assert 'aliquot_filter_seconds_count{outcome="placed"} 1.0' in text
    assert 'aliquot_bind_seconds_count{outcome="ok"} 1.0' in text
    assert 'aliquot_scheduler_placements{stage="reserved"} 0.0' in text


@pytest.fixture(name="scheduled")
def run_scheduler(cluster: PocketCluster, extender: Extender) -> Iterator[PocketCluster]:
    """The cluster with a scheduler that reads the shipped configuration, pointed at the extender."""
    entry = {**SCHEDULER["extenders"][0], "urlPrefix": extender.url}
    cluster.start_scheduler([entry])
    yield cluster
    cluster.kill("scheduler")


def bound(pod: Document) -> bool:
    """Whether a pod has its node."""
    return bool(pod["spec"].get("nodeName"))


def condition(pod: Document) -> str:
    """What the scheduler says of a waiting pod."""
    found = pod.get("status", {}).get("conditions") or []
    return next((c.get("message", "") for c in found if c["type"] == "PodScheduled"), "")


def test_many_pods_at_once_through_the_scheduler(scheduled: PocketCluster, extender: Extender):
    """Twelve of fourteen 5 GiB pods fit on four cards; the others wait for a counted reason."""
    pods = [create(scheduled, gib=5) for _ in range(14)]

    def settled() -> bool:
        now = [stored(scheduled, pod) for pod in pods]
        return sum(map(bound, now)) == 12 and sum(bool(condition(p)) for p in now if not bound(p)) == 2

    wait_for("the scheduler to be through", settled)
    waiting = [p for p in (stored(scheduled, pod) for pod in pods) if not bound(p)]
    assert {condition(p).split(".")[0] for p in waiting} == {
        "0/2 nodes are available: 2 short of memory on every card"
    }
    assert extender.promised() == dict.fromkeys(["n1-a", "n1-b", "n2-a", "n2-b"], 15360)


def test_a_waiting_pod_gets_the_room_of_one_that_goes(scheduled: PocketCluster):
    """Deleting a pod lets the scheduler try again, and the ledger knows already."""
    pods = [create(scheduled, gib=16) for _ in range(4)]
    for pod in pods:
        scheduled.kubectl.wait_for("pods", pod["metadata"]["name"], bound)
    late = create(scheduled, gib=16)
    scheduled.kubectl.wait_for("pods", late["metadata"]["name"], lambda p: "short of" in condition(p))
    scheduled.kubectl.delete("pods", pods[0]["metadata"]["name"], grace=0)
    scheduled.kubectl.wait_for("pods", late["metadata"]["name"], bound)
