"""An extender that begins learns from the pods that it finds bound."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.crds.gpu_node import GPUNodeStatus
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from aliquot.scheduler_ext.app import App
from aliquot.scheduler_ext.kube_scheduler.wire import FilterArgs
from aliquot.scheduler_ext.options import parse_arguments
from aliquot.scheduler_ext.placement.workload_history import WorkloadHistory
from aliquot.scheduler_ext.placement.workload_model import WINDOW, Wanted, WorkloadModel
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.clusters import pod_document, read
from tests.unit.scheduler_ext.placing import card, node

NODES: dict[str, GPUNodeStatus] = {
    "n1": node(*(card(f"a{n}", 80) for n in range(8))),
    "n2": node(*(card(f"b{n}", 80) for n in range(8))),
}

ROOT = Path(__file__).resolve().parents[4]


def extender() -> App:
    """An extender as it is put together in earnest, with two nodes, that reads no cluster."""
    app = App(None, parse_arguments([]))  # type: ignore[arg-type] - nothing of it runs
    for name, status in NODES.items():
        app._feed._ledger.put_node(name, status)
    return app


def asked(app: App) -> Counter[Wanted]:
    """What it has learned."""
    return Counter(dict(app._decide.placer.demand.asked()))


def bound(app: App, document: dict[str, Any]) -> PlacedPod:
    """A pod that is placed and bound, as the watch shows it."""
    pod = read(document)
    assert app._decide.answer(FilterArgs(Pod=pod, NodeNames=tuple(NODES))).NodeNames
    entry = app._feed._ledger.entry(pod.metadata.uid)
    assert entry
    spec = document["spec"] | {"nodeName": entry.node}
    meta = document["metadata"]
    written = meta["annotations"] | {PLACEMENT_ANNOTATION: encode_placement(entry.placement)}
    return msgspec.convert({"metadata": meta | {"annotations": written}, "spec": spec}, PlacedPod)


CPU = {"cpu": "4", "memory": "8Gi"}


def documents() -> list[dict[str, Any]]:
    """Pods of many kinds, some of them twice."""
    small, timed = {"gpu": "1", "gpu-mem": "10Gi"}, {"gpu": "2", "gpu-mem": "20Gi", "gpu-core": "30"}
    made = [
        pod_document([small]),
        pod_document([small]),
        pod_document([timed]),
        pod_document([{"gpu": "4"}]),
        pod_document([timed, small, small], init=1),
        pod_document([small], not_card_model="Tesla T4"),
        pod_document([small], memory_class="burst"),
    ]
    for document in made[1:]:
        document["spec"]["containers"][0]["resources"]["requests"] = CPU
    return made


def test_an_extender_that_begins_knows_what_the_one_before_it_knew():
    """The kinds of pods and how many of each, from nothing but the pods that are bound."""
    before, after = extender(), extender()
    pods = [bound(before, document) for document in documents()]
    assert len(asked(before)) > 4
    for pod in pods:
        after._feed.put_pod(pod)
    assert asked(after) == asked(before)


def test_a_pod_is_learned_once():
    """Not again when it is seen bound, nor when it changes long after, when others have taken its place in memory."""
    before, after = extender(), extender()
    pods = [bound(before, document) for document in documents()]
    for app in (before, after):
        for pod in pods:
            app._feed.put_pod(pod)
        assert asked(app).total() == len(pods)
        demand = app._decide.placer.demand
        for _ in pods:
            demand._forget_oldest()
        for pod in pods:
            app._feed.put_pod(pod)
        assert not asked(app)


def test_of_the_pods_that_are_there_at_the_start_the_youngest_are_learned_from():
    """As many as are remembered, in the order in which they were made, however the API server lists them."""
    experience = WorkloadHistory(demand := WorkloadModel())
    experience.begin()
    old, young = 20, WINDOW
    order = list(range(old + young))
    random.Random(7).shuffle(order)
    for n in order:
        meta = {
            "uid": f"u{n}",
            "creationTimestamp": f"2026-11-22T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z",
        }
        share = CardShare("c", 1000 if n < old else 2000, 0)
        placed = Placement(f"u{n}", "n", (ContainerPlacement("c", ContainerKind.REGULAR, (share,)),))
        experience.note(msgspec.convert({"metadata": meta, "spec": {"nodeName": "n"}}, PlacedPod), placed)
    assert not list(demand.asked())
    experience.end()
    ((wanted, count),) = demand.asked()
    assert (wanted.slice.memory_mib, count) == (2000, young)
    assert [uid for uid, _ in demand._seen] == [f"u{n}" for n in range(old, old + young)]


def test_after_the_start_a_pod_is_learned_from_at_once():
    """As it is seen bound."""
    after, before = extender(), extender()
    pod = bound(before, documents()[0])
    experience = after._feed._experience
    assert experience
    experience.begin()
    after._feed.put_pod(pod)
    assert not asked(after)
    experience.end()
    assert asked(after) == asked(before)
    other = bound(before, documents()[2])
    after._feed.put_pod(other)
    assert asked(after) == asked(before)


@pytest.mark.parametrize("annotation", ["card-model", "c0.card-uuid"])
def test_a_wish_that_makes_no_sense_any_more_is_passed_over(annotation: str):
    """Somebody has emptied the annotation since; the pod is counted all the same."""
    before, after = extender(), extender()
    pod = bound(before, pod_document([{"gpu": "1", "gpu-mem": "10Gi"}]))
    spoiled = pod.metadata.annotations | {f"aliquot.dev/{annotation}": ""}
    meta = msgspec.structs.replace(pod.metadata, annotations=spoiled)
    after._feed.put_pod(msgspec.structs.replace(pod, metadata=meta))
    assert asked(after).total() == 1


KINDS = """
from itertools import combinations
from dataclasses import replace
from aliquot.request.card_filter import CardFilter
from aliquot.scheduler_ext.placement.workload_model import WorkloadModel
from tests.unit.scheduler_ext.placing import part, pod
demand = WorkloadModel()
for n, models in enumerate(combinations(("a10", "a100", "h100", "h200", "l40s", "t4"), 3)):
    demand.note(pod(replace(part(4), only=CardFilter(models=frozenset(models))), uid=str(n)))
print([sorted(kind.wanted.slice.only.models) for kind in demand.typical()])
"""


@pytest.mark.slow
def test_what_is_typical_comes_in_the_same_order_in_every_process():
    """Kinds of equal weight, too: whatever order sets have there, replicas choose alike."""
    found = {
        subprocess.run(
            [sys.executable, "-c", KINDS],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(found) == 1
