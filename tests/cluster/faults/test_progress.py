"""Nobody waits for ever or is evicted in vain: what `tests/model` has found once, with a real kube-scheduler.

There are no kubelets: a pod that is told to leave is there, in Terminating, until the test says that it has ended.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from aliquot.scheduler_ext.preemption.candidates import OVERDUE_SECONDS
from aliquot.scheduler_ext.preemption.extender_preemption import PATIENCE_SECONDS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import field as fields
from tests.cluster.faults.field import CARD_MIB, NODES, SOON_S, Field
from tests.cluster.programs import program_or_skip
from tests.integration.extenders import Document, manifest, patch_status

pytestmark = pytest.mark.cluster

OWNER = "owner"
"""A namespace beside `default`."""
SAVING_S, GRACE_S = 3.0, 3.0
"""After which groups save up places, and after which one that lacks members yields."""
CARD_GIB = CARD_MIB >> 10


@pytest.fixture(scope="module")
def scheduled(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """Four cards on three nodes, and groups that lose patience soon."""
    program_or_skip("kube-scheduler")
    flags = ["--group-saving-seconds", str(SAVING_S), "--group-grace-seconds", str(GRACE_S)]
    nodes = {**NODES, "n3": ["n3-a"]}
    control_plane.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWNER}})
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": OWNER},
    }
    control_plane.kubectl.apply(account)
    with fields.field(control_plane, tmp_path_factory.mktemp("field"), *flags, nodes=nodes) as field:
        field.add_priorities(low=1, high=100)
        yield field


@pytest.fixture(autouse=True)
def quotas(field: Field) -> Iterator[None]:
    """None are left, nor pods of the other namespace."""
    yield
    for quota in field.kubectl.list("gpuquotas.aliquot.dev"):
        field.kubectl.delete("gpuquotas.aliquot.dev", quota["metadata"]["name"], "")
    for pod in field.kubectl.list("pods", OWNER):
        field.kubectl.delete("pods", pod["metadata"]["name"], OWNER, grace=0)


def guarantee(field: Field, gib: int, *namespaces: str, **spec: Any) -> None:
    """What these have together, in memory of cards."""
    body = {"namespaces": list(namespaces), "guaranteed": {"memoryMiB": gib << 10}, **spec}
    kind = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUQuota"}
    field.kubectl.apply({**kind, "metadata": {"name": namespaces[0]}, "spec": body})


def ask(field: Field, name: str, **spec: Any) -> None:
    """A pod of the other namespace that waits for a card of the first node."""
    where = {"kubernetes.io/hostname": "n1"}
    field.kubectl.create(manifest(CARD_GIB, name, OWNER, nodeSelector=where, **spec))


def has_place(field: Field, name: str) -> bool:
    """Whether such a pod has one."""
    return bool(field.kubectl.get("pods", name, OWNER)["spec"].get("nodeName"))


def fill(field: Field, *names: str, node: str = "n1", gib: int = CARD_GIB, priority: str = "low") -> None:
    """Pods that run."""
    for name in names:
        field.create(gib, name, node, priority)
        field.await_bound(name)


def join(field: Field, group: str, name: str, members: int, **spec: Any) -> Document:
    """A member, of a whole card, of a group that needs so many."""
    body = manifest(CARD_GIB, name, priorityClassName="low", **spec)
    body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": group}
    body["metadata"]["annotations"] = {"aliquot.dev/group-min-members": str(members)}
    return field.kubectl.create(body)


def test_reclaim_goes_on_while_its_victims_namespace_falls_below_its_guarantee(field: Field) -> None:
    """It has evicted what was borrowed, and looks for more; then another pod of that namespace ends by itself (S1)."""
    guarantee(field, 16, "default")
    guarantee(field, 32, OWNER, reclaim=True)
    fill(field, "small-1", "small-2", gib=CARD_GIB // 2)
    fill(field, "whole")
    ask(field, "first")
    ask(field, "second")
    wait_for("the borrower to be evicted", lambda: field.is_leaving("whole"), SOON_S)
    field.gone("small-1")
    field.await_looks(3)
    assert field.extender.get("/healthz").status == 200
    assert not field.leaving("small-2")
    field.gone("whole")
    one_of_both = "one of the owner's pods to be bound"
    wait_for(one_of_both, lambda: has_place(field, "first") or has_place(field, "second"), SOON_S)


def test_nobody_is_evicted_whose_guarantee_keeps_the_card_from_others(field: Field) -> None:
    """With the victim gone what it was guaranteed would be open again, and closed to the one that it left for (S2)."""
    guarantee(field, 32, "default")
    fill(field, "first", "second")
    ask(field, "urgent", priorityClassName="high")
    field.await_looks(PATIENCE_SECONDS + 2)
    assert not field.leaving("first", "second")
    assert not has_place(field, "urgent")
    guarantee(field, 16, "default")
    one_leaves = "one to leave that is guaranteed no more"
    wait_for(one_leaves, lambda: len(field.leaving("first", "second")) == 1, SOON_S)
    (victim,) = field.leaving("first", "second")
    field.gone(victim)
    wait_for("the urgent pod to be bound", lambda: has_place(field, "urgent"), SOON_S)


def test_a_pod_that_never_ends_holds_up_no_other_preemption(field: Field) -> None:
    """Two wait; the card of a pod that is stuck in Terminating is counted for one, and for a while (S3)."""
    fill(field, "stuck", "low")
    field.kubectl.delete("pods", "stuck", grace=1)
    for name in ("urgent-1", "urgent-2"):
        field.create(CARD_GIB, name, "n1", "high")
    wait_for("another to be evicted", lambda: field.is_leaving("low"), SOON_S + OVERDUE_SECONDS)
    field.gone("low")
    wait_for("one to be bound", lambda: field.is_bound("urgent-1") or field.is_bound("urgent-2"), SOON_S)
    assert field.is_leaving("stuck")
    for name in ("urgent-1", "urgent-2"):
        field.gone(name)


def test_of_two_groups_that_lost_a_member_each_one_gets_whole(field: Field) -> None:
    """Each keeps a card that the other needs; one of them yields (S4)."""
    groups = ["first", "second"]
    for group in groups:
        join(field, group, f"{group}-1", 2)
        join(field, group, f"{group}-2", 2)
        field.await_bound(f"{group}-1", f"{group}-2")
    try:
        field.cards_fail(*(field.card_of(f"{group}-1") for group in groups))
        for group in groups:
            field.gone(f"{group}-1")
            join(field, group, f"{group}-3", 2)
        left = [f"{group}-2" for group in groups]
        wait_for("one of both to yield", lambda: field.leaving(*left), SOON_S)
        (yields,) = field.leaving(*left)
        (whole,) = set(groups) - {yields.removesuffix("-2")}
        field.gone(yields)
        field.await_bound(f"{whole}-2", f"{whole}-3")
        field.await_looks(2 * GRACE_S)
        assert not field.leaving(f"{whole}-2", f"{whole}-3")
    finally:
        field.cards_fail()


def test_rather_a_pod_that_goes_alone_leaves_than_a_member_that_its_group_needs(field: Field) -> None:
    """Without the member the others of its group would hold their cards in vain, younger as it is (S5)."""
    fill(field, "alone")
    for node in ("n1", "n2"):
        join(field, "train", f"on-{node}", 2, nodeSelector={"kubernetes.io/hostname": node})
    field.await_bound("on-n1", "on-n2")
    for name, hour in (("alone", "08"), ("on-n1", "09")):
        started = {"startTime": f"2026-01-01T{hour}:00:00Z"}
        patch_status(field.cluster, f"/api/v1/namespaces/default/pods/{name}", started)
    field.create(CARD_GIB, "urgent", "n1", "high")
    wait_for("one to be evicted", lambda: field.leaving("alone", "on-n1"), SOON_S)
    assert field.leaving("alone", "on-n1", "on-n2") == {"alone"}
    field.gone("alone")
    field.await_bound("urgent")
    assert not field.leaving("on-n1", "on-n2")


def test_a_group_that_can_never_fit_keeps_no_card_from_others(field: Field) -> None:
    """Five members and four cards (S6)."""
    fill(field, "first")
    members = [f"member-{number}" for number in range(5)]
    for name in members:
        join(field, "large", name, 5)
    short = "3 of the 5 members that it needs fit at once"
    wait_for("all to be told", lambda: all(short in field.said(name) for name in members), SOON_S)
    saving = [field.extender.sample('aliquot_scheduler_groups{state="saving"}')]
    for _ in range(int(SAVING_S) + 2):
        field.await_looks(1)
        saving.append(field.extender.sample('aliquot_scheduler_groups{state="saving"}'))
    assert saving == [0.0] * len(saving)
    for number, node in enumerate(["n1", "n2", "n3"]):
        fill(field, f"next-{number}", node=node)
