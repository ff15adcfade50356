"""Binding when things go wrong on the way to the API server."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from aliquot.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.controllers.ledger_cleanup import LedgerCleanup
from aliquot.scheduler_ext.handlers.bind import Binder, BindError
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.kube_scheduler.wire import BindArgs, FilterArgs, FilterResult
from aliquot.scheduler_ext.placement.placer import Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger, Stage
from aliquot.scheduler_ext.state.node_backoff import PASSED_OVER_SECONDS, NodeBackoff
from tests.unit.scheduler_ext.placing import GIB, card, node, resizer
from tests.unit.scheduler_ext.world import World, WorldPod


class Bench:
    """An extender and its world: two nodes of one card of 16 GiB each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.world = World()
        self.ledger = Ledger(lambda: self.now)
        self.ledger.put_node("n1", node(card("a")))
        self.ledger.put_node("n2", node(card("b")))
        self.binder = Binder(self.world, self.ledger, Placer(self.ledger.table))
        self.decide = Filter(
            self.ledger,
            ForeignPlugins(()),
            Placer(self.ledger.table),
            node_backoff=NodeBackoff(lambda: self.now),
        )
        self.keeper = LedgerCleanup(self.ledger, self.binder, lambda: self.now)
        self.feed = ClusterInformer(None, self.ledger, ForeignPlugins(()), resizer(self.world, self.ledger))  # type: ignore[arg-type] - reads no cluster

    def pod(self, name: str, gib: int = 10) -> Pod:
        """A pod in the world that wants one slice."""
        limits = {"aliquot.dev/gpu": "1", "aliquot.dev/gpu-mem": f"{gib}Gi"}
        main = Container(name="main", resources=ResourceRequirements(limits=limits))
        made = Pod(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
            spec=PodSpec(containers=(main,)),
        )
        self.world.pods[name] = WorldPod(made)
        return made

    def filter(self, pod: Pod, *nodes: str) -> FilterResult:
        """Ask where it may go."""
        return self.decide.answer(FilterArgs(Pod=pod, NodeNames=nodes))

    def bind(self, pod: Pod, where: str, line: str = "good") -> str:
        """Bind it over such a line; the error, empty on success."""
        return asyncio.run(self.attempt(pod, where, line))

    async def attempt(self, pod: Pod, where: str, line: str) -> str:
        """The same, within a loop."""
        self.world.line = line
        try:
            await self.binder.bind(args(pod, where))
        except BindError as error:
            return str(error)
        finally:
            self.world.line = "good"
        return ""

    def tidy(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        asyncio.run(self.keeper.tidy())

    def stage(self, pod: Pod) -> Stage | None:
        """How far the ledger thinks it is."""
        entry = self.ledger.entry(pod.metadata.uid)
        return entry.stage if entry else None

    def used(self) -> dict[str, float]:
        """Card → GiB promised."""
        return {
            c.uuid: c.used_mib / GIB for n in ("n1", "n2") for c in self.ledger.table.cards(n) if c.used_mib
        }


def args(pod: Pod, where: str) -> BindArgs:
    """A bind call."""
    return BindArgs(pod.metadata.name, "default", pod.metadata.uid, where)


@pytest.fixture(name="bench")
def make_bench() -> Bench:
    """A fresh world and extender."""
    return Bench()


def test_an_answer_lost_after_the_write(bench: Bench):
    """The pod may be bound: its place is kept, it goes nowhere else, and the retry finds it bound."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    assert "could not be bound" in bench.bind(pod, "n1", "lost after")
    assert "n1" in bench.filter(pod, "n2").Error
    assert not bench.filter(bench.pod("q"), "n1").NodeNames
    assert bench.bind(pod, "n1") == ""
    assert bench.stage(pod) is Stage.BOUND


def test_a_place_that_may_be_written_is_not_given_away_while_its_pod_cannot_be_read(bench: Bench):
    """The retry conflicts with the lost write, and the API server goes away before it has said what holds."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    bench.bind(pod, "n1", "lost after")
    assert "cannot be read" in bench.bind(pod, "n1", "down after")
    assert "n1" in bench.filter(pod, "n2").Error
    assert not bench.filter(bench.pod("q"), "n1").NodeNames
    bench.tidy(6)
    assert bench.stage(pod) is Stage.BOUND


def test_a_conflict_over_a_pod_that_is_not_bound_leaves_a_reservation(bench: Bench):
    """The Binding can have failed for another reason; then the pod may go elsewhere."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    assert "could not be bound" in bench.bind(pod, "n1", "conflict")
    assert bench.stage(pod) is Stage.RESERVED


def test_an_answer_lost_after_the_write_is_found_out_later(bench: Bench):
    """Even if nobody retries, the keeper asks; no reservation time ends what may be bound."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    bench.bind(pod, "n1", "lost after")
    bench.world.line = "down"
    bench.tidy(100_000)
    assert bench.used() == {"a": 10}
    bench.world.line = "good"
    bench.tidy(1)
    assert bench.stage(pod) is Stage.BOUND


def test_a_node_that_failed_a_pod_is_passed_over_for_a_while(bench: Bench):
    """Filter called again means that the first choice came to nothing; another pod may go there meanwhile."""
    pod, other = bench.pod("p"), bench.pod("q", gib=1)
    assert bench.filter(pod, "n1", "n2").NodeNames == ["n1"]
    assert bench.filter(pod, "n1", "n2").NodeNames == ["n2"]
    assert bench.filter(other, "n1").NodeNames == ["n1"]
    bench.now += PASSED_OVER_SECONDS
    assert bench.filter(pod, "n1", "n2").NodeNames == ["n1"]


def test_a_node_that_failed_a_pod_is_better_than_none(bench: Bench):
    """Where no other has room, the same node is tried again."""
    pod = bench.pod("p")
    assert bench.filter(pod, "n1").NodeNames == ["n1"]
    assert bench.filter(pod, "n1").NodeNames == ["n1"]
    bench.filter(bench.pod("q", gib=10), "n2")
    assert bench.filter(pod, "n1", "n2").NodeNames == ["n1"]
    assert bench.used() == {"a": 10, "b": 10}


def test_a_write_that_never_arrived_becomes_a_reservation_again(bench: Bench):
    """Once the API server has said that the pod is not bound, it may go elsewhere."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    bench.bind(pod, "n1", "lost before")
    assert bench.stage(pod) is Stage.UNCERTAIN
    bench.tidy(6)
    assert bench.stage(pod) is Stage.RESERVED
    assert bench.filter(pod, "n2").NodeNames == ["n2"]
    assert bench.used() == {"b": 10}


def test_a_pod_that_went_while_its_bind_was_unanswered_frees_its_card(bench: Bench):
    """The watch may never show a pod that was made and deleted between two lists."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    assert bench.bind(pod, "n1") == ""
    assert bench.stage(pod) is Stage.ASSUMED
    del bench.world.pods["p"]
    bench.tidy(6)
    assert (bench.used(), bench.stage(pod)) == ({}, None)


def test_two_binds_of_a_pod_at_once(bench: Bench):
    """The second is refused while the first is under way, also without a reservation, as after a restart."""
    pod = bench.pod("p")

    async def both() -> tuple[str, str]:
        first = asyncio.create_task(bench.attempt(pod, "n1", "slow"))
        await asyncio.sleep(0)
        second = asyncio.create_task(bench.attempt(pod, "n2", "good"))
        answer = await second
        for gate in bench.world.held:
            gate.set()
        return await first, answer

    first, second = asyncio.run(slow(bench, both()))
    assert (first, "being bound already" in second) == ("", True)
    assert bench.used() == {"a": 10}


async def slow(bench: Bench, what: Coroutine[Any, Any, tuple[str, str]]) -> tuple[str, str]:
    """Run it, with a limit in time."""
    return await asyncio.wait_for(what, 10)


def test_a_filter_while_the_bind_is_under_way(bench: Bench):
    """kube-scheduler may give up early and ask again: the pod stays where the write may land."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")

    async def meanwhile() -> tuple[str, str]:
        first = asyncio.create_task(bench.attempt(pod, "n1", "slow"))
        await asyncio.sleep(0)
        assert bench.filter(pod, "n1", "n2").NodeNames == ["n1"]
        assert bench.filter(pod, "n2").Error
        for gate in bench.world.held:
            gate.set()
        return await first, ""

    assert asyncio.run(slow(bench, meanwhile())) == ("", "")


def test_a_pod_deleted_while_its_bind_is_under_way_is_not_brought_back(bench: Bench):
    """The watch speaks of the deletion before the write is answered."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")

    async def meanwhile() -> tuple[str, str]:
        first = asyncio.create_task(bench.attempt(pod, "n1", "slow"))
        await asyncio.sleep(0)
        del bench.world.pods["p"]
        bench.ledger.depart(pod.metadata.uid)
        for gate in bench.world.held:
            gate.set()
        return await first, ""

    error, _ = asyncio.run(slow(bench, meanwhile()))
    assert error
    assert bench.used() == {}


def test_a_pod_that_is_gone_gets_no_place_because_it_was_read_just_before(bench: Bench):
    """The watch has told of its end already, and will not tell again."""
    pod = bench.pod("p")
    bench.ledger.depart(pod.metadata.uid)
    assert "was deleted" in bench.bind(pod, "n1")
    assert bench.ledger.entry(pod.metadata.uid) is None


def test_a_pod_that_is_gone_is_not_brought_back_by_an_earlier_answer(bench: Bench):
    """It was read as bound, and the watch told of its end before that answer was looked at."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    assert bench.bind(pod, "n1") == ""
    bench.ledger.depart(pod.metadata.uid)
    assert "was deleted" in bench.bind(pod, "n1")
    assert bench.used() == {}


def test_bound_elsewhere_than_reserved(bench: Bench):
    """The placement written is one on the node it is written with."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    assert bench.bind(pod, "n2") == ""
    placement = json.loads(bench.world.pods["p"].annotations["aliquot.dev/placement"])
    assert (placement["node"], placement["containers"][0]["cards"][0]["uuid"]) == ("n2", "b")
    assert bench.used() == {"b": 10}


def test_a_reservation_whose_card_has_shrunk_is_not_bound(bench: Bench):
    """Bind looks at the cards again; with no other room on the node it says so."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    bench.ledger.put_node("n1", node(card("a", gib=8)))
    assert "no room on n1" in bench.bind(pod, "n1")
    assert bench.world.pods["p"].node == ""
    assert bench.used() == {}


def test_an_expired_reservation_is_made_anew_if_there_is_room(bench: Bench):
    """Volume binding may take longer than a reservation lives."""
    pod, other = bench.pod("p"), bench.pod("q")
    bench.filter(pod, "n1")
    bench.tidy(700)
    assert bench.used() == {}
    bench.filter(other, "n1")
    assert "no room on n1" in bench.bind(pod, "n1")
    bench.ledger.depart(other.metadata.uid)
    assert bench.bind(pod, "n1") == ""


def test_the_watch_may_be_faster_than_the_answer(bench: Bench):
    """A confirmed pod stays confirmed when the answer comes."""
    pod = bench.pod("p")
    bench.filter(pod, "n1")
    bench.bind(pod, "n1", "lost after")
    bench.feed.put_pod(bench.world.events[-1][1])
    assert bench.stage(pod) is Stage.BOUND
    assert bench.bind(pod, "n1") == ""
