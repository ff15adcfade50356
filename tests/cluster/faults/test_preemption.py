"""A real kube-scheduler evicts those whom the extender names, and nobody has their cards before they are gone."""

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from aliquot.scheduler_ext.preemption.extender_preemption import PATIENCE_SECONDS
from aliquot.scheduler_ext.state.pod_events import COMPONENT
from tests.cluster.faults.field import SOON_S, Field
from tests.integration.extenders import Document, manifest

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def classes(field: Field) -> None:
    """Of all pods here."""
    field.add_priorities(low=1, middle=50, high=100)


def fill(field: Field, cpu: int = 0) -> str:
    """One of middle priority on one card of a node, two of low priority on the other, which is returned."""
    field.create(12, "stays", priority="middle", cpu=cpu)
    field.await_bound("stays")
    for name in ("small-1", "small-2"):
        field.create(8, name, priority="low", cpu=cpu)
    field.await_bound("small-1", "small-2")
    card = field.card_of("small-1")
    assert {card, field.card_of("stays")} == {"n1-a", "n1-b"}
    assert field.card_of("small-2") == card
    return card


def test_victims_are_those_of_one_card(field: Field) -> None:
    """kube-scheduler has one go for its CPU; the extender adds the other of its card, and both have to be gone."""
    card = fill(field, cpu=2)
    field.create(12, "urgent", priority="high", cpu=4)
    nominated = "the node to be nominated"
    wait_for(nominated, lambda: field.pod("urgent")["status"].get("nominatedNodeName") == "n1", SOON_S)
    assert "/preempt" in field.proxy.seen
    leaving = "the victims to leave"
    wait_for(leaving, lambda: field.is_leaving("small-1") and field.is_leaving("small-2"), SOON_S)
    assert not field.is_leaving("stays")
    field.gone("small-1")
    tries = field.proxy.seen.count("/filter")
    wait_for("another try", lambda: field.proxy.seen.count("/filter") > tries, SOON_S)
    assert not field.is_bound("urgent"), "small-2 has its memory still"
    field.gone("small-2")
    field.await_bound("urgent")
    assert field.card_of("urgent") == card
    assert not field.is_leaving("stays")


def test_a_pod_that_lacks_nothing_but_memory_of_a_card_gets_it(field: Field) -> None:
    """This kube-scheduler asks nobody then: the extender has the pods of one card evicted itself and keeps it."""
    card = fill(field)
    field.create(12, "urgent", priority="high")
    leaving = "the victims to leave"
    wait_for(leaving, lambda: field.is_leaving("small-1") and field.is_leaving("small-2"), SOON_S)
    assert "/preempt" not in field.proxy.seen
    assert "nominatedNodeName" not in field.pod("urgent")["status"]
    field.gone("small-1")
    field.create(8, "thief", priority="middle")
    wait_for("the thief to be refused", lambda: "short of memory" in field.said("thief"), SOON_S)
    field.gone("small-2")
    field.await_bound("urgent")
    assert field.card_of("urgent") == card
    assert not field.is_leaving("stays")
    assert not field.is_bound("thief")
    wait_for("the victims to be told", lambda: told(field, "Preempted") == {"small-1", "small-2"}, SOON_S)
    wait_for("their heir to be told", lambda: told(field, "Preempting") == {"urgent"}, SOON_S)


def test_a_nomination_whose_cards_fail_keeps_no_cpu_from_others(field: Field) -> None:
    """While a victim is in Terminating kube-scheduler keeps the nomination itself, and asks the extender nothing."""
    fill(field, cpu=2)
    field.create(12, "urgent", priority="high", cpu=4)
    nominated = "the node to be nominated"
    wait_for(nominated, lambda: field.pod("urgent")["status"].get("nominatedNodeName") == "n1", SOON_S)
    try:
        field.cards_fail("n1-a", "n1-b")
        field.kubectl.create(without_slice("plain", cpu=2))
        wait_for("the plain pod to be refused", lambda: "Insufficient cpu" in field.said("plain"), SOON_S)
        ended = "the nomination to be ended"
        wait_for(
            ended, lambda: "nominatedNodeName" not in field.pod("urgent")["status"], SOON_S + OVERDUE_SECONDS
        )
        wait_for("the CPU to be used", lambda: field.pod("plain")["spec"].get("nodeName") == "n1", SOON_S)
    finally:
        field.cards_fail()


def without_slice(name: str, cpu: int) -> Document:
    """A pod of middle priority for the first node that asks for CPUs alone."""
    pod = manifest(1, name, nodeSelector={"kubernetes.io/hostname": "n1"}, priorityClassName="middle")
    wanted = {"cpu": str(cpu)}
    pod["spec"]["containers"][0]["resources"] = {"limits": wanted, "requests": wanted}
    return pod


def test_a_pod_that_is_never_to_preempt_waits(field: Field) -> None:
    """The extender asks for its priority class's policy, too."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "preemptionPolicy": "Never"}
    field.kubectl.apply({**kind, "metadata": {"name": "polite"}, "value": 100})
    field.plane.await_priorities("polite")
    fill(field)
    field.create(12, "urgent", priority="polite")
    wait_for("it to be refused", lambda: "short of memory" in field.said("urgent"), SOON_S)
    field.await_looks(PATIENCE_SECONDS + 2)
    assert not any(field.is_leaving(name) for name in ("stays", "small-1", "small-2"))


def told(field: Field, reason: str) -> set[str]:
    """The pods of which the extender's events say this."""
    events = field.kubectl.list("events", "default")
    return {
        e["involvedObject"]["name"]
        for e in events
        if e["reason"] == reason and e["source"].get("component") == COMPONENT
    }
