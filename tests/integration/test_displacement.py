"""Where kube-scheduler asks nobody, the extender preempts by itself: the right pods, once, whoever is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from aliquot.scheduler_ext.controllers.evictor import OFFER_SECONDS
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
from tests.integration.extenders import Document, Extender, add_node, create, patch_status

ROOT = Path(__file__).parents[2]
SCHEDULER = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
HURRY = ("--backoff", "0.1", "--longest-backoff", "0.5")
HOST = "kubernetes.io/hostname"
PATIENCE = ("--preemption-seconds", "0.5")


@pytest.fixture(scope="module", name="cluster")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server with our resources and two nodes with two cards of 16 GiB each."""
    with PocketCluster(tmp_path_factory.mktemp("d")) as cluster:
        cluster.start_apiserver()
        cluster.kubectl.apply(*sorted((ROOT / "deploy/crds").glob("*.yaml")))
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "guest"}})
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
            cluster.kubectl.patch("nodes", name, {"metadata": {"labels": {HOST: name}}}, "")
        yield cluster


@pytest.fixture(scope="module", name="running")
def run_extender(cluster: PocketCluster) -> Iterator[Extender]:
    """An extender, and a scheduler that does not call preempt: as Kubernetes 1.37 where cards alone are short."""
    extender = Extender(cluster, *PATIENCE)
    extender.start()
    cluster.start_scheduler([entry(extender, preemptVerb="")], *HURRY)
    yield extender
    cluster.kill("scheduler")
    extender.process.stop()


@pytest.fixture(name="extender")
def clean_up(cluster: PocketCluster, running: Extender) -> Iterator[Extender]:
    """The extender, with no quota, budget or pod before and after."""
    yield running
    for quota in cluster.kubectl.list("gpuquotas.aliquot.dev"):
        cluster.kubectl.delete("gpuquotas.aliquot.dev", quota["metadata"]["name"])
    for plural in ("pods", "poddisruptionbudgets.policy"):
        for found in cluster.kubectl.list(plural, "guest"):
            cluster.kubectl.delete(plural, found["metadata"]["name"], "guest", grace=0)
    wait_for("the extender to forget", lambda: not running.places())


def entry(extender: Extender, **other: str) -> Document:
    """The shipped configuration's extender, at this address."""
    return {**SCHEDULER["extenders"][0], "urlPrefix": extender.url, **other}


def asks(cluster: PocketCluster, gib: int, priority: int, **spec: Any) -> Document:
    """A pod that waits for others to go."""
    return create(cluster, gib, namespace="guest", priority=priority, **spec)


def name_of(pod: Document) -> str:
    """Its name."""
    return str(pod["metadata"]["name"])


def arrives(cluster: PocketCluster, pod: Document) -> None:
    """Waits until a pod has its place."""
    cluster.kubectl.wait_for("pods", name_of(pod), bound, namespace="guest")


def told(cluster: PocketCluster, reason: str, pod: str) -> list[str]:
    """What the events of a pod with this reason say."""
    events = cluster.kubectl.list("events", "guest")
    return [e["message"] for e in events if (e["reason"], e["involvedObject"]["name"]) == (reason, pod)]


def fill(cluster: PocketCluster, priority: int) -> list[str]:
    """One pod on every card."""
    return [name_of(runs(cluster, "guest", 16, priority=priority)) for _ in range(4)]


@pytest.mark.slow
def test_the_right_pod_goes_and_nobody_steals_its_place(cluster: PocketCluster, extender: Extender) -> None:
    """The one of lowest priority, with a word on both pods; the place is the waiting pod's before it has gone."""
    others = [name_of(runs(cluster, "guest", 16, priority=one)) for one in (50, 20, 50, 10)]
    high = asks(cluster, 12, 100)
    wait_for("a pod to be evicted", lambda: evicted(cluster))
    assert evicted(cluster) == {others[3]}
    answer = extender.get(f"/why?namespace=guest&pod={name_of(high)}").json()
    assert answer["state"] == "Held"
    thief = asks(cluster, 4, 50)
    end(cluster, "guest", {others[3]})
    arrives(cluster, high)
    settles(extender)
    assert extender.filter(thief, "n1", "n2")["NodeNames"] in (["n1"], ["n2"]), "beside it there is room"
    assert evicted(cluster) == set()
    (gone,), (gains,) = told(cluster, "Preempted", others[3]), told(cluster, "Preempting", name_of(high))
    assert f"pod guest/{name_of(high)} of priority 100" in gone
    assert f"Pod guest/{others[3]}, of lower priority" in gains
    assert sum_of(extender, 'preemptions_total{outcome="evicted"}') >= 1


def sum_of(extender: Extender, name: str) -> float:
    """One of its metrics."""
    lines = extender.get("/metrics").data.decode().splitlines()
    start = f"aliquot_scheduler_{name} "
    return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("why", "spec"),
    [
        ("it is never to preempt", {"priority": 100, "preemptionPolicy": "Never"}),
        ("it is no higher than they", {"priority": 7}),
        ("a disruption budget allows none", {"priority": 100}),
        ("they have not run for long enough", {"priority": 100}),
        ("no card is large enough", {"priority": 100}),
        ("its quota lets in no pod as large", {"priority": 100}),
    ],
)
def test_nobody_is_evicted_without_leave(
    cluster: PocketCluster, extender: Extender, why: str, spec: dict[str, Any]
) -> None:
    """Each of these is enough for the pod to wait."""
    fill(cluster, 7)
    if "budget" in why:
        protect(cluster, 0)
    if "long enough" in why:
        limit(cluster, minRunSeconds=3600)
    if "quota" in why:
        limit(cluster, podMax={"memoryMiB": 8 * 1024})
    pod = create(cluster, 32 if "large" in why else 12, namespace="guest", **spec)
    refused(cluster, pod)
    settles(extender)
    assert evicted(cluster) == set(), why


def limit(cluster: PocketCluster, **spec: Any) -> None:
    """The guests' GPUQuota."""
    body = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUQuota", "metadata": {"name": "guest"}}
    cluster.kubectl.apply({**body, "spec": {"namespaces": ["guest"], **spec}})


@pytest.mark.slow
def test_two_wait_and_one_pod_may_go(cluster: PocketCluster, extender: Extender) -> None:
    """The higher gets its card, and nobody else is evicted for the other, who may not have the rest."""
    for _ in range(3):
        runs(cluster, "guest", 16, priority=500)
    low = name_of(runs(cluster, "guest", 16, priority=1))
    second, first = asks(cluster, 12, 50), asks(cluster, 12, 100)
    wait_for("a pod to be evicted", lambda: evicted(cluster))
    settles(extender)
    assert evicted(cluster) == {low}
    end(cluster, "guest", {low})
    arrives(cluster, first)
    settles(extender)
    assert evicted(cluster) == set()
    assert not bound(stored(cluster, name_of(second)))


@pytest.mark.slow
def test_two_wait_and_two_may_go(cluster: PocketCluster, extender: Extender) -> None:
    """What leaves for the one is no room for the other."""
    others = [name_of(runs(cluster, "guest", 16, priority=one)) for one in (500, 500, 1, 2)]
    waiters = [asks(cluster, 12, 100) for _ in range(2)]
    wait_for("both to be evicted", lambda: evicted(cluster) == set(others[2:]))
    end(cluster, "guest", set(others[2:]))
    for pod in waiters:
        arrives(cluster, pod)
    assert evicted(cluster) == set()


@pytest.mark.slow
def test_a_pod_of_higher_priority_takes_what_leaves_already(
    cluster: PocketCluster, extender: Extender
) -> None:
    """Nobody else is evicted for it; the pod that others were leaving for has another one evicted."""
    others = [name_of(runs(cluster, "guest", 16, priority=one)) for one in (1, 500, 500, 2)]
    middle = asks(cluster, 12, 50)
    wait_for("a pod to be evicted", lambda: evicted(cluster))
    high = asks(cluster, 12, 100)
    refused(cluster, high)
    wait_for("another to be evicted", lambda: len(evicted(cluster)) > 1)
    settles(extender)
    assert evicted(cluster) == {others[0], others[3]}
    assert told(cluster, "Preempting", name_of(high)) == []
    end(cluster, "guest", {others[0], others[3]})
    arrives(cluster, high)
    arrives(cluster, middle)


@pytest.mark.slow
@pytest.mark.parametrize("_round", range(2))
def test_a_leader_killed_in_between_evicts_nobody_in_vain(
    cluster: PocketCluster, extender: Extender, _round: int
) -> None:
    """Whenever it is killed, two pods of one card are evicted for a pod that needs two, and never a third."""
    for _ in range(8):
        runs(cluster, "guest", 8, priority=1)
    high = asks(cluster, 16, 100)
    seen = two_evicted(cluster, extender)
    end(cluster, "guest", seen)
    arrives(cluster, high)
    settles(extender)
    assert evicted(cluster) == set()


@pytest.mark.slow
def test_after_a_restart_nobody_is_evicted_where_the_pod_may_not_go(
    cluster: PocketCluster, extender: Extender
) -> None:
    """The extender has not been asked for the pod since: it has kube-scheduler ask, who alone knows its nodes."""
    for name, priority in (("n1", 500), ("n2", 1)):
        for _ in range(2):
            runs(cluster, "guest", 16, priority=priority, nodeSelector={HOST: name})
    high = asks(cluster, 12, 100, nodeSelector={HOST: "n1"})
    refused(cluster, high)
    extender.process.kill()
    extender.start()
    settles(extender)
    touched = "aliquot.dev/retry"
    wait_for("it to be touched", lambda: touched in stored(cluster, name_of(high))["metadata"]["annotations"])
    settles(extender)
    assert evicted(cluster) == set()


@pytest.mark.slow
def test_nobody_is_evicted_where_the_pod_may_be_no_more(cluster: PocketCluster, extender: Extender) -> None:
    """kube-scheduler does not ask when it refuses a pod everywhere itself: what it offered last is long ago."""
    for name, priority in (("n1", 500), ("n2", 1)):
        others = [runs(cluster, "guest", 16, priority=priority, nodeSelector={HOST: name}) for _ in range(2)]
        if name == "n1":
            firm = [stored(cluster, name_of(pod)) for pod in others]
    high = asks(cluster, 12, 100, nodeSelector={HOST: "n1"})
    refused(cluster, high)
    cluster.kubectl.patch("nodes", "n1", {"metadata": {"labels": {HOST: None}}}, "")
    try:
        seen = extender.looks()
        wait_for("the offer to be old", lambda: extender.looks() > seen + OFFER_SECONDS + 1, 60)
        for last in firm:
            end(cluster, "guest", {name_of(last)})
            take_over(cluster, last, priority=1)
        settles(extender)
        assert evicted(cluster) == set()
    finally:
        cluster.kubectl.patch("nodes", "n1", {"metadata": {"labels": {HOST: "n1"}}}, "")
    wait_for("a pod to be evicted", lambda: evicted(cluster))


@pytest.mark.slow
def test_room_that_is_lost_is_made_anew(cluster: PocketCluster, extender: Extender) -> None:
    """While no extender runs, somebody else is bound to the card that was freed: another pod goes, one only."""
    fill(cluster, 1)
    high = asks(cluster, 16, 100)
    wait_for("a pod to be evicted", lambda: evicted(cluster))
    extender.process.kill()
    (victim,) = evicted(cluster)
    last = stored(cluster, victim)
    end(cluster, "guest", {victim})
    take_over(cluster, last, priority=500)
    extender.start()
    wait_for("another to be evicted", lambda: evicted(cluster))
    settles(extender)
    again = evicted(cluster)
    assert len(again) == 1
    end(cluster, "guest", again)
    arrives(cluster, high)


def nominate(cluster: PocketCluster, pod: Document, node: str | None) -> None:
    """kube-scheduler has made room for a pod on this node, or has given that up."""
    path = f"/api/v1/namespaces/guest/pods/{name_of(pod)}"
    patch_status(cluster, path, {"nominatedNodeName": node})


@pytest.mark.slow
def test_a_pod_that_kube_scheduler_has_nominated_is_left_alone(
    cluster: PocketCluster, extender: Extender
) -> None:
    """The pods that it has evicted are not known to be leaving yet; once it gives up it is the extender's turn."""
    fill(cluster, 1)
    high = asks(cluster, 12, 100, schedulerName="nobody")
    nominate(cluster, high, "n2")
    assert not extender.filter(high, "n1", "n2")["NodeNames"]
    settles(extender)
    assert evicted(cluster) == set()
    nominate(cluster, high, None)
    wait_for("a pod to be evicted", lambda: evicted(cluster))


@pytest.mark.slow
def test_kube_scheduler_and_extender_do_not_both_evict(cluster: PocketCluster, extender: Extender) -> None:
    """Both are in a hurry; whoever is first, one pod goes for one pod."""
    cluster.kill("scheduler")
    extender.process.stop()
    hasty = Extender(cluster, "--preemption-seconds", "0")
    hasty.start()
    cluster.start_scheduler([entry(hasty)], *HURRY)
    try:
        fill(cluster, 1)
        for priority in (100, 101, 102, 103):
            high = asks(cluster, 12, priority)
            wait_for("a pod to be evicted", lambda: evicted(cluster))
            settles(hasty)
            (victim,) = evicted(cluster)
            end(cluster, "guest", {victim})
            arrives(cluster, high)
    finally:
        cluster.kill("scheduler")
        hasty.process.stop()
        extender.start()
        cluster.start_scheduler([entry(extender, preemptVerb="")], *HURRY)


@pytest.mark.slow
def test_a_pod_makes_way_within_a_limit(cluster: PocketCluster, extender: Extender) -> None:
    """The lowest of its quota, wherever it is; nobody else."""
    others = [name_of(runs(cluster, "guest", 16, priority=one)) for one in (50, 20, 10, 50)]
    limit(cluster, limit={"memoryMiB": 65 * 1024})
    high = asks(cluster, 12, 100)
    wait_for("a pod to be evicted", lambda: evicted(cluster))
    settles(extender)
    assert evicted(cluster) == {others[2]}
    end(cluster, "guest", evicted(cluster))
    arrives(cluster, high)
    settles(extender)
    assert evicted(cluster) == set()
