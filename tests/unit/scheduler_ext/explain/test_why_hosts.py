"""Why a pod waits: nodes without CPU for it, or that take no pods now, are no remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from aliquot.api.why import CauseKind, ChangeKind
from aliquot.dialects import load_dialects
from aliquot.kube.objects import Node
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.preemption.candidates import Candidates
from aliquot.scheduler_ext.preemption.disruption_budgets import Budgets
from aliquot.scheduler_ext.preemption.nominations import Nominations
from aliquot.scheduler_ext.state.pods import PlacedPod
from aliquot.scheduler_ext.state.running_pods import RunningPods
from tests.unit.scheduler_ext.asking import ask, cards
from tests.unit.scheduler_ext.clusters import Cluster, pod_document, read, tenant
from tests.unit.scheduler_ext.teams import quota


def test_a_node_that_was_offered_and_whose_cpu_has_gone_since_has_no_room():
    """Hours may lie between kube-scheduler's last call and the question."""
    cluster = Cluster({"n1": cards("n1", 1)})
    cluster.ledger.hosts.put_node("n1", HostShare(4000, 8000, 10))
    document = pod_document([{"gpu": "1", "gpu-mem": "16Gi"}])
    document["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
    pod, before = read(document), tenant(cluster, "n1", **{"gpu": "1", "gpu-mem": "16Gi"})
    assert not cluster.ask(pod).NodeNames
    cluster.ledger.depart(before)
    assert ask(cluster, pod).summary.startswith("1 of 1 node has room now")
    cluster.ledger.hosts.put_pod("web", "n1", HostShare(2000, 0))
    told = ask(cluster, pod)
    assert told.summary == "none of 1 node has room for it"
    assert [cause.kind for cause in told.causes] == [CauseKind.NOT_OFFERED]


@pytest.mark.parametrize("asked", [True, False], ids=["it was asked about", "it never was"])
@pytest.mark.parametrize("closed", [True, False], ids=["cordoned", "without CPU"])
def test_a_node_that_takes_no_pods_now_is_in_no_remedy(asked: bool, closed: bool):
    """Whatever kube-scheduler offered when it last asked."""
    cluster = Cluster({"n1": cards("n1", 1), "n2": cards("n2", 1)})
    cluster.ledger.hosts.put_node("n2", HostShare(4000, 8000, 10))
    tenant(cluster, "n1", **{"gpu": "1", "gpu-mem": "10Gi"})
    document = pod_document([{"gpu": "1", "gpu-mem": "20Gi"}])
    document["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
    pod = read(document)
    if asked:
        assert not cluster.ask(pod).NodeNames
    assert [change.text for change in ask(cluster, pod).changes] == [
        "ask for 16Gi of memory in place of 20Gi"
    ]
    share = HostShare(4000 if closed else 2000, 8000, 10)
    cluster.ledger.hosts.put_node("n2", share, closed=closed)
    told = ask(cluster, pod)
    assert [cause.nodes for cause in told.causes if cause.kind is CauseKind.NOT_OFFERED] == [1]
    assert [change.text for change in told.changes] == ["ask for 6Gi of memory in place of 20Gi"]


def test_no_pod_is_to_be_moved_to_a_node_that_takes_none():
    """A node that is not ready has room, and gets no pods."""
    cluster = Cluster({"n1": cards("n1", 1), "n2": cards("n2", 1)})
    tenant(cluster, "n1", **{"gpu": "1", "gpu-mem": "4Gi"})
    tenant(cluster, "n2", **{"gpu": "1", "gpu-mem": "4Gi"})
    whole = pod_document([{"gpu": "1"}])
    assert ChangeKind.MOVES in {change.kind for change in ask(cluster, whole).changes}
    cluster.ledger.hosts.put_node("n2", HostShare(0, 0, 10), closed=True)
    assert {change.kind for change in ask(cluster, whole).changes} == {ChangeKind.PART}


@pytest.mark.parametrize(("priority", "moves"), [(0, False), (-1, True)])
def test_no_pod_is_to_be_moved_where_kube_scheduler_keeps_the_cpu_for_another(priority: int, moves: bool):
    """For one nominated long ago that finds no place there; for a lower one it keeps nothing."""
    cluster = Cluster({"n1": cards("n1", 1), "n2": cards("n2", 1)})
    candidates = Candidates(cluster.ledger, RunningPods(cluster.ledger), Budgets(), cluster.quotas)
    nominations = Nominations(cluster.ledger, cluster.filter.waiting, candidates)
    cluster.filter = replace(cluster.filter, nominations=nominations)
    for name, cores in {"n1": 1, "n2": 5}.items():
        cluster.ledger.hosts.put_node(name, HostShare(1000 * cores, 64_000, 10))
        there = pod_document([{"gpu": "1", "gpu-mem": "4Gi"}])
        there["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        cluster.settle(read(there), name)
    nominated = pod_document([{"gpu": "1"}])
    nominated["spec"] |= {"priority": priority}
    nominated["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    pod = read(nominated)
    nominations.claim(pod, cluster.filter.request_of(pod))
    meta = {"uid": pod.metadata.uid, "name": pod.metadata.name, "namespace": pod.metadata.namespace}
    nominations.see(msgspec.convert({"metadata": meta, "status": {"nominatedNodeName": "n2"}}, PlacedPod))
    told = ask(cluster, pod_document([{"gpu": "1"}]))
    assert [change.moves[0].to_node for change in told.changes if change.moves] == (["n2"] if moves else [])
    small = pod_document([{"gpu": "1", "gpu-mem": "13Gi"}])
    small["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    told = ask(cluster, small)
    assert [change.text for change in told.changes if change.kind is ChangeKind.MEMORY] == (
        ["ask for 12Gi of memory in place of 13Gi"] if moves else []
    ), "n1 has no CPU left, and n2 none that is not kept"
    causes = ask(cluster, nominated).causes
    assert [cause.nodes for cause in causes if cause.kind is CauseKind.NOT_OFFERED] == [1], (
        "n2 keeps it for this one"
    )


@pytest.mark.parametrize("cores", [1, 2])
def test_no_pod_is_to_be_moved_where_it_would_take_the_last_cpu_of_what_others_are_guaranteed(cores: int):
    """Free memory of a node that takes no more pods is of no use to them, so the pod that waits would be kept out."""
    cluster = Cluster({"n1": cards("n1", 1), "n2": cards("n2", 2)})
    cluster.quotas.put(quota("others", "others", guaranteed=(16, None, None)))
    for name, left in {"n1": 64, "n2": cores}.items():
        cluster.ledger.hosts.put_node(name, HostShare(1000 * (1 + left), 64_000, 20))
        there = pod_document([{"gpu": "1", "gpu-mem": "4Gi"}])
        there["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
        cluster.settle(read(there), name)
    large = pod_document([{"gpu": "1", "gpu-mem": "14Gi"}])
    large["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    told = ask(cluster, large)
    assert any(change.moves for change in told.changes) == (cores == 2)


def test_no_pod_is_to_be_moved_to_a_node_that_another_plugin_serves_for_it():
    """As while a cluster moves from HAMi: it would get its cards from the other."""
    cluster = Cluster({"n1": cards("n1", 1), "n2": cards("n2", 1)}, dialects=load_dialects(["hami"]))
    mover = pod_document([{}])
    mover["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}
    }
    cluster.settle(read(mover), "n1")
    tenant(cluster, "n2", **{"gpu": "1", "gpu-mem": "4Gi"})
    whole = pod_document([{"gpu": "1", "gpu-mem": "16Gi"}])
    assert goals(cluster, whole) == ["n2"]
    offers = {"nvidia.com/gpu": "10", "aliquot.dev/gpu": "10"}
    served = {"metadata": {"name": "n2"}, "status": {"allocatable": offers, "capacity": offers}}
    cluster.filter.foreign.put_node(msgspec.convert(served, Node))
    assert "n2" not in goals(cluster, whole)


def goals(cluster: Cluster, pod: dict[str, Any]) -> list[str]:
    """Where the pods would go that should move for this one."""
    return [move.to_node for change in ask(cluster, pod).changes for move in change.moves]
