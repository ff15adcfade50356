"""Every expression of the dashboard and of the rules, asked of a real Prometheus that scrapes the running services."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.stacks import one_node
from tests.observe import load
from tests.observe.expressions import Expression, alerts, bare, chosen, drawn, metrics, recorded, rules
from tests.observe.prometheus import PATIENCE_S, Prometheus, targets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GIB = 1 << 30
OF_THE_LOAD = {
    "AliquotAllocationsDenied",
    "AliquotQuotaNearlyUsed",
    "AliquotTenantNotBelieved",
}
"""What fires because the load asks for it."""
PROVOKED = {
    "AliquotCardOverPromised",
    "AliquotCardUnhealthy",
    "AliquotForeignMemory",
    "AliquotContainersRefused",
    "AliquotFilterFailing",
}
ENDED = {"AliquotAgentDown", "AliquotAgentMissing", "AliquotWebhookDown", "AliquotExtenderDown"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A node of six cards with everything installed."""
    with one_node(load.CARDS, load.AGENT_FLAGS) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def prometheus(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It scrapes all services of the stack, before and while that is under load."""
    with Prometheus(tmp_path_factory.mktemp("observe") / "p", targets(stack)) as running:
        wait_for("all targets", lambda: running.query("up") and not running.unscraped(), PATIENCE_S)
        load.busy(stack)
        yield running


def test_every_panel_variable_and_recorded_rule_has_data(prometheus: Prometheus):
    """None of them is empty, and no rule fails."""
    assert without_data(prometheus, [*recorded(), *chosen(), *drawn()]) == []
    assert prometheus.broken_rules() == {}


def without_data(prometheus: Prometheus, expressions: Sequence[Expression]) -> list[Expression]:
    """Those that give nothing for as long as one is patient."""
    left = list(expressions)

    def looked() -> bool:
        left[:] = [one for one in left if not prometheus.query(one.text)]
        return not left

    with contextlib.suppress(TimeoutError):
        wait_for("data", looked, PATIENCE_S)
    return left


def test_every_alert_looks_at_something(prometheus: Prometheus):
    """What an alert compares with a number is there; that of the others only once they are provoked, as below."""
    compared = [
        Expression(one.where, bare(one.text)) for one in alerts() if one.where not in ENDED | PROVOKED
    ]
    assert without_data(prometheus, compared) == []


def missed(prometheus: Prometheus, wanted: set[str]) -> set[str]:
    """Of these alerts, those that do not come for as long as one is patient."""
    with contextlib.suppress(TimeoutError):
        wait_for("alerts", lambda: prometheus.active().keys() >= wanted, PATIENCE_S)
    return wanted - prometheus.active().keys()


def test_nothing_fires_that_has_no_reason_to(prometheus: Prometheus):
    """Under load, with everything as it should be."""
    assert missed(prometheus, OF_THE_LOAD) == set()
    assert prometheus.active().keys() == OF_THE_LOAD


def test_figures_are_those_of_the_cluster(prometheus: Prometheus, stack: Stack):
    """Some that are known: cards, their memory, who waits for what, and what namespaces have."""
    (node,) = stack.nodes.values()
    cards = len(node.machine.cards)

    def of(expression: str, **labels: str) -> float:
        found = [v for s, v in prometheus.wait_for(expression) if labels.items() <= s.items()]
        assert len(found) == 1, (expression, labels)
        return found[0]

    assert of("sum(node_model:aliquot_cards:count)") == cards
    assert of("sum(node_model:aliquot_card_memory_total_bytes:sum)") == cards * 16 * GIB
    assert of("sum(node_model:aliquot_cards_healthy:sum)") == cards
    reasons = "namespace_reason:aliquot_scheduler_waiting_pods:max"
    assert of(reasons, namespace="default", reason="too_small") == 1
    assert of(reasons, namespace="team-a", reason="quota") == 1
    limits = "namespace:aliquot_slice_memory_limit_bytes:sum"
    assert of(limits, namespace="team-a") == of(
        "namespace:aliquot_namespace_memory_promised_bytes:max", namespace="team-a"
    )
    assert of("sum(namespace:aliquot_slice_memory_limit_bytes:sum)") == of(
        "sum(node_model:aliquot_card_memory_promised_bytes:sum)"
    )
    used = sum(node.machine.memory_used(card.uuid) for card in node.machine.cards)
    assert used > 20 * GIB
    told = "sum(node_model:aliquot_card_memory_used_bytes:sum)"
    wait_for("the agent's look at its cards", lambda: of(told) == pytest.approx(used, rel=0.01), PATIENCE_S)


def test_trouble_is_told_with_what_to_do(prometheus: Prometheus, stack: Stack):
    """A card that broke, one that is over-promised, memory without a slice, a pod without a place, calls that fail."""
    (node,) = stack.nodes.values()
    load.overpromise(stack)
    load.smuggle(stack)
    load.babble(stack)
    node.machine.raise_xid(1, load.FATAL)
    with load.stray(node, 5):
        assert missed(prometheus, PROVOKED | OF_THE_LOAD) == set()
    active = prometheus.active()
    assert active.keys() == PROVOKED | OF_THE_LOAD
    cards = [card.uuid for card in node.machine.cards]
    assert {labels["card"] for labels in active["AliquotCardUnhealthy"]} == {cards[1]}
    assert {labels["card"] for labels in active["AliquotForeignMemory"]} == {cards[5]}
    assert {labels["pod"] for labels in active["AliquotTenantNotBelieved"]} == {"liar"}
    for alert in PROVOKED:
        described = prometheus.described(alert)
        assert "no value" not in described
        assert "node-1" in described or alert == "AliquotFilterFailing"


def test_services_that_are_gone_are_missed(prometheus: Prometheus, stack: Stack):
    """Agent, webhook and extender, one after the other; the agent's cards are known to the extender alone then."""
    (node,) = stack.nodes.values()
    stack.cluster.kill(node.agent)
    assert missed(prometheus, ENDED - {"AliquotWebhookDown", "AliquotExtenderDown"}) == set()
    assert "AliquotWebhookDown" not in prometheus.active()
    stack.cluster.kill("webhook")
    stack.cluster.kill("extender")
    assert missed(prometheus, {"AliquotWebhookDown", "AliquotExtenderDown"}) == set()


def test_every_alert_was_provoked_or_looked_at():
    """The lists above name alerts that there are."""
    assert rules("alert").keys() >= OF_THE_LOAD | PROVOKED | ENDED
    assert all(metrics(one.text) or "up{" in one.text for one in alerts())
