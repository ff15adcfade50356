"""A node that says too often that it has other cards harms itself alone."""

import asyncio

import msgspec
import pytest
from prometheus_client import generate_latest

from aliquot.crds.gpu_node import GPUNode, GPUNodeStatus
from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.objects import ObjectMeta
from aliquot.scheduler_ext.app import App
from aliquot.scheduler_ext.controllers import cluster_informer
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.options import parse_arguments
from aliquot.scheduler_ext.placement.node_survey import survey
from aliquot.scheduler_ext.placement.reasons import Reason
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from aliquot.scheduler_ext.state.status_rate_limit import MOST_AT_ONCE, SECONDS_EACH, StatusRateLimit
from tests.unit.scheduler_ext.placing import card, node, part, pod, resizer
from tests.unit.scheduler_ext.world import World


class Cluster:
    """An extender that hears of nodes' cards, at a time that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ledger = Ledger(lambda: self.now)
        self.statuses = StatusRateLimit(lambda: self.now)
        self.feed = ClusterInformer(
            Api(Access("http://127.0.0.1:1")),
            self.ledger,
            ForeignPlugins(()),
            resizer(World(), self.ledger),
            statuses=self.statuses,
        )

    def says(self, name: str, gib: int, healthy: bool = True) -> None:
        """An agent writes a status."""
        status = node(card(f"{name}-card", gib=gib, healthy=healthy))
        self.feed._cards._put(name, GPUNode(metadata=ObjectMeta(name=name), status=status))

    def why_not(self, name: str) -> Reason | None:
        """What a pod is told of a node without room for it."""
        return survey(self.ledger.table, pod(part(1)), ["calm", name]).refused.get(name)

    def sizes(self, name: str) -> list[int]:
        """What the scheduler knows of a node's cards, in GiB."""
        return [one.usable_mib >> 10 for one in self.ledger.table.cards(name)]


def test_a_node_that_changes_too_often_has_no_cards_until_it_is_quiet(caplog: pytest.LogCaptureFixture):
    """Others are as ever; what it said last is taken over once it may change again."""
    here = Cluster()
    here.says("calm", 16)
    for turn in range(MOST_AT_ONCE + 1):
        here.says("wild", 16 + turn)
        assert here.sizes("wild") == [16 + turn]
    for turn in range(2):
        here.says("wild", 40 + turn)
        assert here.sizes("wild") == []
    assert here.sizes("calm") == [16]
    assert here.statuses.over == {"wild"}
    assert here.why_not("wild") is Reason.RATE_LIMITED
    assert caplog.text.count("node wild publishes other cards too often") == 1
    here.feed.put_rate_limited()
    assert here.sizes("wild") == []
    here.now += SECONDS_EACH
    here.feed.put_rate_limited()
    assert here.sizes("wild") == [41]
    assert here.statuses.over == set()
    assert here.why_not("wild") is None


def test_the_feed_tries_again_by_itself(monkeypatch: pytest.MonkeyPatch):
    """Nobody tells it that time has passed."""
    monkeypatch.setattr(cluster_informer, "AGAIN_SECONDS", 0.01)
    here = Cluster()
    for turn in range(MOST_AT_ONCE + 2):
        here.says("wild", 16 + turn)
    assert here.sizes("wild") == []
    here.now += SECONDS_EACH
    shown = asyncio.Event()
    here.ledger.on_change(lambda _: shown.set())

    async def follow() -> None:
        task = asyncio.create_task(here.feed.run())
        await asyncio.wait_for(shown.wait(), 60)
        task.cancel()

    asyncio.run(follow())
    assert here.sizes("wild") == [16 + MOST_AT_ONCE + 1]


def test_the_metrics_count_the_nodes():
    """By the limit that the process's own feed has."""
    app = App(None, parse_arguments(["--port", "0"]))  # type: ignore[arg-type] - nothing of it runs
    for turn in range(MOST_AT_ONCE + 2):
        app._feed._statuses.allows("wild", sized(turn))
    assert b"aliquot_scheduler_nodes_rate_limited 1.0" in generate_latest(app.registry)


def test_health_changes_as_often_as_it_likes():
    """Nothing is worked out anew for it."""
    here = Cluster()
    for turn in range(5 * MOST_AT_ONCE):
        here.says("n", 16, healthy=turn % 2 == 0)
    assert here.sizes("n") == [16]


def test_a_node_that_is_made_anew_has_spent_what_it_has_spent():
    """Its budget comes back with time alone."""
    budget = StatusRateLimit(lambda: 0.0)
    for turn in range(MOST_AT_ONCE + 1):
        assert budget.allows("n", sized(turn))
        budget.forget("n")
    assert not budget.allows("n", sized(99))


def test_a_node_that_is_made_anew_with_its_cards_has_not_changed():
    """Its new object has none at first; no time need pass."""
    budget = StatusRateLimit(lambda: 0.0)
    for _ in range(5 * MOST_AT_ONCE):
        assert budget.allows("n", GPUNodeStatus())
        assert budget.allows("n", sized(16))
        budget.forget("n")


def sized(gib: int) -> GPUNodeStatus:
    """A node with a card of this size."""
    return node(card("a", gib=gib))


def test_as_many_slices_and_other_links_are_a_change():
    """Whatever the scheduler tables by it."""
    budget, status = StatusRateLimit(lambda: 0.0), node(card("a"), card("b"))
    linked = (status.cards[0], msgspec.structs.replace(status.cards[1], links="PIX"))
    for _ in range(MOST_AT_ONCE):
        assert budget.allows("n", status)
        assert budget.allows("n", GPUNodeStatus(slices_per_card=10, cards=linked)) or budget.over
    assert budget.over == {"n"}
