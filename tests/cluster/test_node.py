"""Two test runs on one machine share its network and its cgroups, and so have their nodes one after the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.installation import ROOT, Installation

pytestmark = pytest.mark.cluster

ANOTHER = "from tests.cluster.node import only_node\nwith only_node(): pass\n"


def waits_for_a_lock(pid: int) -> bool:
    """Whether the kernel has a process in line for one."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in line and str(pid) in line for line in lines)


def test_a_run_waits_for_the_node_of_another(installation: Installation, tmp_path: Path):
    """Wherever it has its temporary files: it would take away the links and addresses of the node that there is."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    another = subprocess.Popen([sys.executable, "-c", ANOTHER], cwd=ROOT, env=environ)
    try:
        wait_for("it to wait", lambda: waits_for_a_lock(another.pid) or another.poll() is not None)
        assert another.poll() is None
    finally:
        another.kill()
        another.wait()
