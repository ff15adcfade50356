"""Processes of several containers on one simulated machine: each container has process ids of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from aliquot.sandbox.gpus import MIB, SimMachine
from tests.native.sims import PRELUDE, wait_for

INSIDE = 'mount --bind /proc "$0" && mount -t proc proc /proc && exec "$@"'
"""Keeps the machine's /proc where the simulated driver is told to look, and shows the container its own."""
HOLD = """
import os
start()
check(cuda.cuMemAlloc(int(sys.argv[1]) << 20))
print(os.getpid(), flush=True)
sys.stdin.read()
"""
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private")


@pytest.fixture
def hold(machine: SimMachine) -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts a program that holds so many MiB, as the first process of its namespace."""
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("NOT RUN: this user may make no pid namespaces")
    (machine.root / "host-proc").mkdir()
    with ExitStack() as stack:

        def start(mib: int) -> subprocess.Popen[str]:
            proc = str(machine.root / "host-proc")
            environ = {**os.environ, **machine.env(), "SIMGPU_PROC": proc}
            argv = [*UNSHARE, "sh", "-c", INSIDE, proc, sys.executable, "-c", PRELUDE + HOLD, str(mib)]
            pipe = subprocess.PIPE
            run = stack.enter_context(subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, text=True))
            stack.callback(run.kill)
            assert run.stdout
            assert run.stdout.readline() == "1\n"
            return run

        yield start


def test_first_processes_of_containers_are_told_apart(
    machine: SimMachine, hold: Callable[[int], subprocess.Popen[str]]
):
    """Both are process 1 to themselves; the card knows two, each with its own memory, and forgets who is killed."""
    card = machine.cards[0].uuid
    first, _ = hold(100), hold(300)
    assert sorted(machine.processes(card).values()) == [100 * MIB, 300 * MIB]
    assert 1 not in machine.processes(card)
    first.kill()
    wait_for(lambda: machine.memory_used(card) == 300 * MIB, "the killed one's memory")
