"""One control plane for all tests that need no other; each works in a namespace, or cleans up."""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from aliquot.sandbox.gpus import SimCard
from tests.cluster.auditor import audit, audit_clean
from tests.cluster.control_plane import ControlPlane
from tests.cluster.existing import VARIABLE, KubeconfigError, given
from tests.cluster.images import service_image
from tests.cluster.installation import Installation
from tests.cluster.trial import WORD, RefusedError, Trial, asked_for
from tests.tools.debian import NotAvailableError

NEWER = "99.0.0"
"""A version to upgrade to."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a node, before tests are chosen by their marks, and what is not for a cluster that is there."""
    for item in items:
        if "installation" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.node)
    skip_careless(items)


def skip_careless(items: list[pytest.Item]) -> None:
    """On a cluster that somebody has already nothing is run but what was written with care for it."""
    if given() is None:
        return
    mine = f"NOT RUN: {VARIABLE} names a cluster that is there, and it needs one of its own"
    for item in items:
        here = Path(__file__).parent in item.path.parents
        if here and not careful(set(getattr(item, "fixturenames", ()))):
            item.add_marker(pytest.mark.skip(reason=mine))


def careful(fixtures: set[str]) -> bool:
    """Whether a test with these fixtures leaves a cluster as it was, where Aliquot may be installed on it, too."""
    lends = asked_for() and bool({"borrowed", "world"} & fixtures)
    return "existing" in fixtures or (lends and "alone" not in fixtures)


@contextlib.contextmanager
def lent() -> Iterator[Trial]:
    """The cluster that somebody has named, for a while; the run ends where it is not to be had."""
    try:
        trial = Trial(given(), os.environ[WORD])
        trial.__enter__()
    except (RefusedError, KubeconfigError) as refused:
        pytest.exit(str(refused), returncode=1)
    with contextlib.closing(trial):
        yield trial


@pytest.fixture(scope="session")
def alone() -> None:
    """For tests that need a cluster of their own: they start its controllers, or stop what others wait for."""


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver."""
    try:
        plane = ControlPlane()
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    with plane:
        yield plane


@pytest.fixture(scope="session")
def installation(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """A whole cluster of one node with two cards of 16 GiB, and Aliquot on it."""
    try:
        whole = Installation([SimCard(), SimCard()])
        whole.__enter__()
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    if any("newer_image" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("newer_image")
    yield whole
    whole.__exit__()


@pytest.fixture(scope="session")
def newer_image() -> Iterator[Future[Path]]:
    """The services as a newer version, which are built while tests that come before it wait."""
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(service_image, NEWER)


@pytest.fixture
def installed(installation: Installation) -> Iterator[Installation]:
    """The same for one test, once it offers all its slices: audited after it, emptied, and audited again."""
    installation.ensure()
    yield installation
    try:
        audit(installation)
    finally:  # what is wrong in one test shall spoil no other
        for pod in installation.kubectl.list("pods", "default"):
            installation.kubectl.delete("pods", pod["metadata"]["name"], grace=1)
        wait_for("all pods to go", lambda: not installation.kubectl.list("pods", "default"), 180)
    audit_clean(installation)
