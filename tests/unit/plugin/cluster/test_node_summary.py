"""What a node's GPUNode says of its free capacity, and how often that is written."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.crds.gpu_node import UNHEALTHY, Card, GPUNodeStatus, Summary
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import Node, ObjectMeta, Pod
from aliquot.plugin.cluster.gpu_node import GpuNodePublisher
from aliquot.plugin.cluster.node_summary import NodeSummary
from aliquot.plugin.cluster.own_node import OwnNode
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.state.node_ledger import Capacity, NodeLedger
from aliquot.plugin.util.latest_value import LatestValue
from aliquot.request.placement import CardShare, Charge, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind
from tests.unit.kube.conftest import KubeServer

A, B = Card(uuid="a", memory_mib=16384), Card(uuid="b", memory_mib=16384)
NODE = GPUNodeStatus(cards=(A, B))
SICK = replace(B, health=UNHEALTHY)
DIVIDED = replace(B, mig_enabled=True)
OUTSIDE = Api(Access("http://127.0.0.1:1"))
FOREVER_S = 1e9


def bound(name: str, mib: int, card: str = "a", text: str = "") -> Pod:
    """A pod that the scheduler has bound to this node."""
    share = CardShare(card, mib, 0)
    placement = Placement(f"uid-{name}", "n1", (ContainerPlacement("c", ContainerKind.REGULAR, (share,)),))
    annotations = {PLACEMENT_ANNOTATION: text or encode_placement(placement)}
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", annotations=annotations)
    return Pod(metadata=meta)


def ledger(capacities: Mapping[str, Capacity], *charges: Mapping[str, Charge]) -> NodeLedger:
    """A ledger with these pods in it, `uid-0` first."""
    made = NodeLedger(capacities)
    for number, charge in enumerate(charges):
        made.adopt(f"uid-{number}", charge)
    return made


def pair(**second: Any) -> dict[str, Capacity]:
    """Two cards of 16Gi; what the second has otherwise."""
    return {"a": Capacity(16384), "b": Capacity(**{"usable_mib": 16384, **second})}


@pytest.mark.parametrize(
    ("status", "books", "pods", "summary"),
    [
        (NODE, ledger(pair()), [], ("2/2", "32Gi", "0", "32Gi", "16Gi")),
        # A pod that was let in, and one that is bound and has not come to the gate.
        (
            NODE,
            ledger(pair(), {"a": Charge(4096, slots=1)}),
            [bound("p", 1024, "b")],
            ("2/2", "32Gi", "5Gi", "27Gi", "15Gi"),
        ),
        # One that was let in is counted once, and one whose placement is unreadable is promised nothing.
        (
            NODE,
            ledger(pair(), {"a": Charge(4096, slots=1)}),
            [bound("0", 4096), bound("q", 1, text="{}")],
            ("2/2", "32Gi", "4Gi", "28Gi", "16Gi"),
        ),
        # What a sick card has is promised, and not free; a card divided by MIG has nothing for slices.
        (
            replace(NODE, cards=(A, SICK)),
            ledger(pair(), {"b": Charge(4096, slots=1)}),
            [],
            ("1/2", "32Gi", "4Gi", "16Gi", "16Gi"),
        ),
        (
            replace(NODE, cards=(A, DIVIDED)),
            ledger(pair(divided=True)),
            [],
            ("2/2", "16Gi", "0", "16Gi", "16Gi"),
        ),
        # Memory that nobody can get: beside a tenant that holds the card alone, and where no slice is left.
        (
            NODE,
            ledger(pair(), {"b": Charge(1024, 100, 1, exclusive=True)}),
            [],
            ("2/2", "32Gi", "1Gi", "16Gi", "16Gi"),
        ),
        (
            replace(NODE, slices_per_card=2),
            ledger(pair(), {"a": Charge(1024, slots=2)}),
            [],
            ("2/2", "32Gi", "1Gi", "16Gi", "16Gi"),
        ),
        # Overcommitted: burst slices leave room for guarantees until all that may be promised is.
        (
            NODE,
            ledger(pair(extra_mib=16384), {"b": Charge(12288, slots=1, burst_mib=12288)}),
            [],
            ("2/2", "32Gi", "12Gi", "32Gi", "16Gi"),
        ),
        (
            NODE,
            ledger(pair(), {"b": Charge(20480, slots=1)}),
            [],
            ("2/2", "32Gi", "20Gi", "16Gi", "16Gi"),
        ),
        (GPUNodeStatus(), ledger({}), [], ("0/0", "0", "0", "0", "0")),
    ],
)
def test_the_summary(
    tmp_path: Path, status: GPUNodeStatus, books: NodeLedger, pods: list[Pod], summary: tuple[str, ...]
):
    """Healthy cards, memory, what is promised, what is free, and the largest slice that fits."""
    known = Pods(OUTSIDE, "n1", tmp_path)
    for pod in pods:
        known._seen(pod)
    healthy, memory, promised, free, largest = summary
    assert NodeSummary(known, books).of(status) == Summary(
        cards=len(status.cards),
        healthy=healthy,
        memory=memory,
        promised=promised,
        free=free,
        largest_free_slice=largest,
    )


class Scene:
    """A publisher of two cards whose API server keeps what is patched."""

    def __init__(self, kube: KubeServer, api: Api, cache: Path, every_s: float) -> None:
        self.kube = kube
        self.pods, self.status = Pods(api, "n1", cache), LatestValue(NODE)
        node = OwnNode(api, "n1")
        node.put(Node(metadata=ObjectMeta(name="n1", uid="uid-n1")))
        summaries = NodeSummary(self.pods, ledger(pair()))
        self.publisher = GpuNodePublisher(api, node, self.status, summaries, every_s)
        kube.answer = self._get

    @property
    def writes(self) -> list[Any]:
        """The statuses that were written."""
        return [body["status"] for _, path, _, body in self.kube.requests if path.endswith("/status")]

    def _get(self, request: web.Request) -> web.Response | None:
        if request.method != "GET" or not request.path.endswith("/gpunodes/n1"):
            return None
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
        status = self.writes[-1] if self.writes else {}
        return web.json_response({"metadata": {"name": "n1", "ownerReferences": [owner]}, "status": status})


def play(cache: Path, every_s: float, scene: Callable[[Scene], Awaitable[None]]) -> None:
    """Have a publisher run during the scene, which begins when it has written once."""

    async def run() -> None:
        async with KubeServer() as kube, Api(Access(kube.url)) as api:
            stage = Scene(kube, api, cache, every_s)
            task = asyncio.create_task(stage.publisher.run())
            try:
                await kube.until(lambda: len(stage.writes) == 1, 30)
                await scene(stage)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


async def storm(stage: Scene, name: str) -> None:
    """A hundred pods are bound one after the other."""
    for number in range(100):
        stage.pods._seen(bound(f"{name}-{number}", 64))
        await asyncio.sleep(0)


def test_pods_that_come_in_a_storm_are_written_in_one_go(tmp_path: Path):
    """Until it is time for the next write nothing is written of pods; what happens to a card is written at once."""

    async def scene(stage: Scene) -> None:
        await storm(stage, "before")
        await stage.kube.until(lambda: len(stage.writes) > 1, 30)
        await storm(stage, "after")
        stage.status.set(replace(NODE, cards=(A, SICK)))
        await stage.kube.until(lambda: len(stage.writes) > 2, 30)
        told = [(one["summary"]["promised"], one["summary"]["healthy"]) for one in stage.writes]
        assert told == [("0", "2/2"), ("6400Mi", "2/2"), ("12800Mi", "1/2")]

    play(tmp_path, FOREVER_S, scene)


def test_a_pod_shows_when_it_is_time(tmp_path: Path):
    """The summary alone is reason enough for a write."""

    async def scene(stage: Scene) -> None:
        stage.pods._seen(bound("p", 4096))
        await stage.kube.until(lambda: len(stage.writes) > 1, 30)
        assert stage.writes[-1]["summary"]["promised"] == "4Gi"
        assert stage.writes[-1]["summary"]["largestFreeSlice"] == "16Gi"

    play(tmp_path, 0, scene)
