"""Pools: what an admin writes holds for running tenants at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.libshim.control_page import Enforcement, read_control
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program

REFUSED, GIVEN = "CUDA_ERROR_OUT_OF_MEMORY of 2048", "CUDA_SUCCESS"


@pytest.fixture
def pooled(stack: Stack) -> Iterator[Stack]:
    """The running stack, with no pool before and after."""
    yield stack
    for pool in stack.kubectl.list("gpupools.aliquot.dev"):
        stack.kubectl.delete("gpupools.aliquot.dev", pool["metadata"]["name"])


def write(stack: Stack, name: str = "all", **spec: Any) -> None:
    """The admin writes a pool."""
    body = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}
    stack.kubectl.apply(body)


def enforcement(stack: Stack, node: Node, name: str) -> Enforcement:
    """What is done about a pod's limits."""
    uid = stack.kubectl.get("pods", name)["metadata"]["uid"]
    return read_control(node.tenants / uid / "main" / "control").enforcement


def settles_at(stack: Stack, node: Node, name: str, wanted: Enforcement) -> None:
    """Waits until that is done."""
    wait_for(f"{name} to be at {wanted}", lambda: enforcement(stack, node, name) is wanted)


@pytest.mark.slow
def test_a_running_tenant_is_switched_by_its_pool(pooled: Stack, node: Node) -> None:
    """Observe lets through what it counts, and enforce refuses again; the program runs on."""
    program = Program(pooled, "switched", "2Gi")
    assert program.alloc(3072) == REFUSED
    write(pooled, enforcement="observe")
    settles_at(pooled, node, "switched", Enforcement.OBSERVE)
    assert program.alloc(3072).startswith(GIVEN)
    pooled.kubectl.delete("gpupools.aliquot.dev", "all")
    settles_at(pooled, node, "switched", Enforcement.ENFORCE)
    assert program.alloc(1) == REFUSED


def test_a_pod_may_be_stricter_but_weaker_only_where_its_pool_allows(pooled: Stack, node: Node) -> None:
    """A tenant cannot switch its own limits off."""
    write(pooled, enforcement="observe")
    Program(pooled, "weak", "2Gi", {"aliquot.dev/enforcement": "off"})
    Program(pooled, "strict", "2Gi", {"main.aliquot.dev/enforcement": "enforce"})
    settles_at(pooled, node, "strict", Enforcement.ENFORCE)
    settles_at(pooled, node, "weak", Enforcement.OBSERVE)
    write(pooled, enforcement="observe", podsMayWeakenEnforcement=True)
    settles_at(pooled, node, "weak", Enforcement.OFF)
    pooled.kubectl.patch(
        "pods", "weak", {"metadata": {"annotations": {"aliquot.dev/enforcement": "enforce"}}}
    )
    settles_at(pooled, node, "weak", Enforcement.ENFORCE)
    with pytest.raises(ApiError, match="'weakly' is none of off, observe, enforce"):
        pooled.kubectl.patch(
            "pods", "weak", {"metadata": {"annotations": {"aliquot.dev/enforcement": "weakly"}}}
        )


def test_a_pools_reserve_is_kept_free(pooled: Stack, node: Node) -> None:
    """It is published, the scheduler gives the rest, and a pool for other nodes says nothing here."""
    write(pooled, reserveMiB=8192)
    write(
        pooled,
        name="a-pool-elsewhere",
        nodeSelector={"kubernetes.io/hostname": "elsewhere"},
        enforcement="off",
    )
    wait_for("the reserve", lambda: _reserves(pooled) == {8192})
    pooled.kubectl.apply(plain("large", mem="9Gi"), plain("fits", mem="8Gi"))
    pooled.kubectl.wait_phase("fits", "Running")
    assert enforcement(pooled, node, "fits") is Enforcement.ENFORCE
    large = pooled.kubectl.wait_for("pods", "large", lambda pod: pod["status"].get("conditions"))
    assert "too small" in large["status"]["conditions"][0]["message"]


def _reserves(stack: Stack) -> set[int]:
    (node,) = stack.kubectl.list("gpunodes.aliquot.dev")
    return {card.get("reserveMiB", 0) for card in node["status"]["cards"]}
