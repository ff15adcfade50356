"""Among a steady stream of small pods a node is kept for a pod of several cards that has waited long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aliquot.scheduler_ext.gang.large_pods import LargePod
from aliquot.scheduler_ext.state.pending_pods import Waker
from tests.unit.scheduler_ext.drill import NODES, Drill, pod_in
from tests.unit.scheduler_ext.teams import quota

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

KEPT = "node is kept free for a larger pod that has waited longer"


def large(priority: int = 0, cards: int = 2) -> Pod:
    """A pod that needs all cards of a node."""
    return pod_in("", limits={"gpu": str(cards), "gpu-mem": "16Gi"}, priority=priority)


def busy(drill: Drill) -> list[Pod]:
    """Small pods on all cards, those of a node one after the other."""
    pods = [pod_in("") for _ in range(4)]
    assert all(drill.where(pod) for pod in pods)
    return sorted(pods, key=lambda pod: node_of(drill, pod))


def node_of(drill: Drill, pod: Pod) -> str:
    """Where it has its place."""
    entry = drill.ledger.entry(pod.metadata.uid)
    return entry.node if entry else ""


def stream(drill: Drill, pods: list[Pod]) -> list[Pod]:
    """Each small pod is followed by another at once, which takes its place where it gets one."""
    followers = []
    for pod in pods:
        drill.leave(pod)
        followers.append(pod_in(""))
        drill.where(followers[-1])
        drill.pass_time(1.0)
    return [pod for pod in followers if node_of(drill, pod)]


def test_a_node_is_kept_for_a_pod_that_has_waited_long():
    """Small pods go on elsewhere; once all have left the node it is woken, and has it."""
    drill = Drill()
    small, pod = busy(drill), large()
    drill.create(pod)
    assert not drill.where(pod)
    drill.pass_time(299.0)
    assert len(stream(drill, small[:1])) == 1
    assert isinstance(drill.gangs.saver, LargePod)
    kept = drill.gangs.saver.node
    followers = stream(drill, [one for one in small[1:] if node_of(drill, one)])
    assert {node_of(drill, one) for one in followers} == set(NODES) - {kept}
    for entry in drill.ledger.on(kept):
        drill.ledger.depart(entry.uid)
    stranger = pod_in("")
    assert KEPT in drill.ask(stranger).FailedAndUnresolvableNodes.values()
    drill.create(stranger)
    asyncio.run(Waker(drill.world, drill.waiting, drill.filter).wake())
    touched = [name for name, one in drill.world.pods.items() if "aliquot.dev/retry" in one.annotations]
    assert touched == [pod.metadata.name]
    assert drill.where(pod) == kept
    drill.pass_time(1.0)
    assert drill.gangs.saver is None


def test_the_node_is_free_for_pods_of_higher_priority():
    """They are placed as if it were not kept; one of the same priority is not."""
    drill = Drill()
    small, pod = busy(drill), large()
    assert not drill.where(pod)
    drill.pass_time(300.0)
    assert isinstance(drill.gangs.saver, LargePod)
    kept = drill.gangs.saver.node
    drill.leave(next(one for one in small if node_of(drill, one) == kept))
    assert not drill.where(pod_in(""))
    assert drill.where(pod_in("", priority=1)) == kept


def test_a_node_is_kept_for_a_limited_time():
    """Then small pods have it again, and no node is kept for as long."""
    drill = Drill()
    small, pod = busy(drill), large()
    assert not drill.where(pod)
    drill.pass_time(300.0)
    assert isinstance(drill.gangs.saver, LargePod)
    drill.leave(next(one for one in small if node_of(drill, one) == drill.gangs.saver.node))
    assert not drill.where(pod_in(""))
    drill.pass_time(300.0)
    assert drill.gangs.saver is None
    assert drill.where(pod_in(""))
    drill.pass_time(599.0)
    assert drill.gangs.saver is None


@pytest.mark.parametrize(
    ("cards", "limit", "kept"), [(3, None, False), (2, 31, False), (2, 64, False), (2, 96, True)]
)
def test_no_node_is_kept_for_a_pod_that_could_never_have_it(cards: int, limit: int | None, kept: bool):
    """It asks for more cards than a node has, or more than its quota allows; a quota that others use up is no room."""
    drill = Drill()
    busy(drill)
    if limit is not None:
        drill.quotas.put(quota("team", "default", limit=(limit, None, None)))
    assert not drill.where(large(cards=cards))
    drill.pass_time(300.0)
    assert (drill.gangs.saver is not None) is kept


def test_large_pods_and_groups_take_turns():
    """One saves at a time: the one that has waited longest, and then the other."""
    drill = Drill()
    busy(drill)
    members = drill.group("train", 4)
    assert not drill.where(members[0])
    drill.pass_time(1.0)
    pod = large()
    assert not drill.where(pod)
    drill.pass_time(299.0)
    assert drill.gangs.saver is not None
    assert drill.gangs.states() == {"saving": 1}
    drill.pass_time(300.0)
    drill.pass_time(300.0)
    assert isinstance(drill.gangs.saver, LargePod)


def test_small_pods_are_not_saved_for():
    """They take the next card that becomes free like everybody else."""
    drill = Drill()
    busy(drill)
    assert not drill.where(pod_in(""))
    drill.pass_time(3000.0)
    assert drill.gangs.saver is None
