"""What the ledger knows of pods when an extender begins to lead, and what it takes to know it."""

import asyncio
import statistics
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.crds.gpu_node import UNHEALTHY, GPUNode, GPUNodeStatus, Summary
from aliquot.kube.access import Access
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.listing import read_page
from aliquot.kube.objects import ObjectMeta
from aliquot.request.host_resources import HostShare
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind, read_pod_request
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.kube.conftest import KubeServer
from tests.unit.scheduler_ext.neighbours import waiter
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.world import World


def container_of(gib: int, where: str = "n1-a") -> ContainerPlacement:
    """A container that has so much of a card."""
    return ContainerPlacement("c", ContainerKind.REGULAR, (CardShare(where, gib * GIB, 0),))


def bound_pod(name: str, gib: int, version: int | str, where: str = "n1-a") -> dict[str, Any]:
    """A pod with a slice, as the API server has it."""
    uid, host = f"uid-{name}", where.partition("-")[0]
    text = encode_placement(Placement(uid, host, (container_of(gib, where),)))
    requests = {"cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "annotations": {PLACEMENT_ANNOTATION: text},
        },
        "spec": {"nodeName": host, "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


class Scene:
    """An API server, and a feed that follows its pods."""

    def __init__(self, kube: KubeServer, api: Api) -> None:
        self.kube = kube
        self.ledger = Ledger(lambda: 0.0)
        self.ledger.put_node("n1", node(card("n1-a")))
        self.waiting = PendingPods()
        foreign, resizes = ForeignPlugins(()), resizer(World(), self.ledger)
        self.feed = ClusterInformer(api, self.ledger, foreign, resizes, waiting=self.waiting)

    def store(self, name: str, gib: int) -> dict[str, Any]:
        """Somebody binds a pod, or changes it; the watch says nothing of it."""
        self.kube.version += 1
        self.kube.pods[name] = bound_pod(name, gib, self.kube.version)
        return self.kube.pods[name]

    async def tell(self, name: str, gib: int) -> None:
        """The same, and the watch says so."""
        self.kube.send("MODIFIED", self.store(name, gib))
        await self.feed._pods.reach(self.kube.version)

    @property
    def promised_gib(self) -> float:
        """Of the card."""
        return self.ledger.table.cards("n1")[0].used_mib / GIB


def play(*pods: tuple[str, int], scene: Callable[[Scene], Awaitable[None]]) -> None:
    """Have a feed read these pods, and follow them during the scene."""

    async def run() -> None:
        async with KubeServer() as kube, Api(Access(kube.url)) as api:
            stage = Scene(kube, api)
            for name, gib in pods:
                stage.store(name, gib)
            task = asyncio.create_task(stage.feed._pods.run())
            await kube.until(lambda: len(kube.watches) > 0)
            kube.pages.clear()
            try:
                await scene(stage)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


LOOK, ALL = ("1", ""), ("500", "")
"""What is asked of the API server: one pod, or all in pages."""


def test_who_begins_to_lead_reads_nothing_anew_that_its_watch_has_told():
    """One pod is read to see what time it is for the API server; the watch is there already."""

    async def scene(stage: Scene) -> None:
        await stage.tell("q", 3)
        await stage.feed.catch_up()
        assert stage.promised_gib == 7
        assert stage.kube.pages == [LOOK]

    play(("p", 4), scene=scene)


def test_what_a_pod_had_that_no_watch_has_told_of_is_free_when_it_is_gone():
    """It was made and deleted during a break; what kube-scheduler or a list said of it is all that is known."""

    async def scene(stage: Scene) -> None:
        await stage.kube.stop()
        stage.ledger.confirm("uid-placed", Placement("uid-placed", "n1", (container_of(5),)))
        stage.ledger.hosts.put_pod("uid-without-slices", "n1", HostShare(100, 64, 1))
        waits = waiter(8)
        stage.waiting.refused(waits, read_pod_request(waits), ("n1",))
        assert stage.promised_gib == 9
        stage.kube.version += 1
        stage.kube.forget()
        await stage.kube.start()
        await stage.kube.until(lambda: stage.kube.opened == 2)
        assert stage.promised_gib == 4
        assert set(stage.ledger.hosts.pods()) == {"uid-p"}
        assert stage.waiting.all() == []

    play(("p", 4), scene=scene)


def test_who_begins_to_lead_reads_what_its_watch_has_not_told():
    """The leader before it has bound one pod more, and made another larger."""

    async def scene(stage: Scene) -> None:
        stage.store("q", 3)
        stage.store("p", 6)
        await stage.feed.catch_up()
        assert stage.promised_gib == 9
        assert stage.kube.pages == [LOOK, ALL]

    play(("p", 4), scene=scene)


@pytest.mark.parametrize("lags", [False, True])
def test_who_begins_to_lead_believes_amounts_that_were_made_smaller(lags: bool):
    """A follower does not, for anybody can edit an annotation; whether the watch has told it or not."""

    async def scene(stage: Scene) -> None:
        if lags:
            stage.store("p", 2)
        else:
            await stage.tell("p", 2)
        assert stage.promised_gib == 4
        await stage.feed.catch_up()
        assert stage.promised_gib == 2
        assert stage.kube.pages == ([LOOK, ALL] if lags else [LOOK])

    play(("p", 4), scene=scene)


def test_a_smaller_amount_of_which_more_is_said_later_is_not_believed():
    """It was taken back, or the pod has gone, before anybody began to lead."""

    async def scene(stage: Scene) -> None:
        await stage.tell("p", 2)
        await stage.tell("p", 5)
        await stage.tell("q", 1)
        stage.kube.remove("q")
        await stage.feed._pods.reach(stage.kube.version)
        await stage.feed.catch_up()
        assert stage.promised_gib == 5

    play(("p", 4), ("q", 3), scene=scene)


def test_a_list_does_not_take_back_what_the_watch_has_told_since():
    """Its pages are of the moment at which it began."""

    async def scene(stage: Scene) -> None:
        old = stage.kube.pods["p"]
        await stage.tell("p", 6)

        def answer(request: web.Request) -> web.Response | None:
            if "watch" in request.query:
                return None
            version = "99" if request.query["limit"] == "1" else old["metadata"]["resourceVersion"]
            return web.json_response({"metadata": {"resourceVersion": version}, "items": [old]})

        stage.kube.answer = answer
        await stage.feed.catch_up()
        assert stage.promised_gib == 6

    play(("p", 4), scene=scene)


def test_versions_that_are_no_numbers_prove_nothing():
    """All pods are read then."""

    async def scene(stage: Scene) -> None:
        def tell_in_words(request: web.Request) -> web.Response | None:
            if request.query.get("limit") != "1":
                return None
            return web.json_response({"metadata": {"resourceVersion": "soon"}, "items": []})

        stage.kube.answer = tell_in_words
        await stage.feed.catch_up()
        assert stage.kube.pages == [ALL]

    play(("p", 4), scene=scene)


def test_without_a_word_from_the_api_server_nobody_has_caught_up():
    """Whoever asked tries again."""

    async def scene(stage: Scene) -> None:
        stage.kube.refuse(503, "ServiceUnavailable")
        with pytest.raises(ApiError):
            await stage.feed.catch_up()

    play(("p", 4), scene=scene)


KEPT_OF_A_POD = {"with a slice": (True, 1050), "without": (False, 300)}
"""In bytes, names and all; what the tables of cards and nodes take is beside it."""
BATCHES, BATCH = 9, 1000


@pytest.mark.parametrize(("slices", "most"), KEPT_OF_A_POD.values(), ids=KEPT_OF_A_POD)
def test_little_is_kept_of_a_pod(slices: bool, most: int):
    """Of 4 KB that the API server sends of each; the median of batches, for tables grow by leaps."""
    ledger = Ledger(lambda: 0.0)
    feed = ClusterInformer(None, ledger, ForeignPlugins(()), resizer(World(), ledger))  # type: ignore[arg-type] - reads no cluster
    pages = [page_of(range(n * BATCH, (n + 1) * BATCH), slices=slices) for n in range(BATCHES)]
    kept = []
    for page in pages:
        tracemalloc.start()
        listing, _ = read_page(page, PlacedPod)
        for pod in listing.items:
            feed._pods._put(pod.metadata.uid, pod)
        del listing, pod
        kept.append(tracemalloc.get_traced_memory()[0] / BATCH)
        tracemalloc.stop()
    print([round(one) for one in kept], "bytes a pod")
    assert len(ledger) == (BATCHES * BATCH if slices else 0)
    assert statistics.median(kept) <= most


def page_of(numbers: range, *, slices: bool) -> bytes:
    """A page of a list of pods that are alike."""
    pods = [bound_pod(f"inference-{n:030}", 1, n + 1, f"n{n // 8}-{n % 8}") for n in numbers]
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "inference", "team": "vision"}
        if not slices:
            del pod["metadata"]["annotations"]
    return msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": pods})


def test_what_an_agent_says_of_pods_makes_nothing_be_scored_anew():
    """A summary changes with every pod of a node; a card that falls ill does change the table."""
    ledger = Ledger(lambda: 0.0)
    feed = ClusterInformer(
        Api(Access("http://127.0.0.1:1")), ledger, ForeignPlugins(()), resizer(World(), ledger)
    )
    status, version = node(card("n1-a"), card("n1-b")), 0

    def publish(told: GPUNodeStatus) -> int:
        """Where the table's changes have come to when the watch has brought this."""
        nonlocal version
        version += 1
        meta = ObjectMeta(name="n1", uid="u", resource_version=str(version))
        feed._cards._put("n1", GPUNode(metadata=meta, status=told))
        return ledger.table.tick

    ticks = [publish(replace(status, summary=summary)) for summary in (None, Summary(cards=2), Summary())]
    assert len(set(ticks)) == 1
    assert feed.known.gpu_nodes["n1"].status == status
    sick = replace(status.cards[0], health=UNHEALTHY)
    assert publish(replace(status, cards=(sick, status.cards[1]), summary=Summary())) > ticks[0]
