"""A tenant that damages its own account harms nobody else."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.auditor import audit
from tests.integration.journey.pods import plain
from tests.integration.journey.programs import Program

DAMAGES: dict[str, Callable[[Path], object]] = {
    "noise": lambda page: page.write_bytes(os.urandom(page.stat().st_size)),
    "cut short": lambda page: os.truncate(page, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_tenant_that_damages_its_account_hurts_itself_alone(stack: Stack, node: Node, damage: str) -> None:
    """Its neighbour has its slice and no more, the agent goes on, and the next pod gets its place."""
    neighbour = Program(stack, "neighbour", "2Gi")
    stack.kubectl.apply(plain("vandal", mem="2Gi"))
    uid = stack.kubectl.wait_phase("vandal", "Running")["metadata"]["uid"]
    agent = stack.cluster.processes[node.agent].pid
    DAMAGES[damage](node.tenants / uid / "main" / "usage")
    assert neighbour.alloc(1024).startswith("CUDA_SUCCESS")
    assert neighbour.alloc(1025).startswith("CUDA_ERROR_OUT_OF_MEMORY")
    stack.kubectl.apply(plain("next", mem="2Gi"))
    stack.kubectl.wait_phase("next", "Running")
    audit(stack)
    assert stack.cluster.processes[node.agent].pid == agent
    stack.kubectl.delete("pods", "vandal", grace=0)
    wait_for("its pages to go", lambda: not (node.tenants / uid).exists())
