"""Quotas with the extender as a process: through the stand-in scheduler, and raced for while it is killed."""

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, add_node, create, manifest, publish

ROOT = Path(__file__).parents[2]
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
PLACEMENT = "aliquot.dev/placement"
GIB = 1024
"""In MiB."""
SOON = 30.0
"""Seconds: a tenth of what kube-scheduler would wait by itself."""


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with our resources, two teams' namespaces, and two nodes with two cards of 16 GiB each."""
    with PocketCluster(tmp_path_factory.mktemp("q")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(*sorted((ROOT / "deploy/crds").glob("*.yaml")))
        for name in ("a", "b"):
            cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """One extender for all tests here; some of them kill it and start it again."""
    extender = Extender(cluster)
    extender.start()
    yield extender
    extender.process.stop()


@pytest.fixture(name="extender")
def clean_up(cluster: PocketCluster, running: Extender) -> Iterator[Extender]:
    """The extender, with no quota and no pod before and after."""
    yield running
    for quota in cluster.kubectl.list("gpuquotas.aliquot.dev"):
        cluster.kubectl.delete("gpuquotas.aliquot.dev", quota["metadata"]["name"])
    for namespace in ("a", "b"):
        for plural in ("resourcequotas", "pods"):
            for found in cluster.kubectl.list(plural, namespace):
                cluster.kubectl.delete(plural, found["metadata"]["name"], namespace, grace=0)
    wait_for("the extender to forget", lambda: not running.places())


@pytest.fixture(name="scheduled")
def run_scheduler(cluster: PocketCluster, extender: Extender) -> Iterator[PocketCluster]:
    """The cluster with a scheduler that reads the shipped configuration, pointed at the extender."""
    cluster.start_scheduler([{**SCHEDULER["extenders"][0], "urlPrefix": extender.url}])
    yield cluster
    cluster.kill("scheduler")


def write(cluster: PocketCluster, name: str, *namespaces: str, **spec: Any) -> None:
    """The admin writes a GPUQuota, in MiB."""
    body = {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "GPUQuota",
        "metadata": {"name": name},
        "spec": {"namespaces": list(namespaces), **spec},
    }
    cluster.kubectl.apply(body)


def refused(extender: Extender, pod: Document) -> str:
    """What filter says to a pod that fits nowhere; empty when it has got a place."""
    answer = extender.filter(pod, "n1", "n2")
    return " ".join(
        {**answer.get("FailedNodes", {}), **answer.get("FailedAndUnresolvableNodes", {})}.values()
    )


def knows_of(extender: Extender, cluster: PocketCluster, namespace: str, words: str, gib: int = 1) -> None:
    """Waits until the extender refuses a pod with these words."""
    probe = create(cluster, gib=gib, namespace=namespace)
    wait_for(f"the extender to say {words}", lambda: words in refused(extender, probe))
    cluster.kubectl.delete("pods", probe["metadata"]["name"], namespace, grace=0)


def bound(pod: Document) -> bool:
    """Whether a pod has its node."""
    return bool(pod["spec"].get("nodeName"))


def condition(pod: Document) -> str:
    """What the scheduler says of a waiting pod."""
    found = pod.get("status", {}).get("conditions") or []
    return next((c.get("message", "") for c in found if c["type"] == "PodScheduled"), "")


def waits(cluster: PocketCluster, pod: Document, words: str) -> None:
    """Waits until the scheduler has given a pod up for now, for this reason."""
    meta = pod["metadata"]
    cluster.kubectl.wait_for(
        "pods", meta["name"], lambda p: words in condition(p), namespace=meta["namespace"]
    )


def gets_a_node(cluster: PocketCluster, pod: Document) -> None:
    """Waits until a pod is bound, long before the scheduler would look at it again by itself."""
    meta = pod["metadata"]
    cluster.kubectl.wait_for("pods", meta["name"], bound, SOON, meta["namespace"])


def test_a_pod_waits_in_words_and_runs_soon_after_its_quota_is_raised(
    scheduled: PocketCluster, extender: Extender
) -> None:
    """No event of kube-scheduler's own helps: only the touch does."""
    write(scheduled, "team", "a", limit={"memoryMiB": 4 * GIB})
    knows_of(extender, scheduled, "a", "limit of 4Gi", gib=5)
    pod = create(scheduled, gib=8, namespace="a")
    waits(scheduled, pod, "0/2 nodes are available: 2 GPUQuota team: namespace a asks for 8Gi of GPU memory")
    write(scheduled, "team", "a", limit={"memoryMiB": 8 * GIB})
    gets_a_node(scheduled, pod)
    assert "aliquot.dev/retry" in stored(scheduled, pod)["metadata"]["annotations"]


def stored(cluster: PocketCluster, pod: Document) -> Document:
    """A pod as it is now."""
    return cluster.kubectl.get("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])


def test_a_pod_that_another_process_refused_is_woken_too(
    scheduled: PocketCluster, extender: Extender
) -> None:
    """The quota is raised while no extender runs; the next one finds the pod among those that wait."""
    write(scheduled, "team", "a", limit={"memoryMiB": 4 * GIB})
    knows_of(extender, scheduled, "a", "limit of 4Gi", gib=5)
    pod = create(scheduled, gib=8, namespace="a")
    waits(scheduled, pod, "GPUQuota team")
    extender.process.kill()
    scheduled.kubectl.delete("gpuquotas.aliquot.dev", "team")
    extender.start()
    gets_a_node(scheduled, pod)


def test_a_pod_runs_soon_after_the_agent_publishes_a_larger_card(
    scheduled: PocketCluster, extender: Extender
) -> None:
    """kube-scheduler does not watch what agents write."""
    pod = create(scheduled, gib=20, namespace="a")
    waits(scheduled, pod, "every card too small")
    small = [{"uuid": f"n2-{which}", "memoryMiB": 16384} for which in "ab"]
    publish(scheduled, "n2", [{**small[0], "memoryMiB": 24576}, small[1]])
    gets_a_node(scheduled, pod)
    publish(scheduled, "n2", small)


def test_a_pod_runs_soon_after_its_pool_is_overcommitted(
    scheduled: PocketCluster, extender: Extender
) -> None:
    """Nor does it watch pools."""
    limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "1Gi", "aliquot.dev/gpu-core": "60"}
    asks = [{"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}]
    pods = [create(scheduled, namespace="b", containers=asks) for _ in range(5)]
    last = pods.pop()
    for pod in pods:
        gets_a_node(scheduled, pod)
    waits(scheduled, last, "short of compute")
    pool = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": "all"}}
    scheduled.kubectl.apply({**pool, "spec": {"corePercent": 120}})
    gets_a_node(scheduled, last)
    scheduled.kubectl.delete("gpupools.aliquot.dev", "all")


def test_a_resource_quota_is_enforced_as_hami_does(scheduled: PocketCluster, extender: Extender) -> None:
    """`limits.<resource>` counts memory times cards."""
    hard = {"limits.aliquot.dev/gpu-mem": "8Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cards", "namespace": "a"}}
    scheduled.kubectl.apply({**quota, "spec": {"hard": hard}})
    knows_of(extender, scheduled, "a", "limit of 8Gi", gib=9)
    limits = {"aliquot.dev/gpu": "2", "aliquot.dev/gpu-mem": "5Gi"}
    two = [{"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}]
    pod = create(scheduled, namespace="a", containers=two)
    waits(scheduled, pod, "ResourceQuota cards: namespace a asks for 10Gi of GPU memory, and 0 of its limit")
    scheduled.kubectl.apply({**quota, "spec": {"hard": {"limits.aliquot.dev/gpu-mem": "10Gi"}}})
    gets_a_node(scheduled, pod)


# ---- never exceeded ----

LIMIT_GIB, GUARANTEED_GIB = 20, 40
PATIENCE = 100.0
"""Seconds for a few pods to be bound on a machine that does other things too."""
BACKOFF = 0.2
"""Seconds before a caller that got no answer tries another pod; without, they pile up while the extender starts."""


class Race:
    """Callers that filter, bind, resize and delete pods of two namespaces at once, and one who reads all pods."""

    def __init__(self, cluster: PocketCluster, extender: Extender, seed: int) -> None:
        self.cluster = cluster
        self.extender = extender
        self.dice = random.Random(seed)
        self.over = threading.Event()
        self.seen: list[dict[str, int]] = []
        self.bound = 0

    def caller(self, seed: int) -> None:
        """One scheduler, with a life of its own."""
        dice, kubectl = random.Random(seed), Kubectl(self.cluster.kubeconfig)
        while not self.over.is_set():
            try:
                self.one_pod(dice, kubectl)
            except (urllib3.exceptions.HTTPError, ApiError, AssertionError):
                self.over.wait(BACKOFF)

    def one_pod(self, dice: random.Random, kubectl: Kubectl) -> None:
        """A pod comes, is bound if it can be, perhaps asks for more, and another one goes."""
        namespace = dice.choice("aab")
        pod = kubectl.create(manifest(gib=dice.choice([1, 2, 3, 5]), namespace=namespace))
        nodes = self.extender.filter(pod, "n1", "n2").get("NodeNames") or [dice.choice(["n1", "n2"])]
        if self.extender.bind(pod, nodes[0]) != "":
            kubectl.delete("pods", pod["metadata"]["name"], namespace, grace=0)
        else:
            self.bound += 1
            if dice.random() < 0.3:
                asked = {
                    "metadata": {"annotations": {"aliquot.dev/resize-gpu-mem": f"{dice.randint(1, 9)}Gi"}}
                }
                kubectl.patch("pods", pod["metadata"]["name"], asked, namespace)
        if dice.random() < 0.6:
            gone = dice.choice(kubectl.list("pods", namespace) or [pod])["metadata"]["name"]
            kubectl.delete("pods", gone, namespace, grace=0)

    def auditor(self) -> None:
        """Adds up, again and again, what the bound pods of each namespace have."""
        kubectl = Kubectl(self.cluster.kubeconfig)
        while not self.over.is_set():
            self.seen.append({namespace: held(kubectl, namespace) for namespace in ("a", "b")})

    def run(self, kills: int) -> None:
        """Race while the extender is killed so many times."""
        seeds = [self.dice.random() for _ in range(6)]
        threads = [threading.Thread(target=self.caller, args=(seed,)) for seed in seeds]
        threads.append(threading.Thread(target=self.auditor))
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                wait_for("pods to be bound", self.more_bound(self.dice.randint(3, 12)), PATIENCE)
                self.extender.process.kill()
                self.extender.start()
            wait_for("pods to be bound", self.more_bound(10), PATIENCE)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def more_bound(self, count: int) -> Any:
        """Whether so many more pods have been bound than now."""
        goal = self.bound + count
        return lambda: self.bound >= goal


def held(kubectl: Kubectl, namespace: str) -> int:
    """MiB that the bound pods of a namespace have, by their annotations, in one look at all of them."""
    found = 0
    for pod in kubectl.list("pods", namespace):
        placement = pod["metadata"].get("annotations", {}).get(PLACEMENT)
        if placement:
            found += sum(s["memoryMiB"] for c in json.loads(placement)["containers"] for s in c["cards"])
    return found


@pytest.mark.slow
def test_no_race_and_no_kill_exceeds_a_limit(cluster: PocketCluster, extender: Extender) -> None:
    """Six callers race for 20 GiB of one namespace, and another borrows no more than a guarantee of 40 leaves."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    write(cluster, "team-a", "a", guaranteed={"memoryMiB": 10 * GIB}, limit={"memoryMiB": LIMIT_GIB * GIB})
    write(cluster, "kept", "nobody", guaranteed={"memoryMiB": GUARANTEED_GIB * GIB})
    knows_of(extender, cluster, "a", "limit of 20Gi", gib=21)
    race = Race(cluster, extender, seed)
    race.run(kills=3)
    assert max(now["a"] for now in race.seen) <= LIMIT_GIB * GIB
    assert max(now["b"] for now in race.seen) <= (64 - GUARANTEED_GIB) * GIB
    assert max(now["a"] for now in race.seen) > 10 * GIB  # it was worth racing for
