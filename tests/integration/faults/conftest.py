"""What the tests of faults run on: a single node's agent, or a whole pocket cluster with an auditor after each test."""

from tests.integration.journey.conftest import node, running, stack
from tests.integration.plugin.conftest import make_world, own_api, shared_api, world

__all__ = ["make_world", "node", "own_api", "running", "shared_api", "stack", "world"]
