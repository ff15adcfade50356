"""Resizes: approved against the ledger, written in one patch, whatever becomes of the answer."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from aliquot.crds.gpu_pool import PoolSpec
from aliquot.kube.answers import ApiError
from aliquot.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from aliquot.scheduler_ext.cards.card_state import CardState
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.handlers.bind import Binder
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import GIB, card, node, part, pod, resizer
from tests.unit.scheduler_ext.world import World, WorldPod


class CountingLedger(Ledger):
    """A ledger that knows how often somebody has looked for room."""

    looks = 0

    def cards_without(self, node: str, uid: str) -> list[CardState]:
        """Counts, and answers."""
        self.looks += 1
        return super().cards_without(node, uid)


class Bench:
    """An extender and its world: a node with one card of 16 GiB."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.now = 0.0
        self.ledger = CountingLedger(lambda: self.now)
        self.ledger.put_node("n1", node(card("a")))
        self.resizer = resizer(self.world, self.ledger)
        self.feed = ClusterInformer(None, self.ledger, ForeignPlugins(()), self.resizer)  # type: ignore[arg-type] - reads no cluster
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table))

    def pod(self, name: str, gib: int = 0, cores: int = 0, *, burst: bool = False) -> WorldPod:
        """A bound pod with one slice; with neither memory nor cores a whole card."""
        limits = {"aliquot.dev/gpu": "1"}
        limits |= {"aliquot.dev/gpu-mem": f"{gib}Gi"} if gib else {}
        limits |= {"aliquot.dev/gpu-core": str(cores)} if cores else {}
        main = Container(name="main", resources=ResourceRequirements(limits=limits))
        classed = {"aliquot.dev/memory-class": "burst"} if burst else {}
        meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=classed)
        made = self.world.pods[name] = WorldPod(Pod(metadata=meta, spec=PodSpec(containers=(main,))))
        answer = Filter(self.ledger, ForeignPlugins(()), Placer(self.ledger.table)).answer(
            FilterArgs(Pod=made.pod, NodeNames=("n1",))
        )
        assert answer.NodeNames == ["n1"], answer
        self.do(self.binder.bind(BindArgs(name, "default", meta.uid, "n1")))
        self.watch()
        return made

    def ask(self, pod: WorldPod, **asked: str) -> None:
        """Somebody annotates a pod."""
        pod.annotations = {**pod.annotations, **{f"aliquot.dev/resize-gpu-{k}": v for k, v in asked.items()}}
        self.world.note("MODIFIED", pod)
        self.watch()

    def answer(self, line: str = "good") -> None:
        """One round of answers over a line that may be bad."""
        self.world.line = line
        try:
            self.do(self.resizer.answer())
        finally:
            self.world.line = "good"

    def watch(self) -> None:
        """The watch catches up."""
        for kind, seen in self.world.events:
            if kind == "DELETED":
                self.feed.drop_pod(seen.metadata.uid)
            else:
                self.feed.put_pod(seen)
        self.world.events.clear()

    def used_gib(self) -> float:
        """What the ledger has promised of the card."""
        return self.ledger.table.cards("n1")[0].used_mib / GIB

    def do(self, work: object) -> None:
        """Run to its end."""
        self.loop.run_until_complete(work)  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A fresh one."""
    made = Bench()
    yield made
    made.loop.close()


async def until(holds: Callable[[], bool]) -> None:
    """Lets the others work until something holds."""
    while not holds():  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0)


def share(pod: WorldPod) -> tuple[int, int]:
    """GiB and cores that the pod's placement gives."""
    (container,) = json.loads(pod.annotations["aliquot.dev/placement"])["containers"]
    return container["cards"][0]["memoryMiB"] // GIB, container["cards"][0]["cores"]


def status(pod: WorldPod) -> dict:
    """The resize-status annotation."""
    return json.loads(pod.annotations["aliquot.dev/resize-status"])


def test_an_ask_that_fits_is_approved_in_one_write(bench: Bench):
    """Placement and status change together, and the ledger with them."""
    pod = bench.pod("p", 4, 20)
    bench.ask(pod, mem="12Gi", core="50")
    before = bench.world.version
    bench.answer()
    assert bench.world.version == before + 1
    assert share(pod) == (12, 50)
    asked = {"main": {"memoryMiB": 12288, "cores": 50}}
    assert status(pod) == {"version": 1, "approved": True, "asked": asked, "why": ""}
    assert bench.used_gib() == 12


def test_the_same_ask_again_writes_nothing(bench: Bench):
    """Answers are level-triggered: what is as it was asked is left alone."""
    pod = bench.pod("p", 4)
    bench.ask(pod, mem="12Gi")
    bench.answer()
    bench.watch()
    bench.answer()
    bench.ask(pod, mem="12Gi")
    bench.answer()
    assert bench.world.patches == 1


def test_a_refused_ask_says_why_and_is_approved_when_there_is_room(bench: Bench):
    """The sentence has card, amounts and remedy; the neighbour's end is the reason to look again."""
    pod, neighbour = bench.pod("p", 4), bench.pod("q", 8)
    bench.ask(pod, mem="12Gi")
    bench.answer()
    assert share(pod) == (4, 0)
    assert status(pod)["why"] == (
        "card a: 12Gi asked, 8Gi can be had beside the others; ask for less, or wait for room"
    )
    del bench.world.pods["q"]
    bench.world.note("DELETED", neighbour)
    bench.watch()
    bench.answer()
    assert share(pod) == (12, 0)
    assert status(pod)["approved"]


def test_a_refusal_is_written_once(bench: Bench):
    """A change of the ledger that makes no room writes nothing new."""
    pod = bench.pod("p", 4)
    bench.pod("q", 8)
    bench.ask(pod, mem="12Gi")
    bench.answer()
    bench.watch()
    bench.ledger.put_node("n1", node(card("a")))
    bench.answer()
    assert bench.world.patches == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"mem": "4096"},
            "aliquot.dev/resize-gpu-mem: 4096 is 4096 bytes; did you mean 4096Mi?",
        ),
        (
            {"core": "0"},
            "aliquot.dev/resize-gpu-core: 0 is no percentage; write a whole number from 1 to 100, or none for no cap",
        ),
    ],
)
def test_an_ask_that_makes_no_sense_is_refused_in_words(bench: Bench, asked: dict[str, str], why: str):
    """Where no webhook saw it, the extender says it."""
    pod = bench.pod("p", 4, 10)
    bench.ask(pod, **asked)
    bench.answer()
    assert status(pod) == {"version": 1, "approved": False, "asked": {}, "why": why}


def test_a_whole_card_cannot_be_resized(bench: Bench):
    """Its request is the card, not an amount."""
    pod = bench.pod("p")
    bench.ask(pod, mem="4Gi")
    bench.answer()
    assert "holds its cards alone" in status(pod)["why"]


def test_room_is_taken_while_the_answer_is_under_way(bench: Bench):
    """Nobody else is promised what a patch on its way will give."""
    pod = bench.pod("p", 4)
    bench.ask(pod, mem="12Gi")
    bench.world.line = "slow"
    task = bench.loop.create_task(bench.resizer.answer())
    bench.do(asyncio.sleep(0))
    bench.do(asyncio.sleep(0))
    assert bench.used_gib() == 12
    bench.world.held[0].set()
    bench.do(task)
    assert (share(pod), bench.used_gib()) == ((12, 0), 12)


def test_lowering_frees_nothing_before_it_is_written(bench: Bench):
    """Until the answer has come the larger amount is counted."""
    pod = bench.pod("p", 12)
    bench.ask(pod, mem="4Gi")
    with pytest.raises(ApiError):
        bench.answer("lost before")
    assert bench.used_gib() == 12
    bench.answer()
    assert (share(pod), bench.used_gib()) == ((4, 0), 4)


def test_a_lost_answer_is_found_out(bench: Bench):
    """The patch may have landed: it is tried again, found landed, and counted."""
    pod = bench.pod("p", 4)
    bench.ask(pod, mem="12Gi")
    with pytest.raises(ApiError):
        bench.answer("lost after")
    assert (share(pod), bench.used_gib()) == ((12, 0), 12)
    bench.answer()
    bench.watch()
    bench.answer()
    assert bench.used_gib() == 12
    assert status(pod)["approved"]


def test_an_ask_withdrawn_while_its_answer_was_lost_leaves_no_room_taken(bench: Bench):
    """What was charged for a patch that never landed is given back."""
    pod = bench.pod("p", 4)
    bench.ask(pod, mem="12Gi")
    with pytest.raises(ApiError):
        bench.answer("lost before")
    pod.annotations.pop("aliquot.dev/resize-gpu-mem")
    bench.world.note("MODIFIED", pod)
    bench.watch()
    bench.answer()
    assert (share(pod), bench.used_gib()) == ((4, 0), 4)


def test_a_late_event_does_not_bring_old_amounts_back(bench: Bench):
    """An event from before the approval is older than what was written."""
    pod = bench.pod("p", 12)
    bench.ask(pod, mem="4Gi")
    pod.phase = "Running"
    bench.world.note("MODIFIED", pod)
    late = list(bench.world.events)
    bench.watch()
    bench.answer()
    bench.watch()
    bench.world.events[:] = late
    bench.watch()
    assert bench.used_gib() == 4


def test_only_one_container_can_be_asked_for(bench: Bench):
    """The prefix names it; one that has no slice is refused by name."""
    pod = bench.pod("p", 4)
    pod.annotations = {**pod.annotations, "mian.aliquot.dev/resize-gpu-mem": "6Gi"}
    bench.world.note("MODIFIED", pod)
    bench.watch()
    bench.answer()
    assert "no container 'mian' has a slice; there are: main" in status(pod)["why"]
    del pod.annotations["mian.aliquot.dev/resize-gpu-mem"]
    pod.annotations["main.aliquot.dev/resize-gpu-mem"] = "6Gi"
    bench.ask(pod, mem="9Gi")
    bench.answer()
    assert share(pod) == (6, 0)


def test_an_ask_that_the_server_stumbles_over_holds_up_no_other(bench: Bench):
    """It is tried again; the others are answered meanwhile."""
    first, second = bench.pod("p", 4), bench.pod("q", 4)
    bench.world.stumbles.add("p")
    bench.ask(first, mem="6Gi")
    bench.ask(second, mem="6Gi")
    for _ in range(2):
        with pytest.raises(ApiError, match="a webhook failed"):
            bench.answer()
    assert (share(first), share(second)) == ((4, 0), (6, 0))
    bench.world.stumbles.clear()
    bench.answer()
    assert share(first) == (6, 0)


def test_what_happens_elsewhere_costs_an_ask_nothing(bench: Bench):
    """Refused asks are looked at again when their own node has changed, approved ones never."""
    refused, approved = bench.pod("p", 4), bench.pod("q", 8)
    bench.ask(refused, mem="12Gi")
    bench.ask(approved, mem="6Gi")
    bench.answer()
    bench.watch()
    bench.answer()
    bench.watch()
    bench.answer()
    looked = bench.ledger.looks
    bench.ledger.put_node("n2", node(card("b"), card("c")))
    bench.answer()
    assert bench.ledger.looks == looked
    bench.ledger.put_node("n1", node(card("a", gib=17)))
    bench.answer()
    assert bench.ledger.looks == looked + 1


def test_room_that_no_watch_tells_of_is_used(bench: Bench):
    """A reservation that time has ended wakes the asks that were refused for it."""
    asking = bench.pod("p", 4)
    entry = bench.ledger.entry("uid-p")
    assert entry is not None
    bench.ledger.reserve(pod(part(4), uid="other"), replace(entry.placement, pod_uid="other"))
    bench.ask(asking, mem="14Gi")

    async def run() -> None:
        worker = asyncio.create_task(bench.resizer.run())
        async with asyncio.timeout(10):
            await until(lambda: '"approved":false' in str(asking.annotations))
            bench.watch()
            await until(lambda: not bench.resizer._due)
            bench.now = 1000.0
            bench.ledger.expire(1.0)
            await until(lambda: share(asking) == (14, 0))
        worker.cancel()
        await asyncio.wait({worker})

    bench.do(run())


def test_burst_memory_of_one_container_stays_within_its_card(bench: Bench):
    """What may be promised beyond a card is for several; the filter gives no container more than a card either."""
    bench.ledger.put_node("n1", node(card("a")), lambda _: PoolSpec(memory_percent=300))
    asking = bench.pod("p", 4, burst=True)
    bench.ask(asking, mem="17Gi")
    bench.answer()
    assert status(asking)["why"] == (
        "card a: 17Gi asked, 16Gi is all that one container can have; ask for less"
    )
    bench.watch()
    bench.ask(asking, mem="16Gi")
    bench.answer()
    assert share(asking) == (16, 0)


def test_a_pod_without_a_slice_is_told_so(bench: Bench):
    """MIG instances have the size of their profile, and a pod that somebody else placed is none of ours."""
    made = bench.pod("p", 4)
    bench.feed.drop_pod(made.seen().metadata.uid)
    made.annotations = {"aliquot.dev/resize-gpu-mem": "6Gi"}
    bench.world.note("MODIFIED", made)
    bench.watch()
    bench.answer()
    assert "only slices can be resized" in status(made)["why"]
