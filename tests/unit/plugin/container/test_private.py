"""The directories of agent and tenants are for nobody else on the host, whatever is in them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aliquot.libshim.control_page import CardLimit, Control
from aliquot.plugin.agent import only_agent
from aliquot.plugin.container.tenant_pages import TenantDirectories

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
WRITE = "import sys; open(sys.argv[1], 'r+b').write(b'x')"


@pytest.fixture
def host() -> Iterator[Path]:
    """A directory of the host that all users may look into, as /run and /var/lib."""
    with tempfile.TemporaryDirectory(prefix="aliquot-host-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def written(path: Path) -> bool:
    """Whether another user of the host can write a file."""
    if os.geteuid():
        pytest.skip("NOT RUN: only root can be another user")
    python = Path("/usr/bin/python3")
    command = [python if python.exists() else sys.executable, "-c", WRITE, path]
    done = subprocess.run(command, user=NOBODY, capture_output=True, text=True, check=False)
    assert not done.returncode or "PermissionError" in done.stderr, f"{done.returncode}: {done.stderr}"
    return not done.returncode


def test_another_user_writes_no_tenants_page(host: Path):
    """The page itself is for every user of its container."""
    old = host / "tenants"
    old.mkdir(mode=0o755)
    tenants = TenantDirectories(host)
    made = tenants.prepare("uid", "main", Control("a/b/main", (CardLimit("GPU-1", 1 << 30),)))
    assert made.usage.path.stat().st_mode & 0o777 == 0o666
    assert not written(made.usage)
    old.chmod(0o755)
    assert written(made.usage), "it is the directory that keeps others out"


def test_another_user_reads_no_state_of_the_agent(host: Path):
    """Journal, placements and pods of the node lie there."""
    state = host / "state"
    state.mkdir(mode=0o755)
    with only_agent(state):
        assert state.stat().st_mode & 0o777 == 0o700
