"""A usage page that names another pod's process: it lives, and changes nothing for who names it."""

from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control
from aliquot.libshim.usage_page import read_usage
from aliquot.node.processes import Processes
from aliquot.plugin.container.tenant_pages import TenantDirectories
from aliquot.plugin.metrics import read_slices
from aliquot.units import MIB
from tests.unit.host import OTHER, POD, process
from tests.unit.plugin.usage import write_usage

CONTROL = Control("default/web/main", (CardLimit("GPU-1", 1024 * MIB),))


@pytest.mark.parametrize(("owner", "lives"), [(POD, True), (OTHER, False)])
def test_only_its_own_processes_use_memory_and_keep_a_page(tmp_path: Path, owner: str, lives: bool) -> None:
    """What the metrics tell, and what a container that starts again finds."""
    name = process(tmp_path / "proc", 70, f"0::/kubepods/pod{owner}/a")
    processes = Processes(tmp_path / "proc")
    tenants = TenantDirectories(tmp_path / "run", processes)
    tenant = tenants.prepare(POD, "main", CONTROL)
    write_usage(tenant.usage, 100 * MIB, owner=(name.pid, name.pid_namespace, name.start_time))
    (found,) = read_slices(tenant, processes.read())
    assert found.usage.memory_used_bytes == (100 * MIB if lives else 0)
    tenants.prepare(POD, "main", CONTROL)
    assert bool(read_usage(tenant.usage).cards[0].memory_used_bytes) == lives
