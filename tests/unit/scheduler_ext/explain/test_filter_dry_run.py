"""A dry run agrees with filter, on nodes that are there and on those that are not, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.api.names import CARDS_LIKE
from aliquot.crds.gpu_node import HEALTHY, Card, GPUNodeStatus
from aliquot.dialects import load_dialects
from aliquot.kube.objects import Node
from aliquot.scheduler_ext.explain.filter_dry_run import DryRunResult, read_dry_run
from aliquot.scheduler_ext.kube_scheduler.wire import WireError
from aliquot.scheduler_ext.state.ledger import Stage
from tests.tools.examples import examples
from tests.unit.scheduler_ext.clusters import Cluster, clusters, pod_document, pods, read, statuses
from tests.unit.scheduler_ext.placing import GIB

SOME = examples(40)


def ask(cluster: Cluster, pod: dict[str, Any], nodes: list[str] | list[dict[str, Any]]) -> DryRunResult:
    """A call, through the wire's format; nodes by name or whole."""
    whole = bool(nodes) and isinstance(nodes[0], dict)
    body = {"Pod": pod, **({"Nodes": {"items": nodes}} if whole else {"NodeNames": nodes})}
    return cluster.dry_run.answer(read_dry_run(json.dumps(body).encode()))


def causes(result: DryRunResult) -> dict[str, str]:
    """Why not, of every node that has a reason."""
    return result.FailedNodes | result.FailedAndUnresolvableNodes


@SOME
@given(cluster=clusters(), pod=pods())
def test_each_node_is_told_what_filter_would_say_of_it_alone(cluster: Cluster, pod: dict[str, Any]):
    """Room where filter would place the pod, and else filter's own words; every node has one answer."""
    names = [*cluster.nodes, "stranger"]
    told = ask(cluster, pod, names)
    assert sorted([*(told.NodeNames or []), *causes(told)]) == sorted(names)
    assert told.NodeNames == [name for name in names if cluster.takes(read(pod), name)]
    for name, words in causes(told).items():
        real = cluster.ask(read(pod), name)
        assert (real.FailedNodes | real.FailedAndUnresolvableNodes) == {name: words}
        assert (name in real.FailedNodes) == (name in told.FailedNodes)


@SOME
@given(cluster=clusters(), pod=pods())
def test_what_filter_chooses_is_among_the_nodes(cluster: Cluster, pod: dict[str, Any]):
    """And where it chooses none there are none."""
    told = ask(cluster, pod, list(cluster.nodes)).NodeNames or []
    chosen = cluster.takes(read(pod))
    assert (chosen in told) if told else not chosen


@SOME
@given(cluster=clusters(), pod=pods(), reserved=st.booleans())
def test_nothing_is_changed_by_asking(cluster: Cluster, pod: dict[str, Any], reserved: bool):
    """Not even the reservation that the pod itself has, which counts as free for it."""
    if reserved:
        cluster.ask(read(pod))
    cluster.now = 5.0
    before = cluster.state()
    told = ask(cluster, pod, list(cluster.nodes))
    entry = cluster.ledger.entry(pod["metadata"]["uid"])
    assert entry is None or entry.node in (told.NodeNames or [])
    assert cluster.state() == before


def as_node(name: str, status: GPUNodeStatus, how: str) -> dict[str, Any]:
    """A node as an autoscaler imagines it."""
    card = status.cards[0]
    labels = {
        "nvidia.com/gpu.count": str(len(status.cards)),
        "nvidia.com/gpu.product": card.model.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(card.memory_mib),
    }
    room = {"aliquot.dev/gpu": str(len(status.cards) * status.slices_per_card)}
    meta: dict[str, Any] = {"name": name, "labels": labels}
    if how != "discovered":
        meta = {"name": name, how: {CARDS_LIKE: "pattern"}}
    return {"metadata": meta, "status": {"allocatable": room}, "kept": {"as": "it came"}}


@SOME
@given(
    cluster=clusters(),
    pod=pods(),
    data=st.data(),
    how=st.sampled_from(["discovered", "labels", "annotations"]),
)
def test_nodes_that_do_not_exist_are_told_what_they_would_be_told(
    cluster: Cluster, pod: dict[str, Any], data: st.DataObject, how: str
):
    """The same as by filter once they are there, quotas included; they come back as they were given."""
    status = data.draw(statuses("pattern"))
    sound = [msgspec.structs.replace(c, health=HEALTHY, mig_enabled=False) for c in status.cards]
    status = msgspec.structs.replace(status, cards=tuple(sound))
    if how == "discovered":  # labels say nothing of links
        plain = (msgspec.structs.replace(c, links="", numa_node=-1, pcie_root="") for c in status.cards)
        status = msgspec.structs.replace(status, cards=tuple(plain), nics=())
    else:
        cluster.put("pattern", status)
    news = [as_node(f"new-{n}", status, how) for n in range(2)]
    old = [{"metadata": {"name": name}} for name in cluster.nodes]
    told = ask(cluster, pod, [*old, *news])
    assert "new-0" not in cluster.ledger.table
    reserve = 512 if status.cards[0].model == "Tesla T4" else 0
    for n in range(2):
        cards = [
            msgspec.structs.replace(c, uuid=f"new-{n}-{i}", reserve_mib=reserve)
            for i, c in enumerate(status.cards)
        ]
        cluster.put(f"new-{n}", msgspec.structs.replace(status, cards=tuple(cards)))
    names = [*cluster.nodes, "new-0", "new-1"]
    assert told.NodeNames == [name for name in names if cluster.takes(read(pod), name)]
    given_back = [json.loads(bytes(item)) for item in told.Nodes.items] if told.Nodes else []
    assert given_back == [node for node in [*old, *news] if node["metadata"]["name"] in told.NodeNames]


H100 = Card(uuid="h", model="NVIDIA H100 80GB HBM3", memory_mib=81000, reserve_mib=GIB)
DISCOVERED = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
}
IMAGINED = {
    "of a model that the cluster has": (DISCOVERED, {"gpu-mem": "78Gi"}, True),
    "of which the agent gives less than the driver says": (DISCOVERED, {"gpu-mem": "79976Mi"}, True),
    "and not a MiB more": (DISCOVERED, {"gpu-mem": "79977Mi"}, False),
    "with as many cards as are discovered": (DISCOVERED, {"gpu": "2", "gpu-mem": "1Gi"}, True),
    "and no more": (DISCOVERED, {"gpu": "3", "gpu-mem": "1Gi"}, False),
    "shared by NVIDIA's plugin": (
        DISCOVERED | {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"},
        {"gpu-mem": "1Gi"},
        True,
    ),
    "divided by MIG": (
        DISCOVERED | {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"},
        {"gpu-mem": "1Gi"},
        False,
    ),
    "without a count": ({"nvidia.com/gpu.memory": "81559"}, {"gpu-mem": "1Gi"}, False),
    "with a count that is none": (DISCOVERED | {"nvidia.com/gpu.count": "many"}, {"gpu-mem": "1Gi"}, False),
    "like a node that is not there": ({CARDS_LIKE: "nobody"}, {"gpu-mem": "1Gi"}, False),
    "like a node that is": ({CARDS_LIKE: "here"}, {"gpu-mem": "78Gi"}, True),
}


@pytest.mark.parametrize(("labels", "limits", "fits"), IMAGINED.values(), ids=IMAGINED.keys())
def test_an_imagined_node(labels: dict[str, str], limits: dict[str, str], fits: bool):
    """What its labels mean."""
    cluster = Cluster({"here": GPUNodeStatus(cards=(H100,))})
    pod = pod_document([limits], card_model="H100 80GB HBM3")
    node = {
        "metadata": {"name": "new", "labels": labels},
        "status": {"allocatable": {"aliquot.dev/gpu": "20"}},
    }
    told = ask(cluster, pod, [node])
    assert told.NodeNames == (["new"] if fits else [])
    assert bool(causes(told)) is not fits


def test_cards_without_our_agent_are_not_imagined():
    """A node that has nothing of ours to allocate, or that the cluster has without any agent."""
    cluster = Cluster({})
    bare = {
        "metadata": {"name": "bare", "labels": DISCOVERED},
        "status": {"allocatable": {"nvidia.com/gpu": "2"}},
    }
    known = {
        "metadata": {"name": "known", "labels": DISCOVERED},
        "status": {"allocatable": {"aliquot.dev/gpu": "20"}},
    }
    cluster.known.nodes["known"] = msgspec.convert(known, Node)  # type: ignore[index]
    told = ask(cluster, pod_document([{"gpu-mem": "1Gi"}]), [bare, known])
    assert told.NodeNames == []
    assert set(causes(told).values()) == {"node has no Aliquot agent"}


def test_a_model_that_only_the_pod_names():
    """The first node of its kind: the labels' dashes are read as the pod writes the name."""
    labels = DISCOVERED | {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    node = {
        "metadata": {"name": "new", "labels": labels},
        "status": {"allocatable": {"aliquot.dev/gpu": "20"}},
    }
    wanted = pod_document([{"gpu-mem": "1Gi"}], card_model="NVIDIA A100-SXM4-80GB")
    other = pod_document([{"gpu-mem": "1Gi"}], not_card_model="NVIDIA A100-SXM4-80GB")
    assert [ask(Cluster({}), pod, [node]).NodeNames for pod in (wanted, other)] == [["new"], []]


def test_a_node_of_a_dialects_own_plugin_takes_nobody():
    """Imagined ones, too: another project would serve the same cards."""
    cluster = Cluster({}, dialects=tuple(load_dialects(["hami"])))
    pod = pod_document([])
    pod["spec"]["containers"] = [
        {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}}}
    ]
    room = {"aliquot.dev/gpu": "20"}
    nodes = [
        {"metadata": {"name": name, "labels": DISCOVERED}, "status": {"allocatable": room | more}}
        for name, more in (("ours", {}), ("theirs", {"nvidia.com/gpu": "10"}))
    ]
    told = ask(cluster, pod, nodes)
    assert told.NodeNames == ["ours"]
    assert causes(told) == {"theirs": "another device plugin serves this resource on the node"}


def test_a_pod_that_is_being_bound_goes_nowhere_else():
    """As filter says it."""
    cluster = Cluster(
        {name: GPUNodeStatus(cards=(Card(uuid=name, memory_mib=16 * GIB),)) for name in ("n1", "n2")}
    )
    pod = pod_document([{"gpu-mem": "1Gi"}])
    cluster.ask(read(pod), "n1")
    cluster.ledger.move_on(pod["metadata"]["uid"], Stage.BINDING)
    assert ask(cluster, pod, ["n1", "n2"]).NodeNames == ["n1"]
    assert ask(cluster, pod, ["n2"]).Error
    cluster.ledger.depart(pod["metadata"]["uid"])
    assert "deleted" in ask(cluster, pod, ["n1"]).Error


def test_requests_that_make_no_sense_and_pods_of_others():
    """Every node is told the sentence; a pod without slices may go anywhere."""
    cluster = Cluster({})
    wrong = ask(cluster, pod_document([{"gpu-mem": "1"}]), ["n1", "n2"])
    assert set(wrong.FailedAndUnresolvableNodes) == {"n1", "n2"}
    assert ask(cluster, pod_document([{}]), ["n1", "n2"]).NodeNames == ["n1", "n2"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"Pod": {}}',
        b'{"Pod": {}, "NodeNames": [], "Nodes": {"items": []}}',
        b'{"Pod": {}, "Nodes": {"items": [{"metadata": 3}]}}',
    ],
)
def test_bodies_that_are_no_call(body: bytes):
    """A sentence, not a traceback."""
    with pytest.raises(WireError):
        Cluster({}).dry_run.answer(read_dry_run(body))


def test_containers_that_fit_one_by_one_must_fit_together():
    """What is free would be enough in all, but not for three in two cards; nodes that look alike are told alike."""
    status = {
        name: GPUNodeStatus(cards=tuple(Card(uuid=f"{name}-{n}", memory_mib=16 * GIB) for n in range(cards)))
        for name, cards in (("n1", 2), ("n2", 2), ("n3", 3))
    }
    three = pod_document([{"gpu-mem": "11Gi"}, {"gpu-mem": "11Gi"}, {"gpu-mem": "10Gi"}])
    told = ask(Cluster(status), three, list(status))
    assert told.NodeNames == ["n3"]
    assert told.FailedNodes == dict.fromkeys(("n1", "n2"), "containers do not fit together")


def test_a_copy_of_a_sick_node_is_healthy():
    """What is imagined has yet to fall ill."""
    sick = msgspec.structs.replace(H100, health="Unhealthy")
    cluster = Cluster({"here": GPUNodeStatus(cards=(sick,))})
    node = {"metadata": {"name": "new", "labels": {CARDS_LIKE: "here"}}}
    told = ask(cluster, pod_document([{"gpu-mem": "1Gi"}]), [{"metadata": {"name": "here"}}, node])
    assert (told.NodeNames, causes(told)) == (["new"], {"here": "card unhealthy"})


def test_an_init_container_needs_room_on_its_pods_own_cards():
    """There is a card for either, and none for both."""
    status = GPUNodeStatus(cards=tuple(Card(uuid=f"n1-{n}", memory_mib=16 * GIB) for n in range(2)))
    cluster = Cluster({"n1": status})
    cluster.settle(read(pod_document([{"gpu-mem": "11Gi"}], card_uuid="n1-0")))
    cluster.settle(read(pod_document([{"gpu-mem": "6Gi", "gpu-core": "60"}], card_uuid="n1-1")))
    pod = pod_document([{"gpu-mem": "10Gi"}, {"gpu-mem": "4Gi", "gpu-core": "50"}], init=1)
    told = ask(cluster, pod, ["n1"])
    assert (told.NodeNames, told.FailedNodes) == ([], {"n1": "containers do not fit together"})
    assert not cluster.takes(read(pod))


def test_nobody_who_waits_is_looked_at_for_a_question():
    """Not even while the asking pod's own reservation counts as free."""
    cluster = Cluster({"n1": GPUNodeStatus(cards=(Card(uuid="n1-0", memory_mib=16 * GIB),))})
    waiting = cluster.filter.waiting
    cluster.ledger.on_change(waiting.something_changed)
    pod = pod_document([{"gpu-mem": "9Gi"}])
    cluster.ask(read(pod))
    cluster.ask(read(pod_document([{"gpu-mem": "9Gi"}])))
    assert len(waiting) == 1
    waiting.changed.clear()
    changes = waiting.changes
    assert ask(cluster, pod, ["n1"]).NodeNames == ["n1"]
    assert (waiting.changed.is_set(), waiting.changes) == (False, changes)
