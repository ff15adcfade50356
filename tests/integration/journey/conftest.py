"""One running stack for all journeys that need no other, and an auditor that looks after each test."""

from collections.abc import Iterator

import pytest

from aliquot.cli.demo.stack import Node, Stack
from aliquot.sandbox.gpus import SimCard
from tests.integration.journey.auditor import empty
from tests.integration.journey.stacks import one_node


@pytest.fixture(scope="package")
def running() -> Iterator[Stack]:
    """A node of two 16 GiB cards with everything installed."""
    with one_node((SimCard(), SimCard())) as stack:
        stack.start()
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running stack. What a failed test left dead is started; all is audited, emptied, and audited again."""
    yield running
    empty(running)


@pytest.fixture
def node(stack: Stack) -> Node:
    """The only node."""
    (only,) = stack.nodes.values()
    return only
