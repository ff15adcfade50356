"""The quota is the tenant's, over all its processes, whatever becomes of any of them."""

import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.tenants import Tenant, truth, used

MIB = 1 << 20
LIMIT = 64 * MIB
DEADLINE_S = 20.0

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


class Storm:
    """A process that allocates and frees as hard as it can."""

    def __init__(self, tenant: Tenant, seed: int, threads: int = 2) -> None:
        arguments = map(str, (seed, 32, threads))
        self.process = subprocess.Popen(
            [program("storm"), *arguments], env=tenant.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def moves(self) -> bool:
        """Whether it gets on within the deadline."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while select.select([descriptor], [], [], 0)[0]:
            os.read(descriptor, 65536)  # what it printed before does not count
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])

    def end(self) -> tuple[int, int]:
        """Ends it in good order; how often it was served and refused."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0
        served, refused = output.decode().split("\n")[-2].split()
        return int(served), int(refused)


@contextmanager
def storms(tenant: Tenant, count: int) -> Iterator[list[Storm]]:
    """Several at once, all moving."""
    running = [Storm(tenant, seed) for seed in range(count)]
    try:
        assert all(storm.moves() for storm in running)
        yield running
    finally:
        for storm in running:
            storm.process.kill()
            storm.process.communicate()


def test_racing_processes_never_hold_more_than_the_slice(slice64: Tenant):
    """Judged by the card's own count while four processes of two threads race."""
    with storms(slice64, 4) as running:
        highest = slice64.machine.memory_highest(slice64.machine.cards[0].uuid, 0.5)
        results = [storm.end() for storm in running]
    assert 0 < highest <= LIMIT
    assert slice64.usage().cards[0].memory_peak_bytes <= LIMIT
    assert all(served > 0 for served, _ in results)
    assert sum(refused for _, refused in results) == slice64.usage().cards[0].allocations_denied > 0
    assert used(slice64) == truth(slice64) == 0


def test_a_request_too_large_never_spoils_one_that_fits(slice64: Tenant):
    """A neighbour asks for more than there is again and again; half the slice stays allocatable all the while."""
    half = LIMIT // 2
    with Shell(slice64).begin() as greedy, Shell(slice64).begin() as modest:
        greedy.ok("cuMemAlloc_v2", OUT, half)
        for _ in range(300):
            greedy.say(f"cuMemAlloc_v2 & {half + 1}")
            block = modest.ok("cuMemAlloc_v2", OUT, half)
            assert greedy.hear().split()[0] == str(OUT_OF_MEMORY)
            modest.ok("cuMemFree_v2", block)


def test_what_a_killed_process_held_is_there_for_the_next(slice64: Tenant):
    """Its neighbour gets it at the first attempt, and cuMemGetInfo of a new process shows it free."""
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as victim:
        neighbour.ok("cuMemAlloc_v2", OUT, 2 * MIB)
        victim.ok("cuMemAlloc_v2", OUT, LIMIT - 2 * MIB)
        assert neighbour.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        os.kill(victim.pid, signal.SIGKILL)
        victim.process.wait()
        with Shell(slice64).begin() as late:
            assert late.memory_info() == (LIMIT - 2 * MIB, LIMIT)
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT - 2 * MIB)


def test_a_zombie_holds_nothing(slice64: Tenant):
    """A container without an init leaves its dead unreaped; they are dead all the same."""
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as victim:
        victim.ok("cuMemAlloc_v2", OUT, LIMIT)
        os.kill(victim.pid, signal.SIGKILL)
        os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_storms_killed_at_random_leave_nothing_behind(slice64: Tenant):
    """Twelve processes die in the middle of it; then the whole slice can be had at once."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(3):
        with storms(slice64, 4) as running:
            for storm in running:
                for _ in range(dice.randrange(3)):
                    assert truth(slice64) <= LIMIT
                storm.process.kill()
                storm.process.wait()  # what it holds while it dies is still its own on the card
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT)[0] == SUCCESS
    assert slice64.usage().cards[0].memory_peak_bytes <= LIMIT


def test_a_stopped_process_blocks_nobody(slice64: Tenant):
    """Stopped at random moments of its storm, its neighbours go on; continued, it ends with a right account."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with storms(slice64, 3) as running:
        for _ in range(12):
            victim = dice.choice(running)
            os.kill(victim.process.pid, signal.SIGSTOP)
            assert all(storm.moves() for storm in running if storm is not victim)
            os.kill(victim.process.pid, signal.SIGCONT)
            assert victim.moves()
        for storm in running:
            storm.end()
    assert used(slice64) == 0


def test_handles_are_counted_right_by_racing_threads(slice64: Tenant):
    """Threads that retain and release one allocation lose no reference: unmapped and released, it costs nothing."""
    command = [program("vmm_storm"), "100000", "2"]
    with subprocess.Popen(
        command, env=slice64.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as storm:
        assert storm.stdout is not None
        assert storm.stdout.readline() == "done\n"
        assert used(slice64) == truth(slice64) == 0


def test_a_forked_child_has_an_account_of_its_own(slice64: Tenant):
    """It neither holds its parent's memory nor frees it, and the parent's account is whole when it has gone."""
    with Shell(slice64).begin() as shell:
        block = shell.ok("cuMemAlloc_v2", OUT, MIB)
        shell.say(".fork")
        assert shell.hear() == "child"
        shell.call("cuMemFree_v2", block)
        shell.call("cuMemGetInfo_v2", OUT, OUT)
        assert used(slice64) == MIB
        shell.say(".exit")
        assert shell.hear() == "parent"
        shell.ok("cuMemFree_v2", block)
        assert used(slice64) == 0


def test_a_child_forked_before_cuda_allocates_in_the_same_slice(slice64: Tenant):
    """Parent and child share the quota, each in a slot of its own, also where the parent has looked at its slice."""
    with Shell(slice64) as shell:
        assert (
            shell.call("cuMemAlloc_v2", OUT, 1)[0] != SUCCESS
        )  # not initialised, but the pages are mapped now
        shell.say(".fork")
        assert shell.hear() == "child"
        shell.begin()
        shell.ok("cuMemAlloc_v2", OUT, MIB)
        (child,) = slice64.usage().processes
        assert child.memory_bytes[0] == MIB
        assert child.pid != shell.pid
        shell.say(".exit")
        assert shell.hear() == "parent"
        shell.begin()
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_a_program_started_by_exec_starts_with_nothing(slice64: Tenant):
    """The process is the same, its old program's memory is gone."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert shell.ask(".exec") == "ready"
        shell.begin()
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert len(slice64.usage().processes) == 1


def test_a_reused_pid_is_told_from_its_former_owner(slice64: Tenant):
    """A slot whose owner has our neighbour's pid but another start time is a dead process's."""
    owner_offset, slots_offset, slot_size = 0, 4096, 256
    with Shell(slice64).begin() as neighbour, Shell(slice64).begin() as shell:
        neighbour.ok("cuMemAlloc_v2", OUT, LIMIT)
        with slice64.usage_page.open("r+b") as page:
            page.seek(slots_offset + owner_offset)
            word = int.from_bytes(page.read(8), "little")
            assert word >> 42 == neighbour.pid
            page.seek(slots_offset + owner_offset)
            page.write((word ^ 1).to_bytes(8, "little"))
        assert slot_size * 256 + slots_offset <= slice64.usage_page.stat().st_size
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_a_full_table_of_processes_stays_closed(slice64: Tenant):
    """The newest process gets no memory, and the page says why; when a slot is free it gets some."""
    slots_offset, slot_size, slots = 4096, 256, 256
    other_namespace = (1 << 42) | (0xABCD << 26) | 1
    with slice64.usage_page.open("r+b") as page:
        for index in range(slots):
            page.seek(slots_offset + index * slot_size)
            page.write(other_namespace.to_bytes(8, "little"))
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert "slots" in slice64.usage().note
        with slice64.usage_page.open("r+b") as page:
            page.seek(slots_offset)
            page.write(bytes(8))
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_limits_change_while_programs_run(slice64: Tenant):
    """A raised limit is there at once; a lowered one refuses what is new and takes nothing away."""
    from aliquot.libshim.control_page import CardLimit, Control, update_control

    uuid = slice64.machine.cards[0].uuid
    tenant = f"test/{slice64.directory.name}"
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        update_control(slice64.control, Control(tenant, (CardLimit(uuid, 2 * LIMIT),)))
        block = shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        update_control(slice64.control, Control(tenant, (CardLimit(uuid, LIMIT),)))
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert shell.memory_info() == (0, LIMIT)
        shell.ok("cuMemFree_v2", block)
        assert shell.memory_info() == (0, LIMIT)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true within the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            return False
    return True


def test_a_waiting_program_sees_what_the_dead_held(slice64: Tenant):
    """A program that only asks how much is free is told of a neighbour's death within seconds."""
    with Shell(slice64).begin() as waiting, Shell(slice64).begin() as victim:
        victim.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert waiting.memory_info() == (0, LIMIT)
        os.kill(victim.pid, signal.SIGKILL)
        victim.process.wait()
        assert wait_until(lambda: waiting.memory_info() == (LIMIT, LIMIT))
