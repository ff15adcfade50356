"""A cluster without Aliquot for each walk-through, and a shell in which a reader would go through it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.installation import Installation
from tests.cluster.walkthroughs.reader import environment, make_checkout
from tests.cluster.walkthroughs.walk import Shell


@pytest.fixture
def user(installed: Installation, tmp_path: Path) -> Iterator[Shell]:
    """The shell of somebody in a cluster with Aliquot."""
    make_checkout(tmp_path)
    with Shell(tmp_path, environment(installed, tmp_path)) as shell:
        yield shell


@pytest.fixture
def cleared(installation: Installation) -> Iterator[Installation]:
    """The cluster of all tests, without Aliquot; who needs it afterwards installs it anew."""
    installation.clear()
    yield installation
    installation.clear()


@pytest.fixture
def reader(cleared: Installation, tmp_path: Path) -> Iterator[Shell]:
    """The shell of somebody who has a checkout, kubectl, helm, aliquot and an admin's kubeconfig."""
    make_checkout(tmp_path)
    with Shell(tmp_path, environment(cleared, tmp_path)) as shell:
        yield shell
