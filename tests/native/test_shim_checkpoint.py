"""A process that is checkpointed holds nothing of the slice, and is restored only where the slice holds it again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.overhead import Overhead
from aliquot.plugin.sharing.overhead import identified
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell
from tests.native.sims import PRELUDE, wait_for
from tests.native.tenants import Tenant, truth, used

MIB = 1 << 20
CONTEXT = 100 * MIB
MODEL = 600 * MIB
LIMIT = 1000 * MIB
ILLEGAL_STATE, NOT_SUPPORTED = 401, 801

TenantMaker = Callable[..., Tenant]


@pytest.fixture
def machine(tmp_path: Path) -> SimMachine:
    """A card on which contexts cost something."""
    made = SimMachine(tmp_path / "machine", [SimCard(memory_mib=16384, context_mib=CONTEXT // MIB)])
    made.create()
    return made


@pytest.fixture
def own(machine: SimMachine, tenant: TenantMaker) -> Tenant:
    """A slice that holds one model and two contexts, not two models."""
    return tenant(limits=[CardLimit(machine.cards[0].uuid, LIMIT, context_bytes=CONTEXT)])


def load(shell: Shell) -> Shell:
    """A process with a model."""
    shell.begin()
    shell.ok("cuMemAlloc_v2", OUT, MODEL)
    return shell


def put_aside(operator: Shell, shell: Shell) -> None:
    """Checkpoints a process."""
    operator.ok("cuCheckpointProcessLock", shell.pid, 0)
    operator.ok("cuCheckpointProcessCheckpoint", shell.pid, 0)


def bring_back(operator: Shell, shell: Shell) -> int:
    """Restores it; the driver's answer."""
    status = operator.call("cuCheckpointProcessRestore", shell.pid, 0)[0]
    if status == SUCCESS:
        operator.ok("cuCheckpointProcessUnlock", shell.pid, 0)
    return status


@pytest.fixture
def operator(own: Tenant) -> Callable[[], Shell]:
    """Starts what checkpoints others: it has no context of its own."""

    def start() -> Shell:
        shell = Shell(own)
        shell.ok("cuInit", 0)
        return shell

    return start


def test_models_take_turns_in_one_slice(own: Tenant, operator: Callable[[], Shell]):
    """Two that do not fit together: while the one is put aside, the other has its memory, and the other way round."""
    with Shell(own) as first, Shell(own) as second, operator() as op:
        load(first)
        put_aside(op, first)
        assert used(own) == truth(own) == 0
        load(second)
        for _ in range(3):
            assert used(own) == truth(own) == CONTEXT + MODEL
            put_aside(op, second)
            assert bring_back(op, first) == SUCCESS
            assert used(own) == truth(own) == CONTEXT + MODEL
            put_aside(op, first)
            assert bring_back(op, second) == SUCCESS
        assert second.call("cuMemAlloc_v2", OUT, MODEL)[0] == OUT_OF_MEMORY


def test_what_does_not_fit_any_more_is_not_restored(own: Tenant, operator: Callable[[], Shell]):
    """It stays put aside until there is room, and the card does not notice."""
    with Shell(own) as first, Shell(own) as second, operator() as op:
        load(first)
        put_aside(op, first)
        load(second)
        assert bring_back(op, first) == OUT_OF_MEMORY
        assert used(own) == truth(own) == CONTEXT + MODEL
        assert own.usage().cards[0].allocations_denied == 1
        assert op.ok("cuCheckpointProcessGetState", first.pid, OUT) == 2
        second.process.kill()
        second.process.wait()
        assert bring_back(op, first) == SUCCESS
        assert used(own) == truth(own) == CONTEXT + MODEL
        block = first.ok("cuMemAlloc_v2", OUT, 300 * MIB)
        assert first.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        first.ok("cuMemFree_v2", block)
        assert used(own) == CONTEXT + MODEL


def test_calls_that_the_driver_refuses_change_nothing(own: Tenant, operator: Callable[[], Shell]):
    """A process that is not locked, one that is not checkpointed, and one that is not there."""
    with Shell(own) as first, operator() as op:
        load(first)
        assert op.call("cuCheckpointProcessCheckpoint", first.pid, 0)[0] == ILLEGAL_STATE
        assert op.call("cuCheckpointProcessRestore", first.pid, 0)[0] == ILLEGAL_STATE
        assert op.call("cuCheckpointProcessCheckpoint", 1, 0)[0] != SUCCESS
        assert used(own) == truth(own) == CONTEXT + MODEL


def test_the_end_of_a_process_that_is_put_aside_leaves_nothing(own: Tenant, operator: Callable[[], Shell]):
    """However it ends: neither a charge nor room that is not there."""
    for end in ("kill", ".return"):
        with Shell(own) as first, operator() as op:
            load(first)
            put_aside(op, first)
            if end == "kill":
                first.process.kill()
            else:
                first.say(end)
            first.process.wait()
        with Shell(own).begin() as last:
            last.ok("cuMemAlloc_v2", OUT, LIMIT - CONTEXT)
            assert last.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
            assert used(own) == truth(own) == LIMIT


def test_whoever_puts_a_process_aside_may_end(own: Tenant, operator: Callable[[], Shell]):
    """Another brings it back."""
    with Shell(own) as first:
        load(first)
        with operator() as op:
            put_aside(op, first)
        wait_for(lambda: used(own) == 0, "the charge to go")
        with operator() as op:
            assert bring_back(op, first) == SUCCESS
            assert used(own) == truth(own) == CONTEXT + MODEL


def test_what_is_put_aside_is_not_asked_of_the_driver(own: Tenant, operator: Callable[[], Shell]):
    """The agent corrects the tenant's charge by the processes that have something, as if there were no other."""
    with Shell(own) as first, Shell(own) as second, operator() as op:
        load(first)
        put_aside(op, first)
        second.begin()
        uuid, agent = own.machine.cards[0].uuid, Overhead(own.control)
        listed = {pid: size for pid, size in own.machine.processes(uuid).items() if pid == second.pid}
        for _ in range(2):
            (sample,) = agent.look(own.usage(), identified({uuid: listed}), own.usage())
        assert sample is not None
        assert sample.tally_bytes == sample.driver_bytes == CONTEXT


MOVE = """
cuda.cuInit(0)
pid = int(sys.argv[1])
pair, args = cuda.CUcheckpointGpuPair(), cuda.CUcheckpointRestoreArgs()
pair.oldUuid = check(cuda.cuDeviceGetUuid(0))
pair.newUuid = check(cuda.cuDeviceGetUuid(int(sys.argv[2])))
args.gpuPairs, args.gpuPairsCount = [pair], 1
print(int(cuda.cuCheckpointProcessRestore(pid, args)[0]))
"""


def test_a_process_is_restored_to_the_card_that_it_was_charged_on(tmp_path: Path, tenant: TenantMaker):
    """What would move its memory to another card is refused; a pair of one card moves nothing."""
    machine = SimMachine(tmp_path / "two", [SimCard(memory_mib=16384), SimCard(memory_mib=16384)])
    machine.create()
    own = replace(tenant(limits=[CardLimit(card.uuid, LIMIT) for card in machine.cards]), machine=machine)
    with Shell(own) as first, Shell(own) as op:
        op.ok("cuInit", 0)
        load(first)
        put_aside(op, first)
        assert own.run(PRELUDE + MOVE, first.pid, 1).split() == [str(NOT_SUPPORTED)]
        assert used(own) == truth(own) == 0
        assert own.run(PRELUDE + MOVE, first.pid, 0).split() == ["0"]
        assert used(own) == truth(own) == MODEL
