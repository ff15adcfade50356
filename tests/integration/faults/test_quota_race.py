"""Fifty pods at once, through two replicas, for a quota that twenty of them fill."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import urllib3

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import add_node, create
from tests.integration.journey.auditor import check_cards, check_promise, placement_of
from tests.integration.replicas import TAKES_OVER_S, Replicas

LIMIT_GIB, ASKERS = 20, 50
NODES = {"n1": ["n1-a", "n1-b"], "n2": ["n2-a", "n2-b"]}


@pytest.fixture(name="replicas")
def run_replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Two replicas, four cards of 16 GiB, and a quota of 20 GiB."""
    with PocketCluster(tmp_path / "c") as cluster, ExitStack() as stack:
        cluster.start_apiserver()
        cluster.kubectl.apply(*Path("deploy/crds").glob("*.yaml"))
        for name, uuids in NODES.items():
            add_node(cluster, name, uuids)
        quota = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUQuota", "metadata": {"name": "team"}}
        limit = {"memoryMiB": LIMIT_GIB * 1024}
        cluster.kubectl.apply({**quota, "spec": {"namespaces": ["default"], "limit": limit}})
        replicas = Replicas(cluster, tmp_path, count=2)
        for replica in replicas.all:
            stack.callback(replica.end)
            replica.start()
        replicas.leader()
        yield replicas


def held(kubectl: Kubectl) -> int:
    """GiB that the pods have, by their own word, in one look at all of them."""
    placed = filter(None, map(placement_of, kubectl.list("pods")))
    return sum(s["memoryMiB"] for p in placed for c in p["containers"] for s in c["cards"]) // 1024


@pytest.mark.slow
def test_a_quota_is_filled_and_never_exceeded(replicas: Replicas) -> None:
    """Each is filtered by whichever replica and bound by whichever, and asks again until there is nothing left."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"SEED={seed}")
    together, over, seen = threading.Barrier(ASKERS), threading.Event(), [0]
    pods = [create(replicas.cluster, gib=1) for _ in range(ASKERS)]

    def ask(number: int) -> bool:
        dice = random.Random(seed + number)
        together.wait()
        while True:
            try:
                nodes = dice.choice(replicas.all).filter(pods[number], *NODES).get("NodeNames")
                if not nodes and len(seen) > 1 and seen[-1] == LIMIT_GIB:
                    return False
                if nodes and dice.choice(replicas.all).bind(pods[number], nodes[0]) == "":
                    return True
            except urllib3.exceptions.HTTPError:
                continue

    def look() -> None:
        kubectl = Kubectl(replicas.cluster.kubeconfig)
        while not over.is_set():
            seen.append(held(kubectl))

    with ThreadPoolExecutor(ASKERS + 1) as pool:
        looking = pool.submit(look)
        asking = [pool.submit(ask, number) for number in range(ASKERS)]
        try:
            wait_for("all to be answered", lambda: all(one.done() for one in asking), TAKES_OVER_S)
        finally:
            over.set()
        looking.result()
    assert sum(one.result() for one in asking) == LIMIT_GIB
    assert max(seen) == held(replicas.cluster.kubectl) == LIMIT_GIB
    audit(replicas.cluster)


def audit(cluster: PocketCluster) -> None:
    """No card is promised twice, and what was promised is what was asked for."""
    placed = [pod for pod in cluster.kubectl.list("pods") if placement_of(pod)]
    sizes = dict.fromkeys((uuid for uuids in NODES.values() for uuid in uuids), 16384)
    check_cards(sizes, [p for p in map(placement_of, placed) if p])
    for pod in placed:
        check_promise(pod)
