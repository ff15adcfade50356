"""Resizes of running pods: asked by annotation, approved by the extender, applied by the node agent."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.auditor import audit, placement_of
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program

pytestmark = pytest.mark.slow

GIB = 1 << 30


def annotate(stack: Stack, name: str, **asked: str) -> None:
    """Asks for other limits."""
    annotations = {f"aliquot.dev/resize-gpu-{key}": value for key, value in asked.items()}
    stack.kubectl.patch("pods", name, {"metadata": {"annotations": annotations}})


def limits(stack: Stack, node: Node, name: str) -> tuple[int, int]:
    """GiB and cores in a pod's control page."""
    uid = stack.kubectl.get("pods", name)["metadata"]["uid"]
    card = page(node, uid)
    return card.memory_bytes // GIB, card.core_percent


def page(node: Node, uid: str) -> CardLimit:
    """The first card of a pod's control page."""
    return read_control(node.tenants / uid / "main" / "control").cards[0]


def status(stack: Stack, name: str) -> dict[str, Any]:
    """The resize-status annotation; empty while there is none."""
    annotations = stack.kubectl.get("pods", name)["metadata"]["annotations"]
    decoded: dict[str, Any] = json.loads(annotations.get("aliquot.dev/resize-status", "{}"))
    return decoded


def test_a_running_program_gets_more_memory_without_a_restart(stack: Stack, node: Node) -> None:
    """What it was refused before it is given afterwards; the card it sees has grown."""
    program = Program(stack, "grows", "2Gi")
    assert program.alloc(3072) == "CUDA_ERROR_OUT_OF_MEMORY of 2048"
    annotate(stack, "grows", mem="6Gi")
    wait_for("the limit", lambda: limits(stack, node, "grows") == (6, 0))
    assert program.alloc(3072) == "CUDA_SUCCESS of 6144"
    assert status(stack, "grows")["approved"]


def test_lowering_below_what_is_in_use_kills_nothing(stack: Stack, node: Node) -> None:
    """New memory is refused, the program goes on, and what it keeps is given to nobody before it is free."""
    program = Program(stack, "shrinks", "12Gi")
    stack.kubectl.apply(plain("elsewhere", mem="16Gi"))
    stack.kubectl.wait_phase("elsewhere", "Running")
    assert program.alloc(6144).startswith("CUDA_SUCCESS")
    annotate(stack, "shrinks", mem="4Gi")
    wait_for("the limit", lambda: limits(stack, node, "shrinks") == (4, 0))
    assert program.alloc(1) == "CUDA_ERROR_OUT_OF_MEMORY of 4096"
    stack.kubectl.apply(plain("fits-then", mem="12Gi"))
    waits = "pod default/fits-then: does not fit this node"
    wait_for("the gate to say so", lambda: waits in stack.cluster.log(node.agent))
    wait_for("the event", lambda: any("ResizeBelowUse" in said for said in stack.kubectl.events("shrinks")))
    assert program.free().startswith("CUDA_SUCCESS")
    stack.kubectl.wait_phase("fits-then", "Running", deadline=60)
    assert stack.kubectl.get("pods", "shrinks")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_resize_that_does_not_fit_is_refused_until_there_is_room(stack: Stack, node: Node) -> None:
    """The sentence stands in the pod; the neighbour's end approves it."""
    stack.kubectl.apply(plain("neighbour", mem="10Gi"), plain("other", mem="10Gi"))
    for name in ("neighbour", "other"):
        stack.kubectl.wait_phase(name, "Running")
    stack.kubectl.apply(plain("wants", mem="4Gi", core="10"))
    stack.kubectl.wait_phase("wants", "Running")
    annotate(stack, "wants", mem="12Gi", core="50")
    wait_for("the refusal", lambda: "why" in status(stack, "wants"))
    assert "12Gi asked, 6Gi can be had beside the others" in status(stack, "wants")["why"]
    assert limits(stack, node, "wants") == (4, 10)
    for name in ("neighbour", "other"):
        stack.kubectl.delete("pods", name, grace=0)
    wait_for("the limit", lambda: limits(stack, node, "wants") == (12, 50))
    wait_for("the approval", lambda: status(stack, "wants")["approved"])


def test_a_tenant_cannot_approve_itself(stack: Stack, node: Node) -> None:
    """An edit of the placement is undone, and an ask that makes no sense is refused by the webhook."""
    stack.kubectl.apply(plain("sly", mem="2Gi"))
    stored = stack.kubectl.wait_phase("sly", "Running")
    forged = json.loads(stored["metadata"]["annotations"]["aliquot.dev/placement"])
    forged["containers"][0]["cards"][0]["memoryMiB"] = 8192
    stack.kubectl.patch(
        "pods", "sly", {"metadata": {"annotations": {"aliquot.dev/placement": json.dumps(forged)}}}
    )
    assert limits(stack, node, "sly") == (2, 10)
    audit(stack)
    with pytest.raises(ApiError, match="did you mean 4096Mi"):
        annotate(stack, "sly", mem="4096")


def _asked(stack: Stack, node: Node, uid: str) -> object:
    return True


def _approved(stack: Stack, node: Node, uid: str) -> object:
    return status(stack, "traveller").get("approved")


def _written_down(stack: Stack, node: Node, uid: str) -> object:
    return "12288" in (node.directory / "state" / "tenancies" / f"{uid}.json").read_text()


def _applied(stack: Stack, node: Node, uid: str) -> object:
    return page(node, uid).memory_bytes == 12 * GIB


STEPS: dict[str, Callable[[Stack, Node, str], object]] = {
    "asked": _asked,
    "approved": _approved,
    "written down": _written_down,
    "applied": _applied,
}


@pytest.mark.slow
@pytest.mark.parametrize("service", ["plugin", "extender"])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_ends_in_the_new_limits(stack: Stack, node: Node, service: str, step: str) -> None:
    """Approved means applied in the end, and nothing is promised twice."""
    process = node.agent if service == "plugin" else service
    stack.kubectl.apply(plain("traveller", mem="2Gi"))
    uid = stack.kubectl.wait_phase("traveller", "Running")["metadata"]["uid"]
    annotate(stack, "traveller", mem="12Gi", core="70")
    wait_for(step, lambda: STEPS[step](stack, node, uid))
    stack.cluster.kill(process)
    stack.cluster.restart(process)
    wait_for("the limits", lambda: limits(stack, node, "traveller") == (12, 70))
    wait_for("the tenancy", lambda: _written_down(stack, node, uid))


@pytest.mark.slow
def test_kills_at_random_moments_of_resizes_lose_nothing(stack: Stack, node: Node) -> None:
    """Pods grow and shrink while extender and agent are killed; the seed is printed."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    names = [f"chance-{number}" for number in range(4)]
    stack.kubectl.apply(*(plain(name, mem="2Gi", core="5") for name in names))
    for name in names:
        stack.kubectl.wait_phase(name, "Running")
    wanted = {}
    for _ in range(6):
        process = chance.choice([node.agent, "extender"])
        for name in names:
            wanted[name] = chance.randint(1, 8)
            annotate(stack, name, mem=f"{wanted[name]}Gi")
        end = time.monotonic() + chance.uniform(0, 0.15)
        wait_for("the moment", lambda end=end: time.monotonic() >= end)
        stack.cluster.kill(process)
        _check_promises(stack, node)
        stack.cluster.restart(process)
    for name in names:
        annotate(stack, name, mem="4Gi")
    for name in names:
        wait_for(name, lambda name=name: _granted_mib(stack, name) == 4096)
        wait_for(name, lambda name=name: limits(stack, node, name) == (4, 5))
    _check_promises(stack, node)


def _granted_mib(stack: Stack, name: str) -> int:
    """What the pod's placement says that it has."""
    placement = placement_of(stack.kubectl.get("pods", name)) or {}
    return int(placement["containers"][0]["cards"][0]["memoryMiB"])


def _check_promises(stack: Stack, node: Node) -> None:
    """The pages of a card's tenants add up to no more than the card."""
    held: dict[str, int] = {}
    for control in Path(node.tenants).glob("*/*/control"):
        for card in read_control(control).cards:
            held[card.uuid] = held.get(card.uuid, 0) + card.memory_bytes
    assert max(held.values()) <= 16 * GIB, held
