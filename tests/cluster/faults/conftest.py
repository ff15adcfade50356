"""What faults are tried on."""

from collections.abc import Iterator

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import field as fields
from tests.cluster.programs import program_or_skip


@pytest.fixture(scope="module")
def scheduled(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[fields.Field]:
    """Nodes, extender and kube-scheduler for the tests of a file."""
    program_or_skip("kube-scheduler")
    with fields.field(control_plane, tmp_path_factory.mktemp("field")) as field:
        yield field


@pytest.fixture
def field(scheduled: fields.Field) -> Iterator[fields.Field]:
    """The same for one test: audited after it, emptied, and nothing is promised then."""
    scheduled.proxy.seen.clear()
    yield scheduled
    scheduled.audit()
    for pod in scheduled.kubectl.list("pods", "default"):
        scheduled.gone(pod["metadata"]["name"])
    wait_for("nothing to be promised", lambda: not scheduled.extender.places(), fields.SOON_S)
