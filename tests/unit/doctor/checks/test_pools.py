"""GPUPools that no card is in, and cards that are promised more than once."""

from typing import Any

import pytest

from aliquot.crds.gpu_pool import GPUPool
from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.finding import Result
from aliquot.kube.objects import Pod
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from tests.unit.doctor.clusters import broken, found, gpu_node, node, pods, read, tenant, workload, worst

FAILURE, WARNING, NOT_CHECKED, OK = Result.FAILURE, Result.WARNING, Result.NOT_CHECKED, Result.OK
HERE = {"aliquot.dev/gpu-node": "true"}


def pools(**specs: Any) -> Fact[tuple[GPUPool, ...]]:
    """GPUPools by name."""
    made = [{"metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]
    return Fact.of(tuple(read(one, GPUPool) for one in made))


def holder(mib: int, cores: int = 0, *, burst: bool = False) -> Pod:
    """A pod with so much of the second card."""
    share = CardShare("GPU-gpu-1-1", mib, cores)
    container = ContainerPlacement("main", ContainerKind.REGULAR, (share,), burst=burst)
    text = encode_placement(Placement(f"uid-{mib}", "gpu-1", (container,)))
    return tenant(f"{mib}", annotations={"aliquot.dev/placement": text})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {"zone": "b"}}, "trial (no node with cards has the labels zone=b)"),
        ({"models": ["H100"], "nodeSelector": HERE}, "trial (its nodes have 'NVIDIA H200')"),
        ({}, "trial (pools before it by name have all its cards)"),
    ],
)
def test_a_pool_that_no_card_is_in(spec: dict[str, Any], words: str):
    """It says what matches nothing."""
    cluster = broken(gpu_nodes=Fact.of((gpu_node_of("NVIDIA H200"),)), pools=pools(first={}, trial=spec))
    seen = worst(cluster, "pools")
    assert (seen.result, seen.objects) == (WARNING, ("trial",))
    assert words in seen.seen


def gpu_node_of(model: str) -> Any:
    """A GPUNode whose cards are of a model."""
    made = gpu_node()
    cards = [{"uuid": card.uuid, "memoryMiB": 16384, "model": model} for card in made.status.cards]
    return read({"metadata": {"name": "gpu-1"}, "status": {"cards": cards}}, type(made))


def test_pools_whose_cards_are_there():
    """By label and model; where there are no cards at all, no pool can have one."""
    good = pools(a={"models": ["NVIDIA H200"], "nodeSelector": HERE})
    assert worst(broken(gpu_nodes=Fact.of((gpu_node_of("NVIDIA H200"),)), pools=good), "pools").result is OK
    none = broken(gpu_nodes=Fact.of(()), pools=pools(a={}), pods=pods())
    assert worst(none, "pools").result is OK


@pytest.mark.parametrize(
    ("held", "pool", "result", "words"),
    [
        ([holder(12288, burst=True), holder(8192, burst=True)], {"memoryPercent": 150}, OK, ""),
        (
            [holder(12288, burst=True), holder(8192, burst=True)],
            None,
            WARNING,
            "gpu-1: GPU-gpu-1-1 (20Gi of 16Gi)",
        ),
        ([holder(1024, 80), holder(2048, 60)], {"corePercent": 150}, OK, ""),
        (
            [holder(1024, 80), holder(2048, 60)],
            None,
            WARNING,
            "gpu-1: GPU-gpu-1-1 (140 % of 100 % of its time)",
        ),
        ([holder(12288), holder(8192)], {"memoryPercent": 150}, FAILURE, "gpu-1: GPU-gpu-1-1 (20Gi of 16Gi)"),
    ],
)
def test_a_card_that_is_over_promised(held: list[Pod], pool: Any, result: Result, words: str):
    """What an overcommitting pool allowed is too much when the pool is gone; guarantees are never overcommitted."""
    cluster = broken(pods=pods(*held), pools=pools(**({"a": pool} if pool else {})))
    seen = worst(cluster, "pools")
    assert seen.result is result, seen
    assert words in seen.seen
    if result is not OK:
        assert seen.objects == ("GPU-gpu-1-1",)


def test_pods_that_have_ended_promise_nothing():
    """Nor does a placement that cannot be read, which another check tells of."""
    ended = tenant("e", annotations=holder(20480).metadata.annotations, status={"phase": "Succeeded"})
    forged = tenant("f", annotations={"aliquot.dev/placement": "{}"})
    assert worst(broken(pods=pods(ended, forged)), "pools").result is OK


def uninstalled() -> Cluster:
    """The chart is gone; CRDs, GPUNodes and pods stay."""
    return broken(workloads={name: Fact.of(None) for name in COMPONENTS}, own_pods=Fact.of(()))


def test_nothing_is_called_enforced_or_true_without_an_agent():
    """Agents enforce, and keep GPUNodes true: after an uninstall none is known to do so."""
    for check in ("enforcement", "inventory"):
        assert {one.result for one in found(uninstalled(), check)} == {NOT_CHECKED}
    idle = workload("aliquot-agent", {"desiredNumberScheduled": 0, "numberReady": 0})
    nowhere = broken(workloads={"aliquot-agent": Fact.of(idle)}, nodes=Fact.of((node(),)))
    assert worst(nowhere, "enforcement").result is NOT_CHECKED


@pytest.mark.parametrize(
    ("ready", "words"), [(0, "is ready on 0 of 2 nodes"), (1, "is ready on 1 of 2 nodes")]
)
def test_nothing_is_called_enforced_where_an_agent_is_not_ready(ready: int, words: str):
    """As one that crashes again and again; what the chart says is told all the same."""
    status = {"desiredNumberScheduled": 2, "numberReady": ready}
    crashing = broken(workloads={"aliquot-agent": Fact.of(workload("aliquot-agent", status))})
    assert {one.result for one in found(crashing, "enforcement")} == {NOT_CHECKED}
    assert words in worst(crashing, "enforcement").seen
    watching = Fact.of(workload("aliquot-agent", status, args=["--enforcement=observe"]))
    assert worst(broken(workloads={"aliquot-agent": watching}), "enforcement").result is WARNING
