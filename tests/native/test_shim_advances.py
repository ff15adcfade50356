"""Processes that allocate at the same time are charged in advance; nobody is shown it, or short because of it."""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from aliquot.libshim._pages import ffi, lib
from aliquot.libshim.control_page import CardLimit, Control, update_control
from aliquot.libshim.usage_page import read_card_usages
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, Shell, program, two_cards
from tests.native.tenants import Tenant, truth, used

MIB, GIB = 1 << 20, 1 << 30
LIMIT = GIB
BLOCK = 2 * MIB
IN_USE = 3 * BLOCK
SOURCES = ("advance.c", "process.c", "presence.c")
OPERATIONS = ("first", "take", "give", "grow", "shrink", "squeeze", "refuse", "collect")

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def own(tenant: TenantMaker) -> Tenant:
    """A slice of 1 GiB."""
    return tenant(LIMIT)


def card_line(own: Tenant) -> bytes:
    """The cache line that all processes of the tenant read for its first card."""
    with own.usage_page.open("rb") as page:
        page.seek(ffi.offsetof("aq_usage_page", "cards"))
        return page.read(64)


def charged(own: Tenant) -> int:
    """The tally of the tenant's first card: what is in use and the advances."""
    return int.from_bytes(card_line(own)[:8], "little") >> lib.AQ_TALLY_SHIFT


def slot_offset(index: int, field: str) -> int:
    """Where a word of a slot is."""
    slots = ffi.offsetof("aq_usage_page", "slots") + index * ffi.sizeof("aq_usage_slot")
    return int(slots + ffi.offsetof("aq_usage_slot", field))


def slot_word(own: Tenant, index: int, field: str, size: int = 4) -> int:
    """A word of a slot."""
    with own.usage_page.open("rb") as page:
        return int.from_bytes(os.pread(page.fileno(), size, slot_offset(index, field)), "little")


@pytest.fixture
def pair(own: Tenant) -> Iterator[tuple[Shell, Shell]]:
    """Two processes with two blocks and one in use, and an advance each."""
    with Shell(own).begin() as one, Shell(own).begin() as other:
        for shell in (one, other, one):
            shell.ok("cuMemAlloc_v2", OUT, BLOCK)
        assert charged(own) > IN_USE + 2 * BLOCK
        yield one, other


# ---- at every instruction ----


def steps(operation: str, ending: str, stride: int = 1) -> int:
    """Runs a process again and again, interfered with some instructions later each time; how many there were."""
    done = subprocess.run(
        [program("advance_steps", *SOURCES), operation, ending, str(stride)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ending", ["kill", "resume", "crowd"])
def test_whoever_stops_anywhere_neither_withholds_nor_loses_anything(operation: str, ending: str):
    """Its neighbour is shown what is in use, gets all that fits and no more; the account is right in the end."""
    assert steps(operation, ending, 17 if operation == "collect" else 3) > 100


def test_an_advance_that_ended_while_its_taker_slept_is_not_taken():
    """The tally may come back to the very word that it was read as: what was counted on is looked at again."""
    assert steps("squeeze", "age", 3) > 100


def test_an_advance_that_its_owner_ended_meanwhile_makes_nothing_unfit():
    """A tally that was read with it and slots that were read without it are of no one moment, and refuse nothing."""
    assert steps("squeeze", "shake", 3) > 100


def test_of_two_who_want_the_last_bytes_one_gets_them():
    """One needs the other's advance, and is stopped anywhere; the other takes from it meanwhile."""
    assert steps("squeeze", "rival", 3) > 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fits", "full"])
@pytest.mark.parametrize("processes", [3, 12])
def test_racing_processes_with_advances_get_what_fits_and_no_more(mode: str, processes: int):
    """Stopped and killed at random; judged by what they count themselves."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    race = program("advance_race", "ledger.c", *SOURCES)
    command = [race, mode, str(seed), str(processes), "1500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- what is shown ----


def test_an_advance_is_shown_to_nobody(own: Tenant, pair: tuple[Shell, Shell]):
    """cuMemGetInfo, the agent's readings, the peak and what each process holds are what is in use, to the byte."""
    for shell in pair:
        assert shell.memory_info() == (LIMIT - IN_USE, LIMIT)
    assert used(own) == truth(own) == IN_USE
    assert read_card_usages(own.usage_page) == own.usage().cards
    assert own.usage().cards[0].memory_peak_bytes == IN_USE
    assert sorted(process.memory_bytes[0] for process in own.usage().processes) == [BLOCK, 2 * BLOCK]


@pytest.mark.parametrize("word", ["pid", "image"])
def test_an_advance_is_that_of_the_process_and_program_that_took_it(
    own: Tenant, pair: tuple[Shell, Shell], word: str
):
    """Who has the slot now, without a word of advances (an older interceptor), has all of its charge in use."""
    one, other = pair
    (at,) = (index for index in range(2) if slot_word(own, index, "pid") == other.pid)
    ahead = slot_word(own, at, "memory", 8) >> lib.AQ_TALLY_SHIFT
    before = slot_word(own, at, word)
    with own.usage_page.open("r+b", buffering=0) as page:
        os.pwrite(page.fileno(), (before + 1).to_bytes(4, "little"), slot_offset(at, word))
        in_use = IN_USE - BLOCK + ahead
        assert one.memory_info() == (LIMIT - in_use, LIMIT)
        assert used(own) == in_use
        assert max(process.memory_bytes[0] for process in own.usage().processes) == max(ahead, 2 * BLOCK)
        assert one.call("cuMemAlloc_v2", OUT, LIMIT - in_use + 1)[0] == OUT_OF_MEMORY
        os.pwrite(page.fileno(), before.to_bytes(4, "little"), slot_offset(at, word))
    one.ok("cuMemAlloc_v2", OUT, LIMIT - IN_USE)


def test_nvml_shows_no_advance(own: Tenant, pair: tuple[Shell, Shell]):
    """Neither of the card nor of a process."""
    seen = own.run("""
import pynvml as nvml
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
sizes = sorted(p.usedGpuMemory for p in nvml.nvmlDeviceGetComputeRunningProcesses(card))
print(nvml.nvmlDeviceGetMemoryInfo(card).used, *sizes)
""")
    assert [int(word) for word in seen.split()] == [IN_USE, BLOCK, 2 * BLOCK]


def test_the_peak_counts_what_was_taken_from_an_advance(own: Tenant, pair: tuple[Shell, Shell]):
    """What was used for a moment only, too."""
    before = charged(own)
    block = pair[0].ok("cuMemAlloc_v2", OUT, BLOCK)
    pair[0].ok("cuMemFree_v2", block)
    assert charged(own) == before
    assert own.usage().cards[0].memory_peak_bytes == IN_USE + BLOCK


def test_a_process_alone_is_charged_what_it_uses(own: Tenant):
    """Nobody contends, so nothing is charged in advance."""
    with Shell(own).begin() as shell:
        for blocks in range(1, 20):
            shell.ok("cuMemAlloc_v2", OUT, MIB)
            assert charged(own) == blocks * MIB


def test_processes_that_serve_themselves_leave_the_shared_line_alone(own: Tenant, pair: tuple[Shell, Shell]):
    """Neither's allocations and frees change a word that the other reads."""

    def serve_themselves() -> bytes:
        for shell in pair:
            shell.ok("cuMemFree_v2", shell.ok("cuMemAlloc_v2", OUT, 4096))
        return card_line(own)

    first = serve_themselves()  # the peak is in that line
    assert all(serve_themselves() == first for _ in range(50))


def test_who_is_left_alone_has_no_advance_either(own: Tenant, pair: tuple[Shell, Shell]):
    """The slots of those who had some were collected; nothing remembers them."""
    for shell in pair:
        os.kill(shell.pid, signal.SIGKILL)
        shell.process.wait()
    test_a_process_alone_is_charged_what_it_uses(own)


# ---- what can be had ----


@pytest.mark.parametrize("state", ["idle", "stopped", "killed"])
def test_a_neighbours_advance_can_be_had_to_the_byte(own: Tenant, pair: tuple[Shell, Shell], state: str):
    """Whatever becomes of its owner: at the first attempt, and not a byte more."""
    one, other = pair
    rest = LIMIT - IN_USE
    if state == "stopped":
        os.kill(other.pid, signal.SIGSTOP)
    elif state == "killed":
        os.kill(other.pid, signal.SIGKILL)
        other.process.wait()
        rest += BLOCK
    block = one.ok("cuMemAlloc_v2", OUT, rest)
    assert one.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
    assert one.memory_info() == (0, LIMIT)
    one.ok("cuMemFree_v2", block)
    assert used(own) == LIMIT - rest


def test_who_lost_an_advance_goes_on_without(own: Tenant, pair: tuple[Shell, Shell]):
    """It gets nothing while the slice is full, and what is free as soon as there is some."""
    one, other = pair
    block = one.ok("cuMemAlloc_v2", OUT, LIMIT - IN_USE)
    assert other.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
    one.ok("cuMemFree_v2", block)
    other.ok("cuMemAlloc_v2", OUT, LIMIT - IN_USE)
    assert one.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
    assert used(own) == truth(own) == LIMIT


def test_a_limit_lowered_to_what_is_in_use_holds_for_advances(own: Tenant, pair: tuple[Shell, Shell]):
    """From the next call on; what is freed then is there again, for either."""
    card = own.machine.cards[0].uuid
    update_control(own.control, Control(f"test/{own.directory.name}", (CardLimit(card, IN_USE),)))
    for shell in pair:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert shell.memory_info() == (0, IN_USE)
    assert used(own) == IN_USE


def test_nobody_wishes_for_a_grant_that_advances_use_up(own: Tenant, pair: tuple[Shell, Shell]):
    """What fits the grant without the neighbour's advance is had at once."""
    card = own.machine.cards[0].uuid
    limit = CardLimit(card, LIMIT, grant_bytes=LIMIT // 2)
    update_control(own.control, Control(f"test/{own.directory.name}", (limit,)))
    pair[0].ok("cuMemAlloc_v2", OUT, LIMIT // 2 - IN_USE)
    assert own.usage().cards[0].wanted_ns == 0


# ---- other ages ----


def test_an_older_agents_page_has_no_advances(own: Tenant):
    """It ends before them, and all is charged as it is used."""
    own.shorten_usage(lib.AQ_USAGE_SIZE)
    with Shell(own).begin() as one, Shell(own).begin() as other:
        for shell in (one, other, one, other):
            shell.ok("cuMemAlloc_v2", OUT, MIB)
        assert charged(own) == used(own) == 4 * MIB
        assert one.memory_info() == (LIMIT - 4 * MIB, LIMIT)


@pytest.mark.parametrize("size", [lib.AQ_USAGE_ADVANCED_SIZE, lib.AQ_USAGE_MONITORED_SIZE])
def test_a_page_that_ends_behind_advances_has_them(own: Tenant, size: int):
    """As agents made them before the kernel marked ends, and before there were estimates."""
    own.shorten_usage(size)
    with Shell(own).begin() as one, Shell(own).begin() as other:
        for shell in (one, other, one):
            shell.ok("cuMemAlloc_v2", OUT, BLOCK)
        assert used(own) == IN_USE
        assert charged(own) > IN_USE + 2 * BLOCK
    assert own.usage_page.stat().st_size == size


@pytest.mark.parametrize(
    "size", [lib.AQ_USAGE_ADVANCED_SIZE, lib.AQ_USAGE_MONITORED_SIZE, lib.AQ_USAGE_FILE_SIZE]
)
def test_a_page_that_is_cut_off_is_refused(own: Tenant, size: int):
    """Its head promises more."""
    os.truncate(own.usage_page, size - 1)
    with Shell(own).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
