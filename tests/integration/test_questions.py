"""What is asked over HTTP and changes nothing: dry runs and why, of one extender and of several."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cluster.cluster import PocketCluster
from sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, add_node, create, manifest
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


@pytest.fixture(name="cluster")
def run_cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """An API server, and two nodes with two cards of 16 GiB each."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(Path("deploy/crds/gpunodes.yaml"))
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        yield cluster


@pytest.fixture(name="extender")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """The only extender, which knows both nodes."""
    extender = Extender(cluster)
    extender.start()
    yield extender
    extender.process.stop()


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


def test_every_replica_answers_with_what_the_leader_has_reserved(cluster: PocketCluster, tmp_path: Path):
    """Followers do not know reservations; they pass questions on."""
    with three(cluster, tmp_path) as replicas:
        leader = replicas.leader()
        wait_for("the leader to know the cards", lambda: len(leader.known()) == 4)
        for _ in range(2):
            assert leader.filter(create(cluster, gib=12), "n1")["NodeNames"] == ["n1"]
        pod = manifest(gib=12)
        for replica in replicas.all:
            assert dry_run(replica, pod, NodeNames=["n1", "n2"])["NodeNames"] == ["n2"]
