"""One cluster with the chart's policies for all tests of them."""

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies.world import World
from tests.cluster.programs import program_or_skip


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """A control plane of its own: policies hold for everybody on it."""
    for name in ("etcd", "kube-apiserver", "helm"):
        program_or_skip(name)
    with ControlPlane() as plane:
        yield World(plane)


@pytest.fixture(scope="module", name="controlled")
def start_controllers(world: World) -> Iterator[World]:
    """The cluster with a real kube-controller-manager."""
    program_or_skip("kube-controller-manager")
    world.plane.start_controllers()
    yield world
    world.plane.kill("kube-controller-manager")
