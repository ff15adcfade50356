"""Preemption through the stand-in scheduler and the extender as a process over TLS; the test plays the kubelet."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.server.certs import write_pair
from tests.integration.extenders import Document, Extender, add_node, create

ROOT = Path(__file__).parents[2]
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with our resources and a node with two cards of 16 GiB."""
    with PocketCluster(tmp_path_factory.mktemp("v")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(*sorted((ROOT / "deploy/crds").glob("*.yaml")))
        add_node(cluster, "n1", ["n1-a", "n1-b"])
        yield cluster


@pytest.fixture(scope="module", name="extender")
def run_extender(cluster: PocketCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    """An extender that listens with TLS, and the scheduler with the shipped configuration pointed at it."""
    pair = write_pair(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])
    extender = Extender(cluster, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), scheme="https")
    extender.pool = urllib3.PoolManager(ca_certs=str(pair.ca), retries=False)
    extender.start()
    entry = {**SCHEDULER["extenders"][0], "urlPrefix": extender.url, "enableHTTPS": True}
    cluster.start_scheduler(
        [{**entry, "tlsConfig": {"caFile": str(pair.ca)}}], "--backoff", "0.1", "--longest-backoff", "0.5"
    )
    yield extender
    cluster.kill("scheduler")
    extender.process.stop()


@pytest.fixture(autouse=True)
def clean_up(cluster: PocketCluster, extender: Extender) -> Iterator[None]:
    """No pods afterwards."""
    yield
    for pod in cluster.kubectl.list("pods"):
        gone(cluster, pod)
    wait_for("the extender to forget", lambda: not extender.places())


def gone(cluster: PocketCluster, pod: Document) -> None:
    """The kubelet has ended a pod."""
    cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)


def now(cluster: PocketCluster, pod: Document) -> Document:
    """A pod as it is."""
    return cluster.kubectl.get("pods", pod["metadata"]["name"])


def bound(pod: Document) -> bool:
    """Whether it has its node."""
    return bool(pod["spec"].get("nodeName"))


def leaving(pod: Document) -> bool:
    """Whether it is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def runs(cluster: PocketCluster, gib: int, priority: int) -> Document:
    """A pod that has got its place."""
    pod = create(cluster, gib, priority=priority)
    cluster.kubectl.wait_for("pods", pod["metadata"]["name"], bound)
    return pod


def test_a_pod_of_high_priority_gets_the_card_of_a_low_one_and_nobody_steals_it(
    cluster: PocketCluster, extender: Extender
) -> None:
    """kube-scheduler sees room for ten slices on every card: only the extender knows who has to leave."""
    low, middle = runs(cluster, 16, 1), runs(cluster, 12, 50)
    high = create(cluster, 12, priority=100)
    name = high["metadata"]["name"]
    cluster.kubectl.wait_for("pods", name, lambda p: p["status"].get("nominatedNodeName") == "n1")
    wait_for("the victim to be deleted", lambda: leaving(now(cluster, low)))
    assert not leaving(now(cluster, middle))
    cluster.kill("scheduler")
    gone(cluster, low)
    wait_for("the extender to see it gone", lambda: extender.promised().get("n1-a", 0) <= 16384)
    thief = create(cluster, 12, priority=50)
    assert extender.filter(thief, "n1")["NodeNames"] == []
    cluster.restart("scheduler")
    cluster.kubectl.wait_for("pods", name, bound)
    gone(cluster, middle)
    cluster.kubectl.wait_for("pods", thief["metadata"]["name"], bound)
    events = [e["reason"] for e in cluster.kubectl.list("events")]
    assert events.count("Preempted") == 1


def test_a_hold_survives_an_extender_that_is_killed(cluster: PocketCluster, extender: Extender) -> None:
    """Its successor learns of the nomination from the pod."""
    low, _ = runs(cluster, 16, 1), runs(cluster, 16, 500)
    high = create(cluster, 12, priority=100)
    name = high["metadata"]["name"]
    cluster.kubectl.wait_for("pods", name, lambda p: p["status"].get("nominatedNodeName") == "n1")
    extender.process.kill()
    extender.start()
    wait_for(
        "the place to be held again",
        lambda: 'stage="held"} 1.0' in extender.get("/metrics").data.decode(),
    )
    gone(cluster, low)
    cluster.kubectl.wait_for("pods", name, bound)


def test_pods_of_equal_priority_wait(cluster: PocketCluster) -> None:
    """Nobody is evicted for them."""
    first, second = runs(cluster, 16, 7), runs(cluster, 16, 7)
    third = create(cluster, 12, priority=7)
    refused = "short of memory on every card"
    cluster.kubectl.wait_for("pods", third["metadata"]["name"], lambda p: refused in str(p["status"]))
    assert not leaving(now(cluster, first))
    assert not leaving(now(cluster, second))


def test_a_body_that_is_no_call_is_refused_with_a_reason(extender: Extender) -> None:
    """The protocol has no field for it: the status says so."""
    reply = extender.pool.request("POST", extender.url + "/preempt", body=b"{}")
    assert reply.status == 400
    assert b"ExtenderPreemptionArgs" in reply.data
