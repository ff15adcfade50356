"""Pods that have done their work count for the run of their group that they were part of, and for no later one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.drill import LABEL, Drill, pod_in

if TYPE_CHECKING:
    from aliquot.kube.objects import Pod

CLOCK = "2026-11-22T10:{:02d}:00Z"


def made(minute: int, controller: str = "") -> dict[str, Any]:
    """A pod's metadata: when it was made, and by which Job."""
    owner = {"kind": "Job", "name": controller, "uid": f"uid-of-{controller}", "controller": True}
    return {
        "creationTimestamp": CLOCK.format(minute),
        "ownerReferences": [owner] if controller else [],
        "labels": {LABEL: "train"},
    }


def member(minute: int, controller: str = "") -> Pod:
    """A pod of the group as kube-scheduler sends it."""
    meta = made(minute, controller)
    return pod_in("", creationTimestamp=meta.pop("creationTimestamp"), **meta)


def finished(minute: int, ended: int | None, controller: str = "", phase: str = "Succeeded") -> PlacedPod:
    """A pod of the group that has done its work, as the watch shows it."""
    pod = member(minute, controller)
    statuses = [] if ended is None else [{"state": {"terminated": {"finishedAt": CLOCK.format(ended)}}}]
    body = {
        "metadata": {**made(minute, controller), "name": pod.metadata.name, "uid": pod.metadata.uid},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "containerStatuses": statuses},
    }
    body["metadata"]["namespace"] = "default"
    return msgspec.json.decode(json.dumps(body), type=PlacedPod)


def see(drill: Drill, *pods: Pod) -> None:
    """The watch shows pods that wait."""
    for pod in pods:
        body = json.loads(msgspec.json.encode(pod))
        drill.gangs.see(msgspec.json.decode(json.dumps(body), type=PlacedPod))


RUNS: dict[str, tuple[list[PlacedPod], list[Pod], int]] = {
    "an earlier run without controllers": (
        [finished(0, 5), finished(0, 6)],
        [member(10), member(10)],
        2,
    ),
    "an earlier run of another Job": (
        [finished(0, 5, "a"), finished(0, 5, "a")],
        [member(10, "b"), member(10, "b")],
        2,
    ),
    "the same Job": ([finished(0, 5, "a"), finished(0, 6, "a")], [member(10, "a"), member(10, "a")], 4),
    "one that was still at work when the others were made": (
        [finished(0, 12), finished(0, 15)],
        [member(10), member(11)],
        4,
    ),
    "one that was at work together with one that was": (
        [finished(0, 9), finished(8, 12)],
        [member(10)],
        3,
    ),
    "another Job of the same run": (
        [finished(0, 15, "driver"), finished(0, 4, "driver")],
        [member(10, "worker"), member(0, "worker")],
        4,
    ),
    "two earlier runs": ([finished(0, 5), finished(20, 25), finished(21, 26)], [member(30)], 1),
    "none says when it ended": ([finished(0, None)], [member(10)], 2),
    "a failed one": ([finished(0, 15, phase="Failed")], [member(10)], 1),
}


@pytest.mark.parametrize(("done", "waiting", "present"), RUNS.values(), ids=RUNS.keys())
def test_only_members_of_the_same_run_count(done: list[PlacedPod], waiting: list[Pod], present: int):
    """Of nine that the group needs; those that wait say how many there are."""
    drill = Drill()
    drill.needs("train", 9)
    for pod in done:
        drill.gangs.see(pod)
    see(drill, *waiting)
    assert drill.why(waiting[0]).endswith(f" {present} of the 9 members that it needs exist")


def test_a_run_after_another_is_bound_whole_or_not_at_all():
    """Two of the four that last night's run left behind make no two of tonight's go alone."""
    drill = Drill()
    drill.needs("train", 4)
    for _ in range(4):
        drill.gangs.see(finished(0, 5))
    small = [pod_in("") for _ in range(2)]
    assert all(drill.where(pod) for pod in small)
    tonight = [member(10) for _ in range(4)]
    see(drill, *tonight)
    assert drill.why(tonight[0]).endswith("2 of the 4 members that it needs fit at once")
    for pod in small:
        drill.leave(pod)
    assert all(drill.where(pod) for pod in tonight)
    assert drill.holds(*tonight) == 4


def test_a_worker_that_is_made_anew_finds_the_finished_ones_counted():
    """The run goes on: one has done its work, the other is replaced."""
    drill = Drill()
    drill.needs("train", 2)
    drill.gangs.see(finished(0, 8, "a"))
    heir = member(20, "a")
    see(drill, heir)
    drill.create(heir)
    where = drill.where(heir)
    assert asyncio.run(drill.bind(heir, where)) == ""


def test_what_is_left_of_ended_runs_is_no_group_that_waits():
    """Nothing is shown of a group all of whose pods have finished."""
    drill = Drill()
    drill.needs("train", 2)
    for _ in range(2):
        drill.gangs.see(finished(0, 5))
    assert drill.gangs.states() == {}
