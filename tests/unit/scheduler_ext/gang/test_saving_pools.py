"""Pools on whose cards nothing is saved up: neither a group's places nor a node for a large pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aliquot.crds.gpu_pool import PoolSpec
from aliquot.scheduler_ext.gang.large_pods import LargePod
from tests.unit.scheduler_ext.drill import NODES, Drill, pod_in
from tests.unit.scheduler_ext.gang.test_large_pods import large
from tests.unit.scheduler_ext.gang.test_partial_reservations import busy, name_of_saver
from tests.unit.scheduler_ext.placing import card, node

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod


def save_nothing_on(drill: Drill, *nodes: str) -> None:
    """These nodes are of a pool on whose cards nobody may save up."""
    for name in nodes:
        cards = (card(f"{name}-{number}") for number in range(2))
        drill.ledger.put_node(name, node(*cards), lambda _: PoolSpec(saving_up=False))


def wait_long(drill: Drill) -> tuple[list[Pod], list[Pod]]:
    """Small pods on all cards, and a group of four that has waited for as long as groups do before they save up."""
    small, members = busy(drill), drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(300.0)
    return small, members


def leave(drill: Drill, pods: list[Pod]) -> None:
    """These pods have gone, and the group has had time to see it."""
    for pod in pods:
        drill.leave(pod)
    drill.pass_time(1.0)


def test_a_group_saves_up_nothing_on_cards_of_a_pool_that_does_not_let_it():
    """What becomes free on the others it keeps; where it fits at once, it has all places whatever the pool."""
    drill = Drill()
    save_nothing_on(drill, "n1")
    small, members = wait_long(drill)
    assert name_of_saver(drill) == "train"
    nodes = [drill.ledger.on(name) for name in NODES]
    free = {entry.uid: entry.node for entries in nodes for entry in entries}
    for pod in small:
        drill.leave(pod)
        assert bool(drill.where(pod_in(""))) == (free[pod.metadata.uid] == "n1")
    assert drill.holds(*members) == 2


def test_what_a_group_has_saved_up_is_completed_by_cards_on_which_nobody_saves_up():
    """All at once, that is: then nothing is kept any longer, and it starts."""
    drill = Drill()
    save_nothing_on(drill, "n1")
    small, members = wait_long(drill)
    leave(drill, [pod for pod in small if pod.metadata.uid in {entry.uid for entry in drill.ledger.on("n2")}])
    assert drill.holds(*members) == 2
    leave(drill, [pod for pod in small if drill.ledger.entry(pod.metadata.uid)])
    assert drill.holds(*members) == 4
    assert all(drill.where(member) for member in members)


def test_a_group_has_all_places_at_once_on_cards_on_which_nobody_saves_up():
    """They are placed, and not saved."""
    drill = Drill()
    save_nothing_on(drill, *NODES)
    small, members = wait_long(drill)
    assert drill.gangs.saver is None, "others may have the turn"
    leave(drill, small)
    assert all(drill.where(member) for member in members)


def test_a_member_that_is_offered_other_nodes_keeps_nothing_there_either():
    """An autoscaler's node has come, and the group looks for places anew."""
    drill = Drill()
    save_nothing_on(drill, "n1")
    small, members = wait_long(drill)
    leave(drill, small[:3])
    assert not drill.where(members[3], ["n2", "n1", "n3"])
    assert not {entry.uid for entry in drill.ledger.on("n1")} & {pod.metadata.uid for pod in members}


def test_a_group_for_which_others_were_evicted_takes_no_turn_that_is_of_no_use():
    """All its nodes are of such pools."""
    drill = Drill()
    save_nothing_on(drill, *NODES)
    busy(drill)
    members = drill.group("train", 4)
    assert not drill.where(members[0])
    gang = drill.gangs.of(members[0].metadata.uid)
    assert gang is not None
    drill.gangs.take_turn(gang)
    assert drill.gangs.saver is None


def test_a_turn_ends_when_the_pools_come_to_let_nobody_save_up():
    """What was kept is free."""
    drill = Drill()
    small, members = wait_long(drill)
    leave(drill, small[:3])
    assert drill.holds(*members) == 3
    save_nothing_on(drill, *NODES)
    drill.pass_time(1.0)
    assert drill.holds(*members) == 0
    assert drill.gangs.saver is None


@pytest.mark.parametrize(("closed", "kept"), [(["n1"], "n2"), (["n2"], "n1"), (["n1", "n2"], "")])
def test_no_node_is_kept_of_a_pool_that_does_not_let_anybody_save_up(closed: list[str], kept: str):
    """Another one is, if there is any."""
    drill = Drill()
    save_nothing_on(drill, *closed)
    busy(drill)
    pod = large()
    drill.create(pod)
    assert not drill.where(pod)
    drill.pass_time(300.0)
    drill.pass_time(1.0)
    saver = drill.gangs.saver
    assert (saver.node if isinstance(saver, LargePod) else "") == kept
    if kept:
        save_nothing_on(drill, kept)
        assert drill.gangs.kept_from("another", 0) == ""
