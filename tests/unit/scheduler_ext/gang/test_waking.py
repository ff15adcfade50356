"""Groups are woken when there may be room for them, and by nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.state.pending_pods import Waker
from tests.unit.scheduler_ext.drill import NODES, Drill, pod_in

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod


def test_the_others_are_woken_once_their_places_are_held():
    """Whoever was refused before is asked for again, and finds its place; looking at it reserves nothing."""
    drill = Drill()
    members = drill.group("train", 4)
    stranger = pod_in("")
    drill.where(stranger)
    assert not any(drill.where(member) for member in members)
    assert [drill.would(member) for member in members] == [False] * 4
    drill.leave(stranger)
    changes = drill.waiting.changes
    assert [drill.would(member) for member in members] == [True] * 4
    assert (drill.holds(*members), drill.waiting.changes) == (0, changes)
    assert drill.where(members[0])
    assert [drill.would(member) for member in members[1:]] == [True] * 3


def test_a_group_without_hope_keeps_nobody_else_from_being_woken():
    """Five members of its shape need a card more than there is; the lone pod needs the one that is free."""
    drill = Drill()
    others = [pod_in("") for _ in range(4)]
    assert all(drill.where(other) for other in others)
    members, lone = drill.group("train", 5), pod_in("")
    drill.create(lone)
    assert not any(drill.where(pod) for pod in (*members, lone))
    drill.leave(others[0])
    asyncio.run(Waker(drill.world, drill.waiting, drill.filter).wake())
    touched = [name for name, pod in drill.world.pods.items() if "aliquot.dev/retry" in pod.annotations]
    assert touched == [lone.metadata.name]


def with_cpu(pod: Pod, cores: int) -> Pod:
    """The same pod, that requests so much CPU."""
    body = msgspec.to_builtins(pod)
    body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cores)}
    return msgspec.convert(body, type(pod))


def short_of_cpu() -> tuple[Drill, list[Pod]]:
    """Two members of 3 cores each wait on two nodes of 4, on one of which a pod without slices has 2."""
    drill = Drill()
    for name in NODES:
        drill.ledger.hosts.put_node(name, HostShare(4000, 8000, 10))
    drill.ledger.hosts.put_pod("web", "n1", HostShare(2000, 0))
    members = [with_cpu(pod_in("train", 4), 3) for _ in range(2)]
    drill.needs("train", 2)
    drill.create(*members)
    assert drill.why(members[0]).endswith("1 of the 2 members that it needs fit at once")
    drill.waiting.changed.clear()
    return drill, members


def test_a_group_is_woken_when_cpu_becomes_free():
    """kube-scheduler sees it, too, and thinks that each member had enough before."""
    drill, members = short_of_cpu()
    drill.ledger.hosts.drop_pod("web")
    assert drill.waiting.changed.is_set()
    assert drill.would(members[0])
    assert drill.where(members[0])


def test_a_group_is_woken_when_a_node_has_more_cpu():
    """Its kubelet says so."""
    drill, members = short_of_cpu()
    drill.ledger.hosts.put_node("n1", HostShare(6000, 8000, 10))
    assert drill.waiting.changed.is_set()
    assert drill.where(members[0])


def test_nobody_is_woken_by_cpu_that_no_group_lacks():
    """On a node without cards, or while all groups wait for something else."""
    drill, members = short_of_cpu()
    drill.ledger.hosts.put_node("n3", HostShare(4000, 8000, 10))
    drill.ledger.hosts.put_pod("api", "n3", HostShare(2000, 0))
    drill.ledger.hosts.drop_pod("api")
    assert not drill.waiting.changed.is_set()
    drill.leave(members[0])
    drill.leave(members[1])
    drill.group("other", 5)
    drill.waiting.changed.clear()
    drill.ledger.hosts.drop_pod("web")
    assert not drill.waiting.changed.is_set()


def test_a_member_beside_those_that_have_places_is_no_reason_to_wake_none():
    """Of six members of one kind there is room for four; the one that is asked about first is not one of them."""
    drill = Drill()
    members = drill.group("train", 6, needs=4)
    stranger = pod_in("")
    assert drill.where(stranger)
    assert not any(drill.where(member) for member in reversed(members))
    drill.leave(stranger)
    asyncio.run(Waker(drill.world, drill.waiting, drill.filter).wake())
    touched = [name for name, pod in drill.world.pods.items() if "aliquot.dev/retry" in pod.annotations]
    assert len(touched) == 4
