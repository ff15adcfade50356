"""What `aliquot run` charges beyond what was asked for."""

import subprocess
import sys

import pytest

from aliquot.cli.runs.simulate import mark_ready
from aliquot.libshim.control_page import read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.integration.shells import Shell, Tenant, until


def make_machine(shell: Shell, card: SimCard) -> None:
    """The user's simulated machine, with a card of its own kind."""
    root = shell.runtime / "aliquot" / "simulated" / "machine"
    SimMachine(root, [card]).create()
    mark_ready(root)


def test_what_a_context_costs_is_charged_to_its_run(shell: Shell):
    """The supervisor corrects the run by what the driver says, and the next run has the estimate from the start."""
    make_machine(shell, SimCard(context_mib=300))
    tenant = Tenant(shell, "--mem", "4Gi")
    assert tenant.ask("alloc", 512) == "CUDA_SUCCESS"
    until(lambda: in_use_mib(shell) == 812)
    until((shell.runtime / "aliquot" / "simulated" / "contexts.json").exists)
    tenant.end()
    tenant = Tenant(shell, "--mem", "4Gi")
    (control,) = shell.runtime.glob("aliquot/simulated/runs/*/control")
    assert read_control(control).cards[0].context_bytes == 300 << 20
    tenant.end()


HOLDER = """
import fcntl, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
page = open(sys.argv[1], "rb")
fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("held", flush=True)
signal.sigwait([signal.SIGIO])
print("wanted", flush=True)
"""


@pytest.mark.slow
def test_a_look_that_fails_is_not_the_last(shell: Shell):
    """A page that could not be written once is corrected when it can be."""
    make_machine(shell, SimCard(context_mib=300))
    tenant = Tenant(shell, "--mem", "4Gi")
    (control,) = shell.runtime.glob("aliquot/simulated/runs/*/control")
    command = [sys.executable, "-c", HOLDER, str(control)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            assert tenant.ask("alloc", 512) == "CUDA_SUCCESS"
            assert holder.stdout.readline() == "wanted\n"
        finally:
            holder.kill()
    until(lambda: in_use_mib(shell) == 812)
    tenant.end()


def in_use_mib(shell: Shell) -> int:
    """What the only run has in use: tally and correction."""
    (control,) = shell.runtime.glob("aliquot/simulated/runs/*/control")
    tally = read_usage(control.with_name("usage")).cards[0].memory_used_bytes
    return (tally + read_control(control).cards[0].adjust_bytes) >> 20
