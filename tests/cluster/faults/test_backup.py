"""etcd is restored from an older backup under an extender that runs on."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import program_or_skip
from tests.integration.extenders import Extender, add_node
from tests.integration.faults.histories import scene

if TYPE_CHECKING:
    from aliquot.sandbox.cluster.cluster import PocketCluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
WRITES = 300
"""What a cluster writes in a minute or so: the API server must not come to its old versions while it starts."""


class Backup:
    """etcd's directory, copied while nothing writes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._directory, self._copy = plane.root / "etcd", plane.root / "backup"

    def make(self) -> None:
        """Keep what there is now, and have the cluster go on."""
        self._stop()
        shutil.copytree(self._directory, self._copy)
        self._start()
        for number in range(WRITES):
            self._plane.kubectl.apply(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "busy"},
                    "data": {"number": str(number)},
                }
            )

    def restore(self) -> None:
        """Have what was kept again, as if nothing had been written since."""
        self._stop()
        shutil.rmtree(self._directory)
        shutil.copytree(self._copy, self._directory)
        self._start()

    def _stop(self) -> None:
        for name in ("kube-apiserver", "etcd"):
            self._plane.kill(name)

    def _start(self) -> None:
        for name in ("etcd", "kube-apiserver"):
            self._plane.restart(name)


def test_an_extender_believes_the_backup() -> None:
    """A watch of a real API server from a version that it has not come to is silent; the extender notices."""
    for name in ("etcd", "kube-apiserver"):
        program_or_skip(name)
    with ControlPlane() as plane:
        cluster = cast("PocketCluster", plane)
        plane.define(*(ROOT / "deploy/crds").glob("*.yaml"))
        for name in ("n1", "n2"):
            add_node(cluster, name, [f"{name}-a", f"{name}-b"])
        extender, backup = Extender(cluster), Backup(plane)
        extender.start()
        pid = extender.process.pid
        try:
            scene(cluster, [extender], backup.make, backup.restore)
            assert extender.process.pid == pid
        finally:
            extender.process.stop()
