"""What `why` says of pods that ask by other names: another project's, or those of another domain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from aliquot.api.defragment import Room
from aliquot.api.names import ResourceNames
from aliquot.api.why import State
from aliquot.dialects import load_dialects
from aliquot.scheduler_ext.explain.defragment import Defragmenter
from tests.unit.scheduler_ext.asking import Reader, ask, cards, foreign
from tests.unit.scheduler_ext.clusters import Cluster

SLICES = "ask for aliquot.dev/gpu and aliquot.dev/gpu-mem"
NOT_READ = {
    "HAMi's": (
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
        "it asks for nvidia.com/gpu, nvidia.com/gpumem in the names of HAMi",
        f"switch the dialect on (dialects={{hami}} in the chart's values), or {SLICES}",
    ),
    "gpushare's": (
        {"aliyun.com/gpu-mem": "4"},
        "it asks for aliyun.com/gpu-mem in the names of Aliyun's gpushare",
        SLICES,
    ),
    "NVIDIA's for MIG": (
        {"nvidia.com/mig-1g.5gb": "1"},
        "it asks for nvidia.com/mig-1g.5gb in the names of NVIDIA's device plugin",
        "ask for aliquot.dev/mig-1g.5gb",
    ),
}


@pytest.mark.parametrize(("limits", "asked", "remedy"), NOT_READ.values(), ids=NOT_READ)
def test_names_of_others_that_are_not_read_are_told(limits: dict[str, str], asked: str, remedy: str):
    """Such a pod does ask for a part of a card; it has to know that nothing here reads it."""
    told = ask(Cluster({"n0": cards("n0", 1)}), foreign(limits))
    assert told.state is State.NO_SLICES
    assert told.summary == f"{asked}, which are not read here; if no device plugin serves them, {remedy}"


def under_other_names(**more: Any) -> Cluster:
    """A cluster whose admin has chosen another domain for the resources."""
    made = Cluster({"n0": cards("n0", 1)}, **more)
    made.filter = replace(made.filter, names=ResourceNames.of("gpu.example.com"))
    return made


def test_names_of_the_default_domain_are_told_the_right_ones():
    """Where another domain is chosen; a pod that began under the old ones runs on, and waits for nothing."""
    cluster, old = under_other_names(), foreign({"aliquot.dev/gpu-mem": "4Gi"})
    told = ask(cluster, old)
    assert told.state is State.INVALID
    assert told.summary.endswith("aliquot.dev/gpu-mem: here this resource is called gpu.example.com/gpu-mem")
    assert ask(cluster, old, node="n0").state is State.BOUND


def test_names_of_a_domain_that_was_given_up_are_told():
    """Such a pod asks for a part of a card, by names that nothing serves any more."""
    told = ask(under_other_names(), foreign({"gpu.example.org/gpu-mem": "4Gi"}))
    assert told.state is State.NO_SLICES
    assert told.summary.startswith("it asks for gpu.example.org/gpu-mem, but Aliquot's resources are called")
    assert "gpu.example.com/gpu, gpu.example.com/gpu-mem and so on here" in told.summary


def test_the_chosen_names_are_read_and_named():
    """A pod past the webhook, and the remedy for another project's pod."""
    told = ask(under_other_names(), foreign({"gpu.example.com/gpu-mem": "4Gi"}))
    assert told.state is State.NOT_SENT
    assert "dialect" not in told.summary
    told = ask(under_other_names(), foreign({"aliyun.com/gpu-mem": "4"}))
    assert told.summary.endswith("ask for gpu.example.com/gpu and gpu.example.com/gpu-mem")


def test_a_plan_is_asked_for_in_the_chosen_names():
    """By the words of a request, without their domain."""
    cluster = under_other_names()
    plan = asyncio.run(Defragmenter(Reader(cluster), cluster.filter).answer({"gpu-mem": "4Gi"}))
    assert (plan.room, tuple(plan.nodes)) == (Room.FREE, ("n0",))


def test_a_dialect_that_is_switched_on_is_read():
    """Its pod waits for cards like any other, and what it says that is not honoured is told."""
    hami = load_dialects(["hami"])
    cluster = Cluster({"n0": cards("n0", 1)}, dialects=hami)
    asked = {"nvidia.com/gpumem": "30000"}
    told = ask(cluster, foreign(asked, "aliquot-scheduler"))
    assert (told.state, told.causes[0].text) == (State.WAITING, "every card too small")
    told = ask(cluster, foreign(asked, "aliquot-scheduler", **{"nvidia.com/use-gputype": "A100"}))
    assert told.state is State.INVALID
    assert "annotation nvidia.com/use-gputype: 'A100' is HAMi's and not honoured here" in told.summary
