"""Pods are deleted whose containers live on: who comes next has the card when these have ended, and not sooner."""

import contextlib
from collections.abc import Iterator

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import processes
from tests.cluster.faults.pods import MOST_OF_A_CARD, card_of, living, start
from tests.cluster.installation import Installation
from tests.cluster.test_journey import PATIENCE_S, client, said

pytestmark = pytest.mark.cluster

NO_ROOM = "does not fit this node"


def test_a_card_of_a_forcibly_deleted_pod_is_free_when_its_container_has_ended(installed: Installation):
    """It cannot be ended for a while: the next pod, which is bound at once, waits at the gate and is told why."""
    start(installed, "other", MOST_OF_A_CARD)
    old = start(installed, "old", MOST_OF_A_CARD)
    card = card_of(installed, "old")
    with nobody_ends(installed, old):
        installed.kubectl.delete("pods", "old", grace=0)
        installed.kubectl.wait_gone("pods", "old")
        check_waits(installed, old)
    check_succeeds(installed, old, card)


def check_waits(installed: Installation, old: str) -> None:
    """The gate tells the next pod why it does not start, while the old one lives."""
    heir = installed.kubectl.create(client("heir", mem=MOST_OF_A_CARD, core="5"))["metadata"]["uid"]
    wait_for(
        "the next pod to be told why it waits",
        lambda: any(NO_ROOM in event for event in installed.kubectl.events("heir")),
        PATIENCE_S,
    )
    assert living(installed, old)
    assert not living(installed, heir)


def check_succeeds(installed: Installation, old: str, card: str) -> None:
    """It gets its slice of the old one's card, of which nothing lives then."""
    said(installed, "heir", "ready")
    assert card_of(installed, "heir") == card
    assert not living(installed, old)


@contextlib.contextmanager
def nobody_ends(installed: Installation, uid: str) -> Iterator[None]:
    """Have what ends a pod's containers stand still, as where a process hangs in a driver."""
    shims = shims_of(installed, uid)
    for shim in shims:
        installed.node.box.run("kill", "-STOP", str(shim))
    try:
        yield
    finally:
        for shim in shims:
            installed.node.box.run("kill", "-CONT", str(shim))


def shims_of(installed: Installation, uid: str) -> set[int]:
    """The processes of containerd that look after a pod's containers."""
    lines = installed.node.box.processes()
    statuses = [(each.directory / "status").read_text() for each in processes(installed) if each.uid == uid]
    parents = {int(text.split("PPid:")[1].split()[0]) for text in statuses}
    found = {parent for parent in parents if "containerd-shim" in lines.get(parent, "")}
    assert found
    return found


@pytest.mark.parametrize(("grace", "agent_dies"), [(0, False), (0, True), (1, False)])
def test_a_pod_deleted_while_the_kubelet_is_away_leaves_its_card_when_it_is_back(
    installed: Installation, grace: int, agent_dies: bool
):
    """By force or not: a kubelet that starts kills what it finds of a pod that it does not know."""
    start(installed, "other", MOST_OF_A_CARD)
    old = start(installed, "old", MOST_OF_A_CARD)
    card = card_of(installed, "old")
    installed.node.kubelet.kill()
    if agent_dies:
        installed.kill_agent()
    installed.kubectl.delete("pods", "old", grace=grace)
    assert living(installed, old)
    installed.restart_kubelet()
    installed.kubectl.create(client("heir", mem=MOST_OF_A_CARD, core="5"))
    check_succeeds(installed, old, card)
