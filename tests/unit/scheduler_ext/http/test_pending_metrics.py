"""What Prometheus is told of pods that wait."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from aliquot.kube.objects import Condition, PodStatus
from aliquot.scheduler_ext.http.pending_metrics import PendingPodsCollector
from aliquot.scheduler_ext.placement.reasons import Reason
from aliquot.scheduler_ext.state.pending_pods import PendingPods
from tests.unit.scheduler_ext.placing import card, node
from tests.unit.scheduler_ext.state.test_pending_pods import Sleepers
from tests.unit.scheduler_ext.teams import quota

PODS, LONGEST = "aliquot_scheduler_waiting_pods", "aliquot_scheduler_waiting_longest_seconds"


@pytest.fixture
def sleepers() -> Sleepers:
    """Nobody waits yet."""
    return Sleepers()


def told(waiting: PendingPods, now: float = 0.0) -> dict[tuple[str, ...], float]:
    """The figures by name and labels' values."""
    registry = CollectorRegistry()
    registry.register(PendingPodsCollector(waiting, lambda: now))
    samples = (s for family in registry.collect() for s in family.samples)
    return {(s.name, *(s.labels.values())): s.value for s in samples}


def test_each_pod_counts_once_under_what_keeps_it_from_the_nearest_node(sleepers: Sleepers):
    """Of two nodes, one too small and one full, the full one is nearer; a quota comes between."""
    sleepers.teams.quotas.put(quota("b", "b", limit=(1, None, None)))
    for namespace, gib in (("a", 17), ("a", 18), ("b", 4), ("c", 20)):
        sleepers.ask(namespace, gib)
    pods = {labels[1:]: count for labels, count in told(sleepers.waiting).items() if labels[0] == PODS}
    assert pods == {("a", "too_small"): 2, ("b", "quota"): 1, ("c", "too_small"): 1}


def test_a_full_node_is_nearer_than_one_that_is_too_small(sleepers: Sleepers):
    """And a node without an agent is the farthest."""
    ledger = sleepers.teams.ledger
    ledger.put_node("small", node(card("small-0", gib=2)))
    for place in ("n1", "n1", "n2", "n2"):
        sleepers.ask("a", 15, place)
    sleepers.ask("x", 15, "small", "n1", "bare")
    sleepers.ask("y", 15, "small", "bare")
    sleepers.ask("z", 15, "bare")
    found = told(sleepers.waiting)
    assert all(found[PODS, *one] == 1 for one in (("x", "memory"), ("y", "too_small"), ("z", "no_agent")))


def test_who_waits_longest_is_told_and_who_has_got_a_place_is_not(sleepers: Sleepers):
    """Being refused again changes nothing, and neither does being refused for something else but the reason."""
    first = sleepers.ask("a", 17)
    (waiter,) = sleepers.waiting.all()
    since = waiter.since
    sleepers.waiting.refused(first.pod, waiter.request, ("n1",), "quota")
    assert told(sleepers.waiting, since + 60)[LONGEST, "a"] == 60
    assert told(sleepers.waiting, since - 60)[LONGEST, "a"] == 0, "clocks are set back"
    assert told(sleepers.waiting)[PODS, "a", "quota"] == 1
    sleepers.waiting.forget(first.pod.metadata.uid)
    assert told(sleepers.waiting) == {}


def test_reasons_are_words_for_labels():
    """They are documented as such."""
    assert all(reason.name.lower().replace("_", "").isalpha() for reason in Reason)


def test_a_pod_refused_before_the_start_has_no_reason_yet(sleepers: Sleepers):
    """kube-scheduler's word for it is all that is known."""
    made = sleepers.ask("a", 17)
    refused = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    pod = msgspec.structs.replace(made.pod, status=PodStatus(conditions=(refused,)))
    sleepers.waiting.forget(pod.metadata.uid)
    sleepers.waker._remember(pod)
    assert told(sleepers.waiting)[PODS, "a", "not_asked"] == 1
