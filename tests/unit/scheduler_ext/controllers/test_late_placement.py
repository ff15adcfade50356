"""Placements of pods that another scheduler has bound, on a line to the API server that loses writes and answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.request.placement import read_placement
from aliquot.request.pod_request import read_pod_request
from aliquot.scheduler_ext.controllers.late_placement import LatePlacements
from aliquot.scheduler_ext.http.volcano import Task, Volcano
from aliquot.scheduler_ext.state.ledger import Stage
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.drill import Drill, pod_in

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod


class Queue:
    """Volcano's side: an extender, and pods that Volcano binds."""

    def __init__(self) -> None:
        self.drill = Drill()
        self.late = LatePlacements(self.drill.world, self.drill.ledger, read_pod_request, ["volcano"])
        self.late.place_by(self.drill.filter)

    def bound(self, pod: Pod, where: str, scheduler: str = "volcano") -> PlacedPod:
        """A pod that Volcano has bound, as the watch shows it."""
        self.drill.world.pods[pod.metadata.name].node = where
        body = msgspec.to_builtins(pod)
        body["spec"] |= {"nodeName": where, "schedulerName": scheduler}
        return msgspec.convert(body, PlacedPod)

    def written(self, pod: Pod) -> list[str]:
        """The cards in the stored pod's placement."""
        made = self.drill.world.pods[pod.metadata.name]
        placement = read_placement(made.annotations, PLACEMENT_ANNOTATION, pod.metadata.uid)
        return [share.uuid for c in placement.containers for share in c.cards] if placement else []

    def write(self) -> bool:
        """One round; whether nothing is left."""
        return asyncio.run(self.late.write())


def create(queue: Queue) -> Pod:
    """A pod that waits."""
    pod = pod_in("", 4)
    queue.drill.create(pod)
    return pod


@pytest.mark.parametrize("line", ["good", "lost before", "lost after"])
def test_the_reserved_place_is_written(line: str):
    """However often it takes; until the watch shows it the place stays taken."""
    queue = Queue()
    pod = create(queue)
    volcano = Volcano(queue.drill.filter)
    assert volcano.allocate(Task(Pod=pod, NodeName="n2", Status=2)) == ""
    cards = [card.uuid for card in queue.drill.ledger.table.cards("n2") if card.used_mib]

    assert queue.late.takes(queue.bound(pod, "n2"), None)
    queue.drill.world.line = line
    assert queue.write() == (line == "good")
    queue.drill.ledger.expire(0.0)
    assert queue.drill.holds(pod) == 1
    queue.drill.world.line = "good"
    assert queue.write()
    assert queue.written(pod) == cards
    entry = queue.drill.ledger.entry(pod.metadata.uid)
    assert entry is not None
    assert entry.stage is Stage.ASSUMED


def test_without_a_reservation_it_is_placed_where_it_is():
    """A fresh extender knows of none."""
    queue = Queue()
    pod = create(queue)
    assert queue.late.takes(queue.bound(pod, "n2"), None)
    assert queue.write()
    assert queue.written(pod)[0].startswith("n2-")


def test_without_room_nothing_is_written_until_there_is():
    """Two pods of 16 GiB are on the node's cards."""
    queue = Queue()
    others = [pod_in("") for _ in range(2)]
    queue.drill.create(*others)
    assert all(queue.drill.where(other, ["n2"]) for other in others)
    pod = create(queue)
    assert queue.late.takes(queue.bound(pod, "n2"), None)

    assert not queue.write()
    assert queue.written(pod) == []
    queue.drill.leave(others[0])
    assert queue.write()
    assert len(queue.written(pod)) == 1


def test_pods_of_other_schedulers_and_gone_ones_are_let_be():
    """Nothing is written to them, and nothing stays taken."""
    queue = Queue()
    pod, gone = create(queue), create(queue)
    assert not queue.late.takes(queue.bound(pod, "n1", "my-scheduler"), None)
    assert not queue.late.takes(queue.bound(pod, "n1", "default-scheduler"), None)
    assert queue.late.takes(queue.bound(gone, "n1"), None)
    del queue.drill.world.pods[gone.metadata.name]
    assert queue.write()
    assert queue.drill.holds(gone, pod) == 0
