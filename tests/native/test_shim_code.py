"""Code is charged what it takes: not what neighbours allocate meanwhile, and once; the agent corrects the rest."""

import fcntl
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, read_control, touch_measured
from aliquot.libshim.overhead import Overhead
from aliquot.plugin.sharing.overhead import identified
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell
from tests.native.sims import wait_for
from tests.native.tenants import Tenant, truth, used

MIB = 1 << 20
CONTEXT, MODULE = 300 * MIB, 2 * MIB
PTX = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none()\n{\nret;\n}\n"

TenantMaker = Callable[..., Tenant]


@pytest.fixture
def machine(tmp_path: Path) -> SimMachine:
    """A card on which contexts and code cost something."""
    made = SimMachine(tmp_path / "machine", [SimCard(memory_mib=65536, context_mib=300, module_mib=2)])
    made.create()
    return made


def slice_of(tenant: TenantMaker, machine: SimMachine, size: int) -> Tenant:
    """A slice whose control page knows what a context costs."""
    return tenant(limits=[CardLimit(machine.cards[0].uuid, size, context_bytes=CONTEXT)])


class Held:
    """A file whose next reader waits in open(2) until it is let go: this process has a lease on it."""

    def __init__(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.path = path
        self._file = path.open("r+")
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def wait_for_reader(self) -> None:
        """Returns when somebody waits."""
        wait_for(lambda: fcntl.fcntl(self._file, fcntl.F_GETLEASE) != fcntl.F_WRLCK, "a reader")

    def let_go(self) -> None:
        """The reader gets on."""
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        self._file.close()


def begin_load(shell: Shell, path: Path, text: str = PTX) -> Held:
    """Starts to load code from a file: the driver is about to read it when this returns."""
    held = Held(path, text)
    shell.say(f"cuModuleLoad {OUT} s{path}")
    held.wait_for_reader()
    return held


def end_load(shell: Shell, held: Held) -> int:
    """Lets it be read; the driver's answer."""
    held.let_go()
    return int(shell.hear().split()[0])


EAGER = {"CUDA_MODULE_LOADING": "EAGER"}


def test_what_a_neighbour_allocates_meanwhile_is_not_charged_for_code(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path
):
    """Modules that just fit are loaded, while the card fills up with somebody else's memory."""
    count = 8
    own = slice_of(tenant, machine, CONTEXT + count * MODULE)
    with Shell(own, **EAGER).begin() as shell, Shell(own, bare=True).begin() as neighbour:
        for number in range(count):
            held = begin_load(shell, tmp_path / f"{number}.ptx")
            neighbour.ok("cuMemAlloc_v2", OUT, 100 * MIB)
            assert end_load(shell, held) == SUCCESS
        assert used(own) == CONTEXT + count * MODULE
        assert own.usage().cards[0].allocations_denied == 0


def test_what_a_neighbour_frees_meanwhile_pays_for_no_code_that_is_measured_again(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path
):
    """The load looks free of charge; the agent finds it."""
    own = slice_of(tenant, machine, 1024 * MIB)
    with Shell(own, **EAGER).begin() as shell, Shell(own, bare=True).begin() as neighbour:
        block = neighbour.ok("cuMemAlloc_v2", OUT, 100 * MIB)
        held = begin_load(shell, tmp_path / "code.ptx")
        neighbour.ok("cuMemFree_v2", block)
        assert end_load(shell, held) == SUCCESS
        agent = Agent(own)
        agent.look()
        agent.look()
        assert in_use(own) == CONTEXT + MODULE


def test_threads_that_load_at_once_are_charged_once(machine: SimMachine, tenant: TenantMaker, tmp_path: Path):
    """Nor are processes of one tenant, whatever else they allocate meanwhile."""
    own = slice_of(tenant, machine, 4096 * MIB)
    large = PTX + "//" + "x" * (8 * MIB)  # may need more than it does
    with Shell(own, **EAGER).begin() as one, Shell(own, **EAGER).begin() as other:
        first, second = (begin_load(shell, tmp_path / f"{shell.pid}.ptx", large) for shell in (one, other))
        with Shell(own).begin() as third:
            third.ok("cuMemAlloc_v2", OUT, 20 * MIB)
            assert end_load(one, first) == end_load(other, second) == SUCCESS
            assert used(own) == truth(own) == 3 * CONTEXT + 2 * MODULE + 20 * MIB


# ---- the agent ----


class Agent:
    """What the node agent does about one tenant's overhead."""

    def __init__(self, own: Tenant) -> None:
        self.own, self.overhead = own, Overhead(own.control)

    def look(self) -> None:
        """One look."""
        uuid, before = self.own.machine.cards[0].uuid, self.own.usage()
        held = identified({uuid: self.own.machine.processes(uuid)})
        self.overhead.look(before, held, self.own.usage())

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Looks twice a second, as the agent does."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.5):
                self.look()

        self.look()
        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def in_use(own: Tenant) -> int:
    """Tally and correction."""
    return used(own) + read_control(own.control).cards[0].adjust_bytes


def overcharged(shell: Shell, neighbour: Shell, path: Path) -> None:
    """Loads code that may need 32 MiB and takes 2, while a neighbour takes as much."""
    held = begin_load(shell, path, PTX + "//" + "x" * (8 * MIB - len(PTX) - 2))
    neighbour.ok("cuMemAlloc_v2", OUT, 100 * MIB)
    assert end_load(shell, held) == SUCCESS


def test_the_agent_takes_back_what_code_was_charged_too_much(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path
):
    """Within two looks what is in use is what the card says."""
    own = slice_of(tenant, machine, 1024 * MIB)
    with Shell(own, **EAGER).begin() as shell, Shell(own, bare=True).begin() as neighbour:
        overcharged(shell, neighbour, tmp_path / "code.ptx")
        assert used(own) == CONTEXT + 32 * MIB
        agent = Agent(own)
        agent.look()
        agent.look()
        assert in_use(own) == CONTEXT + MODULE


def test_a_request_that_an_estimate_refuses_waits_for_the_agent(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path
):
    """It fits when the estimate was corrected, and the program sees no refusal."""
    own = slice_of(tenant, machine, CONTEXT + 40 * MIB)
    with Shell(own, **EAGER).begin() as shell, Shell(own, bare=True).begin() as neighbour:
        with Agent(own).looking():
            overcharged(shell, neighbour, tmp_path / "code.ptx")
            shell.ok("cuMemAlloc_v2", OUT, 38 * MIB)
        assert own.usage().cards[0].allocations_denied == 0
        assert truth(own) - 100 * MIB - CONTEXT == in_use(own)


def test_a_request_that_no_estimate_makes_room_for_is_refused_at_once(
    machine: SimMachine, tenant: TenantMaker, tmp_path: Path
):
    """Also one that fits by an estimate nobody will correct, because there is no agent."""
    own = slice_of(tenant, machine, CONTEXT + 40 * MIB)
    with Shell(own, **EAGER).begin() as shell, Shell(own, bare=True).begin() as neighbour:
        overcharged(shell, neighbour, tmp_path / "code.ptx")
        assert shell.call("cuMemAlloc_v2", OUT, 38 * MIB)[0] == OUT_OF_MEMORY
        touch_measured(own.control, time.monotonic_ns())
        assert shell.call("cuMemAlloc_v2", OUT, 42 * MIB)[0] == OUT_OF_MEMORY


def test_estimates_end_with_the_code(machine: SimMachine, tenant: TenantMaker, tmp_path: Path):
    """By unloading, with the context, and with the process."""
    own = slice_of(tenant, machine, 2048 * MIB)
    path = tmp_path / "code.ptx"
    path.write_text(PTX)

    def estimated() -> int:
        return sum(process.estimated_bytes[0] for process in own.usage().processes)

    with Shell(own, **EAGER).begin() as shell:
        module = shell.ok("cuModuleLoad", OUT, f"s{path}")
        context = shell.ok("cuCtxCreate_v2", OUT, 0, 0)
        shell.ok("cuModuleLoad", OUT, f"s{path}")
        assert estimated() == 2 * MODULE
        shell.ok("cuCtxDestroy_v2", context)
        assert estimated() == MODULE
        shell.ok("cuModuleUnload", module)
        assert estimated() == 0
        shell.ok("cuCtxSetCurrent", shell.ok("cuDevicePrimaryCtxRetain", OUT, 0))
        shell.ok("cuModuleLoad", OUT, f"s{path}")
    with Shell(own, **EAGER).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        assert estimated() == 0
