"""One running stack for all journeys of a module, and an auditor that looks after each test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.cli.demo.stack import Node, Stack
from sandbox.gpus import SimCard
from tests.integration.journey.auditor import audit, audit_clean


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    """A node of two 16 GiB cards with everything installed. The path is short: sockets live below it."""
    root = Path(tempfile.mkdtemp(prefix="aq-"))
    with Stack(root, {"node-1": (SimCard(), SimCard())}) as stack:
        stack.start()
        yield stack
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running stack; afterwards it is audited, emptied, and audited again."""
    yield running
    audit(running)
    for pod in running.kubectl.list("pods"):
        running.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    for pod in running.kubectl.list("pods"):
        running.kubectl.wait_gone("pods", pod["metadata"]["name"])
    audit_clean(running)


@pytest.fixture
def node(stack: Stack) -> Node:
    """The only node."""
    (only,) = stack.nodes.values()
    return only
