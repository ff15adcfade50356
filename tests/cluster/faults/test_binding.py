"""What becomes of a place when kube-scheduler, the pod or somebody else comes between filter and bind."""

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.faults.field import SCHEDULER, SOON_S, Field
from tests.integration.proxies import Fault

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("fault", [Fault.HOLD, Fault.MUTE], ids=["before bind", "after bind"])
def test_a_scheduler_that_dies_while_it_binds_loses_nothing(field: Field, fault: Fault) -> None:
    """Its successor sees the pod bound, or binds it to the place that is kept; the late call changes nothing."""
    field.proxy.begin("/bind", fault)
    field.create(10, "carried")
    field.await_call("/bind")
    field.plane.kill(SCHEDULER)
    field.plane.restart(SCHEDULER)
    field.create(10, "next")
    field.proxy.end("/bind")
    field.await_bound("carried", "next")
    field.audit()


def test_a_pod_that_somebody_else_has_bound_frees_its_place(field: Field) -> None:
    """The API server answers 409; the pod runs elsewhere without cards, and none are kept for it."""
    field.proxy.begin("/bind", Fault.HOLD)
    field.create(10, "snatched")
    field.await_call("/bind")
    assert field.extender.promised()
    target = {"apiVersion": "v1", "kind": "Node", "name": "n2"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "snatched"}, "target": target}
    field.kubectl.request("POST", "/api/v1/namespaces/default/pods/snatched/binding", binding)
    field.proxy.end("/bind")
    wait_for("the place to be free", lambda: field.extender.promised() == {}, SOON_S)
    assert field.pod("snatched")["spec"]["nodeName"] == "n2"
    assert not field.is_bound("snatched")


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "made anew"])
def test_a_pod_that_is_deleted_between_filter_and_bind_frees_its_place(field: Field, anew: bool) -> None:
    """Another pod of its name has a place of its own."""
    field.proxy.begin("/bind", Fault.HOLD)
    old = field.create(10, "fleeting")
    field.await_call("/bind")
    field.gone("fleeting")
    if anew:
        field.create(4, "fleeting")
    field.proxy.end("/bind")
    if anew:
        field.await_bound("fleeting")
        assert field.pod("fleeting")["metadata"]["uid"] != old["metadata"]["uid"]
    expected = 4096 if anew else 0
    wait_for("the place to be free", lambda: sum(field.extender.promised().values()) == expected, SOON_S)
    field.audit()
