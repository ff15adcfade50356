"""What is asked over HTTP and changes nothing: dry runs and why, of one extender and of several."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import (
    NUMBER,
    Document,
    Extender,
    add_node,
    create,
    fresh_nodes,
    manifest,
    no_nodes,
    two_nodes,
)
from tests.integration.replicas import three

IMAGINED = {
    "metadata": {
        "name": "template-node",
        "labels": {
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.product": "NVIDIA-H200",
            "nvidia.com/gpu.memory": "143771",
        },
    },
    "status": {"allocatable": {"aliquot.dev/gpu": "10"}},
}


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server that knows GPUNodes."""
    with no_nodes(tmp_path_factory.mktemp("c")) as cluster:
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """The only extender."""
    extender = Extender(cluster)
    extender.start()
    yield extender
    extender.process.stop()


@pytest.fixture(name="extender")
def see_nodes(running: Extender) -> Iterator[Extender]:
    """The extender, and two nodes with two cards of 16 GiB each."""
    with fresh_nodes(running):
        yield running


def dry_run(extender: Extender, pod: Document, **nodes: object) -> Document:
    """Ask where a pod could go."""
    status, answer = extender.post("/filter-dryrun", {"Pod": pod, **nodes})
    assert status == 200
    return answer


def calls(extender: Extender) -> list[str]:
    """What its metrics count of filter calls."""
    lines = extender.get("/metrics").data.decode().splitlines()
    return [line for line in lines if line.startswith("aliquot_filter_seconds_count")]


def test_a_dry_run_says_what_filter_then_does(cluster: PocketCluster, extender: Extender):
    """All nodes with room, until they are full; nothing is reserved or counted by asking."""
    for turn in range(5):
        pod = create(cluster, gib=12)
        before = extender.promised(), extender.places(), calls(extender)
        told = dry_run(extender, pod, NodeNames=["n1", "n2", "n3"])
        assert (extender.promised(), extender.places(), calls(extender)) == before
        real = extender.filter(pod, "n1", "n2")
        assert bool(told["NodeNames"]) == bool(real["NodeNames"]) == (turn < 4)
        assert set(real["NodeNames"]) <= set(told["NodeNames"])
        if real["NodeNames"]:
            assert extender.bind(pod, real["NodeNames"][0]) == ""
    short = "short of memory on every card"
    assert told["FailedNodes"] == {"n1": short, "n2": short}
    assert told["FailedAndUnresolvableNodes"] == {"n3": "node has no Aliquot agent"}


def test_a_node_that_does_not_exist(extender: Extender):
    """Given whole, as autoscalers do, it is given back whole; the pod needs no UID."""
    pod = manifest(gib=100)
    told = dry_run(extender, pod, Nodes={"items": [{"metadata": {"name": "n1"}}, IMAGINED]})
    assert told["NodeNames"] == ["template-node"]
    assert told["Nodes"] == {"items": [IMAGINED]}
    assert told["FailedAndUnresolvableNodes"] == {"n1": "every card too small"}
    assert extender.promised() == {}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"Pod": {}}', b'{"Pod": {}, "Nodes": {"items": [1]}}'])
def test_a_body_that_is_no_call(extender: Extender, body: bytes):
    """HTTP 400 and a sentence."""
    status, answer = extender.post("/filter-dryrun", body)
    assert status == 400
    assert answer["Error"]


SERVICE = "default/extender:9443"


def serve(cluster: PocketCluster, port: int) -> None:
    """A Service in front of an extender."""
    meta = {"name": "extender", "namespace": "default"}
    ports = [{"name": "https", "port": 9443}]
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}})
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port}]}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [subset]})


def aliquot_why(cluster: PocketCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """What a user types."""
    argv = [sys.executable, "-m", "aliquot.cli", "why", "--kubeconfig", str(cluster.kubeconfig), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def fill(cluster: PocketCluster, extender: Extender) -> None:
    """Two pods on n1, three on n2; no card has more than 8 GiB left."""
    for node, sizes in (("n1", (12, 8)), ("n2", (14, 14, 1))):
        for gib in sizes:
            assert (
                extender.bind(create(cluster, gib=gib, name=f"tenant-{node}-{gib}-{next(NUMBER)}"), node)
                == ""
            )


def test_why_over_http_and_by_the_command(cluster: PocketCluster, extender: Extender):
    """The same answer, with names where the caller may list pods; nothing is reserved."""
    serve(cluster, extender.port)
    fill(cluster, extender)
    create(cluster, gib=12, name="train")
    before = extender.promised(), extender.places()
    raw = extender.get("/why?namespace=default&pod=train")
    assert raw.status == 200
    assert b"tenant" not in raw.data
    told = json.loads(raw.data)
    assert sum(cause["nodes"] for cause in told["causes"]) == told["nodes"] == 2
    plain = aliquot_why(cluster, "--service", "default/http:extender:9443", "default/train")
    direct = aliquot_why(cluster, "--extender", extender.url, "train")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == direct.stdout
    assert plain.stdout.startswith("default/train waits: none of 2 nodes has room for it\n")
    assert "     2  short of memory on every card\n" in plain.stdout
    assert "ask for 8Gi of memory in place of 12Gi" in plain.stdout
    named = json.loads(aliquot_why(cluster, "--extender", extender.url, "--json", "train").stdout)
    assert {change["kind"] for change in named["changes"]} == {"Memory"}
    assert (extender.promised(), extender.places()) == before


def test_pods_to_move_are_named_to_those_who_may_list_them(cluster: PocketCluster, extender: Extender):
    """By UID over HTTP, by name in the command."""
    add_node(cluster, "n3", ["n3-a"])
    wait_for("n3 to be known", lambda: "n3-a" in extender.known())
    assert extender.bind(create(cluster, gib=9, name="small"), "n3") == ""
    for node in ("n1", "n1", "n2"):
        assert extender.bind(create(cluster, gib=15), node) == ""
    assert extender.bind(create(cluster, gib=7), "n2") == ""
    create(cluster, gib=14, name="train")
    told = json.loads(extender.get("/why?namespace=default&pod=train").data)
    (moves,) = [change["moves"] for change in told["changes"] if change["kind"] == "Moves"]
    assert [(move["memoryMiB"], move["fromNode"], move["toNode"]) for move in moves] == [
        (7 << 10, "n2", "n3")
    ]
    shown = aliquot_why(cluster, "--extender", extender.url, "train").stdout
    name = next(
        pod["metadata"]["name"]
        for pod in cluster.kubectl.list("pods", "default")
        if pod["metadata"]["uid"] == moves[0]["uid"]
    )
    assert f"default/{name} (7Gi) to node n3" in shown


def test_why_not(cluster: PocketCluster, extender: Extender):
    """No such pod, no such Service, no extender, no pod in the question."""
    assert extender.get("/why?pod=x").status == 400
    absent = aliquot_why(cluster, "--extender", extender.url, "nobody")
    assert (absent.returncode, absent.stdout) == (1, "default/nobody: there is no such pod\n")
    nowhere = aliquot_why(cluster, "nobody")
    assert nowhere.returncode == 125
    assert "nothing is installed in aliquot-system" in nowhere.stderr
    assert "give --service NAMESPACE/NAME:PORT" in nowhere.stderr
    misspelt = aliquot_why(cluster, "--service", "default/extenders:9443", "nobody")
    assert "the extender's Service default/extenders:9443 does not answer: NotFound (404)" in misspelt.stderr
    serve(cluster, 1)
    dead = aliquot_why(cluster, "--service", "default/http:extender:9443", "nobody")
    assert "does not answer: ServiceUnavailable (503): error trying to reach service" in dead.stderr
    silent = aliquot_why(cluster, "--extender", "http://127.0.0.1:1", "nobody")
    assert "no answer from http://127.0.0.1:1" in silent.stderr
    wrong = aliquot_why(cluster, "--extender", f"{extender.url}/metrics?", "nobody")
    assert "no extender of this version" in wrong.stderr


def test_kube_scheduler_is_not_said_to_be_late_where_it_has_tried(cluster: PocketCluster, extender: Extender):
    """It found no node by itself, and so did not come to ask the extender."""
    create(cluster, gib=1, name="picky")
    assert (
        "kube-scheduler has not tried it yet.\n"
        in aliquot_why(cluster, "--extender", extender.url, "picky").stdout
    )
    message = "0/2 nodes are available: 2 node(s) had untolerated taints."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    path = "/api/v1/namespaces/default/pods/picky/status"
    change = {"status": {"conditions": [condition]}}
    cluster.kubectl.request("PATCH", path, change, media_type="application/merge-patch+json")
    told = aliquot_why(cluster, "--extender", extender.url, "picky").stdout
    assert "kube-scheduler has tried it, and has not asked this extender for it" in told
    assert f"  {message}\n" in told


def test_the_namespace_is_an_option_too(cluster: PocketCluster, extender: Extender):
    """As kubectl has it; two that differ are refused."""
    for words in (["-n", "team-a", "nobody"], ["--namespace", "team-a", "team-a/nobody"]):
        told = aliquot_why(cluster, "--extender", extender.url, *words)
        assert (told.returncode, told.stdout) == (1, "team-a/nobody: there is no such pod\n")
    both = aliquot_why(cluster, "--extender", extender.url, "-n", "team-a", "team-b/nobody")
    assert both.returncode == 2
    assert "--namespace team-a and team-b/nobody name two namespaces" in both.stderr


@pytest.mark.parametrize("word", ["a/b/c", "/b", "a/", ""])
def test_what_names_no_pod_is_refused(cluster: PocketCluster, word: str):
    """Nothing is asked."""
    told = aliquot_why(cluster, word)
    assert told.returncode == 2
    assert f"{word!r} names no pod; write POD or NAMESPACE/POD" in told.stderr


def test_without_a_namespace_the_kubeconfigs_is_meant(
    cluster: PocketCluster, extender: Extender, tmp_path: Path
):
    """As kubectl has it."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = "team-a"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    told = aliquot_why(cluster, "--extender", extender.url, "--kubeconfig", str(kubeconfig), "nobody")
    assert (told.returncode, told.stdout) == (1, "team-a/nobody: there is no such pod\n")


@pytest.mark.slow
def test_every_replica_answers_with_what_the_leader_has_reserved(tmp_path: Path):
    """Followers do not know reservations; they pass questions on."""
    with two_nodes(tmp_path / "c") as cluster, three(cluster, tmp_path) as replicas:
        leader = replicas.leader()
        wait_for("the leader to know the cards", lambda: len(leader.known()) == 4)
        for _ in range(2):
            assert leader.filter(create(cluster, gib=12), "n1")["NodeNames"] == ["n1"]
        pod = manifest(gib=12)
        for replica in replicas.all:
            assert dry_run(replica, pod, NodeNames=["n1", "n2"])["NodeNames"] == ["n2"]
        waits = create(cluster, gib=12)["metadata"]["name"]
        assert leader.filter(create(cluster, gib=12), "n2")["NodeNames"] == ["n2"]
        for replica in replicas.all:
            told = json.loads(replica.get(f"/why?namespace=default&pod={waits}").data)
            assert told["summary"] == "1 of 2 nodes has room now: it gets one when kube-scheduler asks again"
        serve(cluster, replicas.others(leader)[0].port)
        assert "1 of 2 nodes has room now" in aliquot_why(cluster, "--service", SERVICE, waits).stdout
        straight = ("--extender", leader.url, "--ca", str(tmp_path / "tls" / "ca.crt"))
        assert "1 of 2 nodes has room now" in aliquot_why(cluster, *straight, waits).stdout
        assert "no answer from" in aliquot_why(cluster, "--extender", leader.url, waits).stderr
