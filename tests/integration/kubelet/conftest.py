"""A node whose kubelet has a device plugin of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.kubelet.fake_plugin import FakePlugin
from tests.integration.kubelet.pods import wait_allocatable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aliquot.sandbox.cluster.kubectl import Kubectl

IDS = [f"gpu{card}-s{number}" for card in range(2) for number in range(4)]
FLAGS = (
    "--first-retry",
    "0.1",
    "--retry-period",
    "0.3",
    "--restart-backoff",
    "0.2",
    "--plugin-patience",
    "3",
    "--forced-grace",
    "6",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketCluster]:
    """An API server and one node."""
    with PocketCluster(tmp_path_factory.mktemp("k")) as cluster:
        cluster.start_apiserver()
        cluster.start_kubelet("n1", *FLAGS)
        yield cluster


@pytest.fixture
def kubectl(cluster: PocketCluster) -> Kubectl:
    """The cluster's client."""
    return cluster.kubectl


@pytest.fixture
def plugin(cluster: PocketCluster) -> Iterator[FakePlugin]:
    """A registered plugin whose devices count; every pod is gone afterwards."""
    plugin = FakePlugin(cluster.node("n1"), IDS)
    for spec in plugin.paths.cdi.glob("*.json"):
        spec.unlink()
    plugin.start()
    wait_allocatable(cluster.kubectl, "8")
    yield plugin
    plugin.hold_allocate.set()
    for pod in cluster.kubectl.list("pods"):
        cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    wait_for("no containers", lambda: not list(cluster.node("n1").pods.iterdir()))
    plugin.stop()
    # The next test must not take these devices for its own plugin's.
    wait_allocatable(cluster.kubectl, "0")
