"""Why a pod waits: every node is counted once, each change helps when it is made, and asking changes nothing."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import Phase, event, example, given
from hypothesis import strategies as st

from aliquot.api.why import Answer, CauseKind, Change, ChangeKind, State
from aliquot.crds.gpu_node import Card, GPUNodeStatus
from aliquot.crds.gpu_quota import GPUQuota
from aliquot.dialects import load_dialects
from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Condition, PodStatus
from aliquot.scheduler_ext.explain.hypothetical_nodes import KnownNodes
from aliquot.scheduler_ext.explain.why import Why
from aliquot.scheduler_ext.state.ledger import Stage
from tests.tools.examples import examples
from tests.unit.scheduler_ext.asking import ask, cards, foreign
from tests.unit.scheduler_ext.clusters import (
    MODELS,
    Cluster,
    clusters,
    pod_document,
    pods,
    read,
    renamed,
    tenant,
)
from tests.unit.scheduler_ext.drill import Drill
from tests.unit.scheduler_ext.placing import GIB
from tests.unit.scheduler_ext.teams import quota
from tests.unit.scheduler_ext.world import World, WorldPod

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

SOME = examples(40)


def changed(pod: dict[str, Any], change: Change) -> Pod:
    """The pod after a change of its own."""
    made = copy.deepcopy(pod)
    annotations = {**made["metadata"]["annotations"], **change.annotations}
    made["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    for container in (*made["spec"]["initContainers"], *made["spec"]["containers"]):
        if container["name"] == change.container:
            container["resources"] = {"limits": change.limits}
    return renamed(read(made))


def make(cluster: Cluster, pod: dict[str, Any], change: Change) -> None:
    """Make a change; AssertionError when the pod, or one that moves for it, finds no room then.

    The room is there for whoever goes first, and nobody else waits.
    """
    for waiter in cluster.filter.waiting.all():
        cluster.filter.waiting.forget(waiter.request.uid)
    if change.kind is not ChangeKind.MOVES:
        assert cluster.takes(changed(pod, change))
        return
    moved = {move.uid: cluster.settled[move.uid] for move in change.moves}
    for uid in moved:
        cluster.ledger.depart(uid)
    (node,) = {move.from_node for move in change.moves}
    assert cluster.ask(renamed(read(pod)), node).NodeNames == [node]
    for move in change.moves:
        assert move.to_node != node
        assert cluster.ask(renamed(moved[move.uid]), move.to_node).NodeNames == [move.to_node]


FULL = clusters(tenants=12)


@SOME
@given(cluster=FULL, pod=pods(), offered=st.sets(st.sampled_from(["n0", "n1", "n2", "n3", "n4"])))
def test_every_node_is_counted_once(cluster: Cluster, pod: dict[str, Any], offered: set[str]):
    """Under the words that filter has for it; nodes that were not offered by themselves."""
    before = cluster.state()
    told = ask(cluster, pod)
    assert cluster.state() == before
    assert sum(cause.nodes for cause in told.causes) == told.nodes == len(cluster.nodes)
    for name in cluster.nodes:
        real = cluster.ask(renamed(read(pod)), name)
        words = next(iter((real.FailedNodes | real.FailedAndUnresolvableNodes).values()), "has room")
        assert words in {cause.text for cause in told.causes}
        for uid in [entry.uid for entry in cluster.ledger.unconfirmed()]:
            cluster.ledger.release(uid)
    offered &= set(cluster.nodes)
    cluster.filter.waiting.refused(read(pod), cluster.filter.request_of(read(pod)), tuple(offered))
    told = ask(cluster, pod)
    assert sum(cause.nodes for cause in told.causes) == told.nodes == len(cluster.nodes)
    others = [cause.nodes for cause in told.causes if cause.kind is CauseKind.NOT_OFFERED]
    assert others == ([len(cluster.nodes) - len(offered)] if len(offered) < len(cluster.nodes) else [])


def crowd(seed: int) -> tuple[Cluster, list[dict[str, Any]]]:
    """A cluster that is nearly full, and pods that ask for more than is left."""
    chance = random.Random(seed)
    nodes = {
        f"n{n}": GPUNodeStatus(
            slices_per_card=chance.choice([3, 10]),
            cards=tuple(
                Card(uuid=f"n{n}-{i}", model=chance.choice(MODELS), memory_mib=chance.choice([16, 24]) * GIB)
                for i in range(chance.randint(1, 3))
            ),
        )
        for n in range(chance.randint(2, 5))
    }
    amounts = [{"memoryMiB": chance.randint(16, 120) * GIB} for _ in range(4)]
    specs = [
        {"namespaces": [team], "guaranteed": amounts.pop(), "limit": amounts.pop()} for team in ("a", "b")
    ]
    chosen = chance.sample(specs, chance.choice([0, 0, 1, 2]))
    quotas = [
        msgspec.convert({"metadata": {"name": spec["namespaces"][0]}, "spec": spec}, GPUQuota)
        for spec in chosen
    ]
    cluster = Cluster(nodes, quotas)
    for _ in range(30):
        cluster.settle(read(_some_pod(chance, chance.choice([2, 3, 5, 7, 9]))))
    asking = [_some_pod(chance, chance.choice([6, 9, 12, 16])) for _ in range(6)]
    return cluster, asking


def _some_pod(chance: random.Random, gib: int) -> dict[str, Any]:
    containers = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        limits = {"gpu": chance.choice(["1", "1", "1", "2"])}
        if chance.random() < 0.8:
            limits["gpu-mem"] = f"{gib}Gi"
        elif chance.random() < 0.7:
            limits["gpu-mem-percent"] = str(gib * 5)
        if len(limits) > 1 and chance.random() < 0.4:
            limits["gpu-core"] = str(chance.choice([20, 40, 70]))
        containers.append(limits)
    only = {"card_model": chance.choice(MODELS)} if chance.random() < 0.3 else {}
    init = chance.choice([0, len(containers) - 1])
    return pod_document(containers, chance.choice("ab"), init, **only)


@examples(30, phases=(Phase.explicit, Phase.generate))
@example(seed=1004)
@given(seed=st.integers(0, 1 << 32))
def test_each_change_helps(seed: int):
    """Made, it gives the pod room by the real filter, and every pod that moves for it, too.

    Once a pod that moved was kept out by its quota, beside the one that it had moved for.
    """
    cluster, asking = crowd(seed)
    for pod in asking:
        before = cluster.state()
        told = ask(cluster, pod)
        assert cluster.state() == before
        assert [change.cost for change in told.changes] == sorted(change.cost for change in told.changes)
        if told.changes:
            assert not cluster.takes(read(pod))
        for change in sorted(told.changes, key=lambda change: len(change.moves)):
            event(f"{change.kind}, {len(change.moves)} moved, {len(pod['spec']['initContainers'])} init")
            make(cluster, pod, change)
        if any(change.moves for change in told.changes):
            break  # the cluster is another now


@SOME
@given(cluster=FULL, pod=pods(1))
def test_no_smaller_reduction_would_do(cluster: Cluster, pod: dict[str, Any]):
    """One MiB, percent or card more than proposed, and there is no room."""
    for change in ask(cluster, pod).changes:
        more = {
            ChangeKind.MEMORY: ("aliquot.dev/gpu-mem", "aliquot.dev/gpu-mem-percent"),
            ChangeKind.CORES: ("aliquot.dev/gpu-core",),
            ChangeKind.CARDS: ("aliquot.dev/gpu",),
        }.get(change.kind, ())
        for key in set(more).intersection(change.limits):
            assert not cluster.takes(changed(pod, with_limit(change, key, one_more(change.limits[key]))))


def with_limit(change: Change, key: str, value: str) -> Change:
    """The same change, but for one limit."""
    return msgspec.structs.replace(change, limits={**change.limits, key: value})


def one_more(value: str) -> str:
    """A limit that is one more."""
    for suffix, mib in (("Gi", GIB), ("Mi", 1)):
        if value.endswith(suffix):
            return f"{int(value.removesuffix(suffix)) * mib + 1}Mi"
    return str(int(value) + 1)


def kinds(told: Answer) -> list[ChangeKind]:
    """What would help, the cheapest first."""
    return [change.kind for change in told.changes]


def test_the_fewest_pods_with_the_least_memory_move():
    """One of 7 GiB, for which there is room; one of 6 would not do, and those of 9 and 14 have nowhere to go."""
    cluster = Cluster({name: cards(name, 1) for name in ("n0", "n1", "n2")})
    tenant(cluster, "n0", gpu_mem="14Gi")
    tenant(cluster, "n1", gpu_mem="9Gi")
    for size in ("6Gi", "7Gi"):
        tenant(cluster, "n2", gpu_mem=size)
    told = ask(cluster, pod_document([{"gpu-mem": "10Gi"}]))
    moves = next(change for change in told.changes if change.kind is ChangeKind.MOVES)
    assert [(m.memory_mib, m.from_node, m.to_node) for m in moves.moves] == [(7 * GIB, "n2", "n1")]
    assert told.summary == "none of 3 nodes has room for it"
    assert [(cause.text, cause.nodes) for cause in told.causes] == [("short of memory on every card", 3)]


def test_a_pod_that_has_nowhere_to_go_is_not_to_be_moved():
    """There is no such proposal where all other nodes are as full."""
    cluster = Cluster({name: cards(name, 1) for name in ("n0", "n1")})
    for name in cluster.nodes:
        tenant(cluster, name, gpu_mem="12Gi")
    told = ask(cluster, pod_document([{"gpu-mem": "8Gi"}]))
    assert kinds(told) == [ChangeKind.MEMORY]
    assert told.changes[0].limits == {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": "4Gi"}
    assert told.changes[0].text == "ask for 4Gi of memory in place of 8Gi"


def test_another_model_is_the_cheapest_change():
    """It costs the pod nothing of its size."""
    cluster = Cluster(
        {"n0": cards("n0", 1), "n1": cards("n1", 2, model="Tesla T4"), "n2": cards("n2", 1, model="A10")}
    )
    tenant(cluster, "n0", gpu="1")
    told = ask(cluster, pod_document([{"gpu-mem": "8Gi"}], card_model="H200", not_card_uuid="n1-0"))
    assert kinds(told)[0] is ChangeKind.MODEL
    assert told.changes[0].text == "take cards of model A10; or of Tesla T4 (1 node)"
    assert told.changes[0].annotations["aliquot.dev/card-model"] == "A10"
    assert told.changes[0].annotations["aliquot.dev/not-card-uuid"] is None


def test_a_node_is_emptied_for_whole_cards_or_a_part_is_taken():
    """Who asks for whole cards is told how much of a card there is."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1)})
    tenant(cluster, "n0", gpu_mem="4Gi")
    tenant(cluster, "n1", gpu_mem="5Gi")
    told = ask(cluster, pod_document([{"gpu": "1"}]))
    assert kinds(told) == [ChangeKind.MOVES, ChangeKind.PART]
    assert told.changes[0].moves[0].memory_mib == 4 * GIB
    assert told.changes[1].limits == {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem-percent": "75"}


def test_only_bound_pods_are_moved():
    """What has been written, but not been seen, may be otherwise."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1, model="Tesla T4")})
    other, pod = (
        read(pod_document([{"gpu-mem": "4Gi"}])),
        pod_document([{"gpu-mem": "14Gi"}], card_model="H200"),
    )
    cluster.settle(other, "n0")
    assert ChangeKind.MOVES in kinds(ask(cluster, pod))
    cluster.ledger.release(other.metadata.uid)
    cluster.ask(other, "n0")
    cluster.ledger.move_on(other.metadata.uid, Stage.ASSUMED)
    assert ChangeKind.MOVES not in kinds(ask(cluster, pod))


def test_one_card_less_is_proposed_where_that_is_enough():
    """The least reduction may be of one."""
    cluster = Cluster({"n0": cards("n0", 3)})
    (change,) = ask(cluster, pod_document([{"gpu": "4", "gpu-mem": "8Gi"}])).changes
    assert (change.text, change.limits["aliquot.dev/gpu"]) == ("ask for 3 cards in place of 4", "3")


def test_who_borrowed_what_is_owed_by_now_is_not_to_be_moved():
    """It would not be let in again."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1)})
    cluster.settle(read(pod_document([{"gpu-mem": "12Gi"}], namespace="b")), "n0")
    del cluster.settled[
        tenant(cluster, "n1", gpu_mem="2Gi")
    ]  # it is gone from the API server: nobody to move
    pod = pod_document([{"gpu-mem": "16Gi"}])
    assert ChangeKind.MOVES in kinds(ask(cluster, pod))
    cluster.quotas.put(quota("a", "a", guaranteed=(30, None, None)))
    assert ChangeKind.MOVES not in kinds(ask(cluster, pod))


STATES = {
    State.FINISHED: {"phase": "Succeeded"},
    State.BOUND: {"node": "n0"},
}


@pytest.mark.parametrize(("state", "stored"), STATES.items(), ids=STATES.keys())
def test_pods_that_do_not_wait(state: State, stored: dict[str, str]):
    """They are told so, without a look at any node."""
    told = ask(Cluster({"n0": cards("n0", 1)}), pod_document([{"gpu-mem": "1Gi"}]), **stored)
    assert (told.state, told.nodes, told.changes) == (state, 0, ())


def test_pods_that_wait_for_something_else():
    """Gates, a request that makes no sense, no slices, a place that waits for its bind, and no pod at all."""
    cluster = Cluster({"n0": cards("n0", 1)})
    gated = Condition(type="PodScheduled", status="False", reason="SchedulingGated", message="gated")
    pod = msgspec.structs.replace(
        read(pod_document([{"gpu-mem": "1Gi"}])), status=PodStatus(conditions=(gated,))
    )
    assert ask(cluster, pod).state is State.GATED
    assert "did you mean" in ask(cluster, pod_document([{"gpu-mem": "1"}])).summary
    assert ask(cluster, pod_document([{}])).state is State.NO_SLICES
    placed = pod_document([{"gpu-mem": "1Gi"}])
    cluster.ask(read(placed))
    assert ask(cluster, placed).state is State.RESERVED
    assert "node n0" in ask(cluster, placed).summary
    why = Why(World(), cluster.filter, cluster.known)
    assert asyncio.run(why.answer("a", "nobody")).state is State.ABSENT
    world = World()
    world.line = "down"
    with pytest.raises(ApiError):
        asyncio.run(Why(world, cluster.filter, cluster.known).answer("a", "nobody"))


def test_a_pod_that_has_room_by_now():
    """It is told to wait for kube-scheduler, whose own words are kept."""
    refused = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/2 nodes")
    pod = msgspec.structs.replace(
        read(pod_document([{"gpu-mem": "1Gi"}])), status=PodStatus(conditions=(refused,))
    )
    told = ask(Cluster({name: cards(name, 1) for name in ("n0", "n1")}), pod)
    assert told.summary == "2 of 2 nodes have room now: it gets one when kube-scheduler asks again"
    assert (told.scheduler, told.asked, told.changes) == ("0/2 nodes", False, ())


def test_nobody_but_the_pod_is_named():
    """The answer has no name of any other pod or namespace."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1)})
    tenant(cluster, "n0", gpu_mem="4Gi")
    tenant(cluster, "n1", gpu_mem="5Gi")
    text = msgspec.json.encode(ask(cluster, pod_document([{"gpu": "1"}], namespace="b"))).decode()
    assert '"moves"' in text
    assert '"a"' not in text
    assert not any(pod.metadata.name in text for pod in cluster.settled.values())


def test_a_tenant_goes_only_where_its_own_request_lets_it():
    """As the API server has it: one that must have its model, or its very card, has nowhere to go."""
    for only, goes in (({}, True), ({"card_model": "H200"}, False), ({"card_uuid": "n0-0"}, False)):
        cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1, model="Tesla T4", gib=24)})
        cluster.settle(read(pod_document([{"gpu-mem": "12Gi"}], **only)), "n0")
        told = ask(cluster, pod_document([{"gpu-mem": "8Gi"}], card_model="H200"))
        assert (ChangeKind.MOVES in kinds(told)) is goes


def test_a_percentage_is_not_moved_to_a_larger_card():
    """It would take more there than it has, which its quota may not bear."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1, gib=24)})
    tenant(cluster, "n0", gpu_mem_percent="25")
    tenant(cluster, "n1", gpu_mem="16Gi")
    pod = pod_document([{"gpu-mem": "13Gi"}])
    assert ChangeKind.MOVES not in kinds(ask(cluster, pod))
    cluster.put("n2", cards("n2", 1))
    tenant(cluster, "n2", gpu_mem="4Gi")
    assert ChangeKind.MOVES in kinds(ask(cluster, pod))


def test_pods_of_a_daemon_set_stay():
    """They would be made again on the same node."""
    for kind, goes in (("ReplicaSet", True), ("DaemonSet", False)):
        cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1, model="Tesla T4")})
        made = pod_document([{"gpu-mem": "12Gi"}])
        made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "owner"}]
        cluster.settle(read(made), "n0")
        told = ask(cluster, pod_document([{"gpu-mem": "8Gi"}], card_model="H200"))
        assert (ChangeKind.MOVES in kinds(told)) is goes


def test_a_place_that_others_are_leaving():
    """Neither has room now nor waits for more."""
    cluster = Cluster({"n0": cards("n0", 1)})
    pod = read(pod_document([{"gpu-mem": "1Gi"}]))
    request = cluster.filter.request_of(pod)
    placement = cluster.placer.look(request, ["n0"]).placement
    assert placement
    cluster.ledger.hold(request, placement)
    told = ask(cluster, pod)
    assert told.state is State.HELD
    assert told.summary == "a place on node n0 is held for it, which others are leaving"


def test_a_member_of_a_group_is_told_what_the_group_waits_for():
    """Room for one is not enough; nodes are counted as for a pod that goes alone."""
    drill = Drill()
    members = drill.group("train", 5)
    text = "group default/train: 4 of the 5 members that it needs fit at once"
    assert drill.why(members[0]) == text
    drill.world.pods[members[0].metadata.name] = WorldPod(members[0])
    meta = members[0].metadata
    told = asyncio.run(Why(drill.world, drill.filter, KnownNodes()).answer(meta.namespace, meta.name))
    assert told.group == text
    assert told.summary == f"2 of 2 nodes have room for it alone, but its group has to wait: {text}"
    assert told.changes == ()


def test_a_pod_that_no_scheduler_asks_for_is_told_so():
    """It was made while the webhook was away, or where its dialect is not switched on; it would wait for ever."""
    cluster = Cluster({"n0": cards("n0", 1)}, dialects=load_dialects(["hami"]))
    made = pod_document([{"gpu-mem": "4Gi"}])
    made["spec"]["schedulerName"] = "default-scheduler"
    told = ask(cluster, made)
    assert told.state is State.NOT_SENT
    assert told.summary == (
        "its schedulerName is default-scheduler, which does not ask Aliquot: it was made while the webhook was away; "
        "delete it and make it anew"
    )
    told = ask(cluster, foreign({"nvidia.com/gpumem": "3000"}))
    assert told.state is State.NOT_SENT
    assert "a namespace for which the dialect is not switched on (dialectNamespaces)" in told.summary


def test_a_cluster_whose_own_scheduler_asks_is_believed():
    """What has been asked for waits for room, whatever the scheduler's name."""
    cluster = Cluster({"n0": cards("n0", 1)})
    made = pod_document([{"gpu-mem": "20Gi"}])
    made["spec"]["schedulerName"] = "default-scheduler"
    cluster.filter.waiting.refused(read(made), cluster.filter.request_of(read(made)), ("n0",))
    assert ask(cluster, made).state is State.WAITING


def test_an_agent_that_is_away_is_told():
    """Its GPUNode is still there, and its kubelet offers nothing; more slices would not help."""
    cluster = Cluster({"n0": cards("n0", 1), "n1": cards("n1", 1)}, offered={"n0": 0, "n1": 1})
    tenant(cluster, "n1", gpu="1", gpu_mem="4Gi")
    told = ask(cluster, pod_document([{"gpu": "1", "gpu-mem": "4Gi"}]))
    assert {cause.text for cause in told.causes} == {
        "the node's Aliquot agent is away, its kubelet offers no slice",
        "no slice left on the node (agent.slicesPerCard bounds them)",
    }
