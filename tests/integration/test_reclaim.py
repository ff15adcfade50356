"""Borrowed quota is taken back by eviction: by real processes, while the extender is killed, and never too much."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.cluster.client import ApiError
from sandbox.cluster.cluster import PocketCluster
from sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, add_node, create, patch_status

ROOT = Path(__file__).parents[2]
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
GIB = 1024
"""In MiB."""
PLAN = "aliquot.dev/reclaim"
PLACEMENT = "aliquot.dev/placement"


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


def protect(cluster: PocketCluster, allowed: int) -> None:
    """A disruption budget over all of the guests' pods, as its controller would count it."""
    meta = {"name": "b", "namespace": "guest"}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
    cluster.kubectl.apply({**body, "spec": {"selector": {}, "minAvailable": 1}})
    path = "/apis/policy/v1/namespaces/guest/poddisruptionbudgets/b"
    patch_status(cluster, path, {"disruptionsAllowed": allowed})


def runs(cluster: PocketCluster, namespace: str, gib: int, **spec: Any) -> Document:
    """A pod that has got its place."""
    pod = create(cluster, gib, namespace=namespace, **spec)
    cluster.kubectl.wait_for("pods", pod["metadata"]["name"], bound, namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    patch_status(cluster, path, {"phase": "Running"})
    return pod


def bound(pod: Document) -> bool:
    """Whether it has its node."""
    return bool(pod["spec"].get("nodeName"))


def evicted(cluster: PocketCluster, namespace: str = "guest") -> set[str]:
    """The pods of a namespace that are being deleted."""
    pods = cluster.kubectl.list("pods", namespace)
    return {p["metadata"]["name"] for p in pods if p["metadata"].get("deletionTimestamp")}


def end(cluster: PocketCluster, namespace: str, names: set[str]) -> None:
    """The kubelet has ended these pods."""
    for name in names:
        cluster.kubectl.delete("pods", name, namespace, grace=0)


def refused(cluster: PocketCluster, pod: Document) -> None:
    """Waits until the scheduler has given a pod up for now."""
    meta = pod["metadata"]
    text = "nodes are available"
    cluster.kubectl.wait_for(
        "pods", meta["name"], lambda p: text in str(p["status"]), namespace=meta["namespace"]
    )


def settles(extender: Extender) -> None:
    """Waits until the extender has looked three more times at those that wait."""
    before = rounds(extender)
    wait_for("three more rounds", lambda: rounds(extender) >= before + 3)


def rounds(extender: Extender) -> float:
    """How often it has looked since it was started."""
    lines = extender.get("/metrics").data.decode().splitlines()
    name = "aliquot_scheduler_reclaim_rounds_total "
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


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


@pytest.mark.parametrize("_round", range(3))
def test_a_leader_killed_in_between_evicts_nobody_in_vain(
    cluster: PocketCluster, extender: Extender, _round: int
) -> None:
    """Whenever it is killed, two pods are evicted for a pod that needs two, of one node, and never a third."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(8):
        runs(cluster, "guest", 8)
    write(cluster, "guest", 16)
    write(cluster, "owner", 32, reclaim=True)
    pod = create(cluster, 16, namespace="owner")
    seen = set[str]()
    for _ in range(4):
        time.sleep(chance.uniform(0.0, 1.5))  # the moment of the kill is what is tried
        extender.process.kill()
        seen |= evicted(cluster)
        extender.start()
    wait_for("two pods to be evicted", lambda: len(evicted(cluster)) >= 2)
    settles(extender)
    seen |= evicted(cluster)
    assert len(seen) == 2
    assert len({stored(cluster, name)["spec"]["nodeName"] for name in seen}) == 1
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


def take_over(cluster: PocketCluster, last: Document) -> None:
    """A new guest is bound to the very cards of one that has gone."""
    new = create(cluster, 16, namespace="guest", schedulerName="nobody")
    meta, node = new["metadata"], last["spec"]["nodeName"]
    placement = last["metadata"]["annotations"][PLACEMENT].replace(last["metadata"]["uid"], meta["uid"])
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta["name"], "uid": meta["uid"], "annotations": {PLACEMENT: placement}},
        "target": {"kind": "Node", "name": node},
    }
    cluster.kubectl.request("POST", f"/api/v1/namespaces/guest/pods/{meta['name']}/binding", body)


def stored(cluster: PocketCluster, name: str) -> Document:
    """A guest as it is."""
    return cluster.kubectl.get("pods", name, "guest")


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
