"""Many nodes that are mere objects, pods that come at a rate, and who counts afterwards what each card was promised.

    with Fleet(nodes=500) as fleet:
        figures = fleet.flood(pods=2000, per_second=100)
        fleet.audit()

kube-scheduler and extender are real and configured as the chart has them; there are no kubelets, so that bound pods
stay as they are. The auditor reads the API server alone.
"""

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import yaml

from aliquot.sandbox.cluster.client import MERGE_PATCH, Client, Credentials
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program
from tests.integration.extenders import GPU, MEM, Extender, manifest

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.cluster import PocketCluster

ROOT: Final = Path(__file__).parents[2]
CRDS: Final = ROOT / "deploy/crds"
PLACEMENT: Final = "aliquot.dev/placement"
GPU_NODES: Final = "/apis/aliquot.dev/v1alpha1/gpunodes"
PODS: Final = "/api/v1/namespaces/default/pods"
CARD_GIB, CARDS, SLICES_PER_CARD = 16, 2, 10
SIZES_GIB: Final = (4, 8, 8, 8)
"""That fill cards without a rest, whichever comes first."""
AT_ONCE: Final = 16
PATIENCE_S: Final = 300.0

Json = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """What came of a flood.

    Attributes:
        created_per_second: How many pods the API server took.
        bound_per_second: How many got a node, from the first creation to the last Binding.
        waits: Seconds from each pod's creation to its Binding, the shortest first.
    """

    created_per_second: float
    bound_per_second: float
    waits: Sequence[float] = field(repr=False)

    def wait(self, percentile: int) -> float:
        """So many of hundred pods were bound within these seconds."""
        return statistics.quantiles(self.waits, n=100)[percentile - 1]


class Fleet:
    """A control plane of its own with such nodes."""

    def __init__(self, nodes: int, *, seed: int = 1) -> None:
        """Look for all programs; NotAvailableError where one is missing."""
        program("kube-scheduler")
        self.plane = ControlPlane()
        self._names = [f"node-{number:04}" for number in range(nodes)]
        self._dice = random.Random(seed)

    def __enter__(self) -> Self:
        self.plane.__enter__()
        try:
            self.plane.define(*CRDS.glob("*.yaml"))
            asyncio.run(self._make_nodes())
            self._extender = Extender(cast("PocketCluster", self.plane))
            self._extender.start()
            configuration = yaml.safe_load((ROOT / "deploy/scheduler/configuration.yaml").read_text())
            configuration["extenders"][0]["urlPrefix"] = self._extender.url
            self.plane.start_scheduler(configuration, "aliquot-scheduler")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_extender"):
            self._extender.process.stop()
        self.plane.down()

    def flood(self, pods: int, per_second: float) -> Figures:
        """Create pods at this rate, and wait until all are bound; their sizes add up to 7 GiB each."""
        return asyncio.run(self._flood(pods, per_second))

    def audit(self) -> Counter[str]:
        """The slices of each node, once nothing was promised twice; AssertionError that names what was."""
        return audit(
            self.plane.kubectl.list("nodes"),
            self.plane.kubectl.list("gpunodes.aliquot.dev"),
            self.plane.kubectl.list("pods", "default"),
        )

    async def _make_nodes(self) -> None:
        async with _Calls(self.plane.kubeconfig) as calls:
            await calls.each(self._make_node(calls.client, name) for name in self._names)

    async def _make_node(self, client: Client, name: str) -> None:
        """As kubelet and agent publish it."""
        room = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(CARDS * SLICES_PER_CARD)}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": room, "allocatable": room, "conditions": ready}
        await client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE_PATCH)
        await client.patch(f"/api/v1/nodes/{name}/status", {"status": status}, MERGE_PATCH)
        cards = [
            {"uuid": f"{name}-{n}", "index": n, "memoryMiB": CARD_GIB << 10, "health": "Healthy"}
            for n in range(CARDS)
        ]
        published = {"slicesPerCard": SLICES_PER_CARD, "cards": cards}
        meta = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
        await client.create(GPU_NODES, meta)
        await client.patch(f"{GPU_NODES}/{name}/status", {"status": published}, MERGE_PATCH)

    async def _flood(self, pods: int, per_second: float) -> Figures:
        created, bound = dict[str, float](), dict[str, float]()
        async with _Calls(self.plane.kubeconfig) as calls:
            watching = asyncio.create_task(_note_bound(calls.client, bound, pods))
            begin = time.monotonic()
            waits = (begin + number / per_second for number in range(pods))
            bodies = [manifest(self._dice.choice(SIZES_GIB), f"pod-{number:05}") for number in range(pods)]
            await calls.each(
                _create(calls.client, body, at, created) for body, at in zip(bodies, waits, strict=True)
            )
            async with asyncio.timeout(PATIENCE_S):
                await watching
        took = [bound[name] - created[name] for name in created]
        end = max(bound.values())
        return Figures(pods / (max(created.values()) - begin), pods / (end - begin), sorted(took))


async def _create(client: Client, body: Json, at: float, created: dict[str, float]) -> None:
    """Create a pod when its time has come."""
    await asyncio.sleep(max(at - time.monotonic(), 0))
    created[body["metadata"]["name"]] = time.monotonic()
    await client.create(PODS, body)


async def _note_bound(client: Client, bound: dict[str, float], pods: int) -> None:
    """Note when each pod is first seen with a node, until so many have one."""
    async for notice in client.follow("/api/v1/pods"):
        if notice.type != "SYNCED" and notice.object["spec"].get("nodeName"):
            bound.setdefault(notice.object["metadata"]["name"], time.monotonic())
        if len(bound) == pods:
            return


class _Calls:
    """A client, and a bound to the calls that are under way."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Self:
        self.client = Client(Credentials.of_kubeconfig(self._kubeconfig))
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(asyncio.CancelledError):
            await self.client.close()

    async def each(self, calls: Any) -> None:
        """Make all of these, in their order, some at a time."""

        async def in_turn(call: Any) -> None:
            async with self._turns:
                await call

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(in_turn(call))


def audit(nodes: Sequence[Json], gpu_nodes: Sequence[Json], pods: Sequence[Json]) -> Counter[str]:
    """Add up by hand what bound pods were promised, against what nodes have.

    Returns:
        Slices promised, by node.

    Raises:
        AssertionError: a card, a kubelet or a pod is promised wrongly; it names it.
    """
    has = {card["uuid"]: card["memoryMiB"] for node in gpu_nodes for card in node["status"]["cards"]}
    home = {card["uuid"]: node["metadata"]["name"] for node in gpu_nodes for card in node["status"]["cards"]}
    memory, on_card, on_node = Counter[str](), Counter[str](), Counter[str]()
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if not node:
            continue
        name, (share,) = pod["metadata"]["name"], promised(pod)
        assert home[share["uuid"]] == node, f"pod {name} is on {node}, its card {share['uuid']} is not"
        assert share["memoryMiB"] == asked_mib(pod), f"pod {name} has {share['memoryMiB']} MiB"
        memory[share["uuid"]] += share["memoryMiB"]
        on_card[share["uuid"]] += 1
        on_node[node] += int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])
    for card, mib in memory.items():
        assert mib <= has[card], f"card {card} of {has[card]} MiB is promised to {mib} MiB"
        assert on_card[card] <= SLICES_PER_CARD, f"card {card} has {on_card[card]} slices"
    for node in nodes:
        name, offered = node["metadata"]["name"], int(node["status"]["allocatable"][GPU])
        assert on_node[name] <= offered, f"node {name} of {offered} slices has {on_node[name]}"
    return on_node


def promised(pod: Mapping[str, Any]) -> list[Json]:
    """The cards in a bound pod's placement, which is its own."""
    document = json.loads(pod["metadata"]["annotations"][PLACEMENT])
    assert document["podUID"] == pod["metadata"]["uid"], (
        f"pod {pod['metadata']['name']} has another's placement"
    )
    return [share for container in document["containers"] for share in container["cards"]]


def asked_mib(pod: Mapping[str, Any]) -> int:
    """What a pod of a flood asks for."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"][MEM].removesuffix("Gi")) << 10
