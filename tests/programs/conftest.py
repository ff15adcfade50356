"""The programs, compiled, and simulated machines to run them on."""

from collections.abc import Iterator

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from bench.timeshare.machines import Simulated
from bench.timeshare.workload_run import Tools


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """What runs the programs."""
    root = tmp_path_factory.mktemp("programs")
    machine = SimMachine(root / "machine", [SimCard()])
    machine.create()
    return Tools(root, machine.lib_dir / "libcuda.so.1", Simulated)
