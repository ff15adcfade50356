"""What a real kube-scheduler makes of an extender that is slow, fails, or is cut short."""

import time

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.faults.field import CALL_S, SCHEDULER, SOON_S, Field
from tests.integration.proxies import Fault

pytestmark = pytest.mark.cluster

WORDS = {
    Fault.MUTE: "Client.Timeout exceeded",
    Fault.REFUSE: "code 500",
    Fault.CUT_SHORT: "unexpected EOF",
}
FAULTS = pytest.mark.parametrize("fault", WORDS, ids=lambda fault: fault.name.lower())


@FAULTS
def test_a_pod_waits_while_filter_fails(field: Field, fault: Fault) -> None:
    """It says why, what was reserved for one that gives up is free again, and it is bound when all is well."""
    field.proxy.begin("/filter", fault)
    for name in ("patient", "gives-up"):
        field.create(10, name)
        wait_for(f"{name} to be told", lambda n=name: WORDS[fault] in field.said(n), SOON_S)
        assert field.said(name).startswith("SchedulerError")
        assert not field.pod(name)["spec"].get("nodeName")
    field.gone("gives-up")
    field.proxy.end("/filter")
    field.await_bound("patient")
    field.audit()


@FAULTS
def test_a_pod_is_bound_once_though_bind_fails(field: Field, fault: Fault) -> None:
    """Where the answer alone was lost it is bound already, else when bind works again; nobody else gets its cards."""
    field.proxy.begin("/bind", fault)
    field.create(10, "first")
    field.await_call("/bind")
    patience = time.monotonic() + CALL_S
    if fault is Fault.REFUSE:
        wait_for("it to be told", lambda: WORDS[fault] in field.said("first"), SOON_S)
        assert not field.pod("first")["spec"].get("nodeName")
    else:
        field.await_bound("first")
        wait_for("kube-scheduler to give up", lambda: time.monotonic() > patience)
    field.proxy.end("/bind")
    for name in ("second", "third"):
        field.create(10, name)
    field.await_bound("first")
    wait_for("one to be bound and one to wait", lambda: _one_waits(field, "second", "third"), SOON_S)


def _one_waits(field: Field, *names: str) -> bool:
    waiting = [name for name in names if not field.is_bound(name)]
    return len(waiting) == 1 and "short of memory on every card" in field.said(waiting[0])


def test_what_a_reservation_holds_is_free_when_its_time_is_over(field: Field) -> None:
    """A pod of which kube-scheduler has not heard the place, and does not ask again."""
    field.proxy.begin("/filter", Fault.MUTE)
    field.create(16, "heard-nothing")
    wait_for("it to be told", lambda: WORDS[Fault.MUTE] in field.said("heard-nothing"), SOON_S)
    assert field.extender.promised()
    field.plane.kill(SCHEDULER)
    field.proxy.end("/filter")
    wait_for("the reservation to end", lambda: field.extender.promised() == {}, SOON_S)
    field.plane.restart(SCHEDULER)
    field.await_bound("heard-nothing")
