"""One cluster with the chart's policies for all tests of them: a control plane, or the one that somebody lends."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.access import Cluster
from tests.cluster.conftest import lent
from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies.world import World
from tests.cluster.programs import program_or_skip
from tests.cluster.trial import asked_for


@contextlib.contextmanager
def any_cluster() -> Iterator[Cluster]:
    """A control plane of its own, where nobody lends a cluster: policies hold for everybody on it."""
    for name in ("helm",) if asked_for() else ("etcd", "kube-apiserver", "helm"):
        program_or_skip(name)
    with lent() if asked_for() else ControlPlane() as cluster:
        yield cluster


def as_long_as(fixture_name: str, config: pytest.Config) -> str:
    """Other modules install the chart, too, and a cluster that is lent is the only one."""
    return "module" if asked_for() else "session"


@pytest.fixture(scope=as_long_as)
def world() -> Iterator[World]:
    """The cluster with policies, and everybody who might try something.

    On one that is lent no dialect is on: others ask for cards in its words.
    """
    with any_cluster() as cluster:
        yield World(cluster, () if asked_for() else ("hami",))


@pytest.fixture(scope="module", name="controlled")
def start_controllers(alone: None, world: World) -> Iterator[World]:
    """The cluster with a real kube-controller-manager."""
    program_or_skip("kube-controller-manager")
    world.plane.start_controllers()
    yield world
    world.plane.kill("kube-controller-manager")
