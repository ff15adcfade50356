"""Borrowed quota is taken back by eviction: by real processes, while the extender is killed, and never too much."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.evictions import (
    bound,
    end,
    evicted,
    protect,
    refused,
    runs,
    settles,
    stored,
    take_over,
    two_evicted,
)
from tests.integration.extenders import Document, Extender, add_node, create

ROOT = Path(__file__).parents[2]
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
GIB = 1024
"""In MiB."""
PLAN = "aliquot.dev/reclaim"


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with our resources, two teams and two nodes with two cards of 16 GiB each."""
    with PocketCluster(tmp_path_factory.mktemp("r")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(*sorted((ROOT / "deploy/crds").glob("*.yaml")))
        for name in ("owner", "guest"):
            cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """One extender and a scheduler for all tests here; some of them kill the extender."""
    extender = Extender(cluster)
    extender.start()
    entry = {**SCHEDULER["extenders"][0], "urlPrefix": extender.url}
    cluster.start_scheduler([entry], "--backoff", "0.1", "--longest-backoff", "0.5")
    yield extender
    cluster.kill("scheduler")
    extender.process.stop()


@pytest.fixture(name="extender")
def clean_up(cluster: PocketCluster, running: Extender) -> Iterator[Extender]:
    """The extender, with no quota, budget or pod before and after."""
    yield running
    for quota in cluster.kubectl.list("gpuquotas.aliquot.dev"):
        cluster.kubectl.delete("gpuquotas.aliquot.dev", quota["metadata"]["name"])
    for namespace in ("owner", "guest"):
        for plural in ("pods", "poddisruptionbudgets.policy"):
            for found in cluster.kubectl.list(plural, namespace):
                cluster.kubectl.delete(plural, found["metadata"]["name"], namespace, grace=0)
    wait_for("the extender to forget", lambda: not running.places())


def write(cluster: PocketCluster, name: str, gib: int, **spec: Any) -> None:
    """A team's GPUQuota of guaranteed memory."""
    body = {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "GPUQuota",
        "metadata": {"name": name},
        "spec": {"namespaces": [name], "guaranteed": {"memoryMiB": gib * GIB}, **spec},
    }
    cluster.kubectl.apply(body)


def test_what_was_borrowed_is_given_back_to_whom_it_is_guaranteed(
    cluster: PocketCluster, extender: Extender
) -> None:
    """One pod of the guests goes, with a word on both pods, and the owner gets its room, not the guest that waits."""
    write(cluster, "guest", 16)
    for _ in range(4):
        runs(cluster, "guest", 16)
    write(cluster, "owner", 32, reclaim=True)
    pod = create(cluster, 12, namespace="owner")
    wait_for("a guest to be evicted", lambda: evicted(cluster))
    (victim,) = evicted(cluster)
    greedy = create(cluster, 12, namespace="guest")
    refused(cluster, greedy)
    end(cluster, "guest", {victim})
    cluster.kubectl.wait_for("pods", pod["metadata"]["name"], bound, namespace="owner")
    settles(extender)
    assert evicted(cluster) == set()
    told = [(e["reason"], e["involvedObject"]["name"]) for e in cluster.kubectl.list("events", "guest")]
    assert told.count(("Reclaimed", victim)) == 1
    told = [(e["reason"], e["involvedObject"]["name"]) for e in cluster.kubectl.list("events", "owner")]
    assert told.count(("Reclaiming", pod["metadata"]["name"])) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("why", "owner", "guest"),
    [
        ("the owner's quota does not say so", (32, False), (16, 0)),
        ("the owner would be beyond its guarantee", (8, True), (16, 0)),
        ("the guests are within theirs", (32, True), (64, 0)),
        ("a disruption budget allows none", (32, True), (16, 0)),
        ("the guests have not run for long enough", (32, True), (16, 3600)),
    ],
)
def test_nobody_is_evicted_without_leave(
    cluster: PocketCluster, extender: Extender, why: str, owner: tuple[int, bool], guest: tuple[int, int]
) -> None:
    """Each of these is enough for the pod to wait."""
    for _ in range(4):
        runs(cluster, "guest", 16)
    write(cluster, "guest", guest[0], minRunSeconds=guest[1])
    if "budget" in why:
        protect(cluster, 0)
    write(cluster, "owner", owner[0], reclaim=owner[1])
    pod = create(cluster, 12, namespace="owner")
    refused(cluster, pod)
    settles(extender)
    assert evicted(cluster) == set(), why


def test_a_plan_that_somebody_else_wrote_gives_no_leave(cluster: PocketCluster, extender: Extender) -> None:
    """A pod's author could write one; pods that could not be chosen are not evicted for it."""
    pods = [runs(cluster, "guest", 16) for _ in range(4)]
    write(cluster, "guest", 64)
    write(cluster, "owner", 32, reclaim=True)
    named = [{"namespace": "guest", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods]
    for node in ("n1", "n2"):
        body = create_with(cluster, {PLAN: json.dumps({"node": node, "pods": named})})
        refused(cluster, body)
    settles(extender)
    assert evicted(cluster) == set()


def create_with(cluster: PocketCluster, annotations: dict[str, str]) -> Document:
    """A waiting pod of the owner's that comes with annotations."""
    pod = create(cluster, 12, namespace="owner")
    path = f"/api/v1/namespaces/owner/pods/{pod['metadata']['name']}"
    body = {"metadata": {"annotations": annotations}}
    cluster.kubectl.request("PATCH", path, body, media_type="application/merge-patch+json")
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("_round", range(3))
def test_a_leader_killed_in_between_evicts_nobody_in_vain(
    cluster: PocketCluster, extender: Extender, _round: int
) -> None:
    """Whenever it is killed, two pods are evicted for a pod that needs two, of one node, and never a third."""
    for _ in range(8):
        runs(cluster, "guest", 8)
    write(cluster, "guest", 16)
    write(cluster, "owner", 32, reclaim=True)
    pod = create(cluster, 16, namespace="owner")
    seen = two_evicted(cluster, extender)
    end(cluster, "guest", seen)
    cluster.kubectl.wait_for("pods", pod["metadata"]["name"], bound, namespace="owner")
    settles(extender)
    assert evicted(cluster) == set()


def test_one_pod_has_others_evicted_once_whoever_took_the_room(
    cluster: PocketCluster, extender: Extender
) -> None:
    """While no extender runs, somebody else is bound to the card that was freed; the plan in the pod has been used."""
    for _ in range(4):
        runs(cluster, "guest", 16)
    write(cluster, "guest", 16)
    write(cluster, "owner", 32, reclaim=True)
    pod = create(cluster, 16, namespace="owner")
    wait_for("a guest to be evicted", lambda: evicted(cluster))
    extender.process.kill()
    (victim,) = evicted(cluster)
    last = stored(cluster, victim)
    end(cluster, "guest", {victim})
    take_over(cluster, last)
    extender.start()
    refused(cluster, pod)
    settles(extender)
    assert evicted(cluster) == set()


def test_evictions_heed_budgets_and_identities(cluster: PocketCluster, extender: Extender) -> None:
    """The pocket API server's own promise, on which the others rest."""
    pods = [runs(cluster, "guest", 4) for _ in range(2)]
    protect(cluster, 1)
    with pytest.raises(ApiError) as other:
        evict(cluster, pods[0], uid="another")
    assert other.value.status == 409
    evict(cluster, pods[0])
    with pytest.raises(ApiError) as beyond:
        evict(cluster, pods[1])
    assert beyond.value.status == 429
    assert evicted(cluster) == {pods[0]["metadata"]["name"]}


def evict(cluster: PocketCluster, pod: Document, uid: str = "") -> None:
    """One call of the eviction API."""
    meta = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": uid or meta["uid"]}},
    }
    cluster.kubectl.request(
        "POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", body
    )
