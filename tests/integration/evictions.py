"""Pods that run, are evicted or wait, on a cluster whose kubelet is the test; `guest` is a namespace of its own."""

import random
import time
from typing import Any

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, create, patch_status

PLACEMENT = "aliquot.dev/placement"


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
    before = extender.looks()
    wait_for("three more rounds", lambda: extender.looks() >= before + 3)


def take_over(cluster: PocketCluster, last: Document, **spec: Any) -> None:
    """A new guest is bound to the very cards of one that has gone."""
    new = create(cluster, 16, namespace="guest", schedulerName="nobody", **spec)
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


def two_evicted(cluster: PocketCluster, extender: Extender) -> set[str]:
    """The two guests, of one node, that are evicted however often the extender is killed, and never a third."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    seen = set[str]()
    for _ in range(4):
        time.sleep(chance.uniform(0.0, 2.0))  # the moment of the kill is what is tried
        extender.process.kill()
        seen |= evicted(cluster)
        extender.start()
    wait_for("two pods to be evicted", lambda: len(evicted(cluster)) >= 2)
    settles(extender)
    seen |= evicted(cluster)
    assert len(seen) == 2
    assert len({stored(cluster, name)["spec"]["nodeName"] for name in seen}) == 1
    return seen
