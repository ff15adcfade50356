"""What several tests of the whole need."""

from pathlib import Path

import pytest

from tests.integration.shells import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A user with no runs yet."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return Shell(runtime)
