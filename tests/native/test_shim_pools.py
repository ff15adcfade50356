"""Pools are charged by what they reserve, before they do; the judge is the card's own count."""

import random
import select
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, update_control
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.pools import (
    DEADLINE_S,
    LIMIT,
    MIB,
    RELEASE_THRESHOLD,
    SPIN_PTX,
    SPINNING,
    keep_everything,
    watch_until_served,
)
from tests.native.shells import INVALID_VALUE, OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.tenants import Tenant, truth, used

STEP = 32 * MIB
DEVICE_MEMORY = "x" + struct.pack("<iiii72x", 1, 0, 1, 0).hex()


TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def test_a_pool_is_charged_by_the_step_it_grows_by(slice64: Tenant):
    """One byte costs what the driver reserves for it, and the rest of that is there for the next."""
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAllocAsync", OUT, 1, 0)
        assert used(slice64) == truth(slice64) == STEP
        shell.ok("cuMemAllocAsync", OUT, STEP - 512, 0)
        assert used(slice64) == truth(slice64) == STEP


def test_a_step_that_does_not_fit_never_reaches_the_driver(tenant: TenantMaker):
    """The request would fit, the driver's step would not."""
    slice_ = tenant(STEP + STEP // 2)
    with Shell(slice_).begin() as shell:
        shell.ok("cuMemAlloc_v2", OUT, STEP)
        assert shell.call("cuMemAllocAsync", OUT, MIB, 0)[0] == OUT_OF_MEMORY
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        reserved_high = 6
        assert shell.ok("cuMemPoolGetAttribute", pool, reserved_high, OUT) == 0
        assert used(slice_) == truth(slice_) == STEP


def test_idle_room_in_a_pool_is_usable_when_the_slice_is_full(slice64: Tenant):
    """What a pool keeps can be allocated from it again, in other sizes, though no step more would fit."""
    with Shell(slice64).begin() as shell:
        keep_everything(shell)
        halves = [shell.ok("cuMemAllocAsync", OUT, LIMIT // 2, 0) for _ in range(2)]
        shell.ok("cuMemFreeAsync", halves[0], 0)
        shell.ok("cuStreamSynchronize", 0)
        assert used(slice64) == LIMIT
        for _ in range(4):
            shell.ok("cuMemAllocAsync", OUT, LIMIT // 8, 0)
        assert shell.call("cuMemAllocAsync", OUT, 1, 0)[0] == OUT_OF_MEMORY
        assert used(slice64) == truth(slice64) == LIMIT


def test_trimming_and_a_lower_threshold_give_back(slice64: Tenant):
    """To the byte that the driver keeps."""
    with Shell(slice64).begin() as shell:
        pool = keep_everything(shell)
        shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, LIMIT, 0), 0)
        shell.ok("cuStreamSynchronize", 0)
        shell.ok("cuMemPoolTrimTo", pool, STEP)
        assert used(slice64) == truth(slice64) == STEP
        shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, "x" + "00" * 8)
        shell.ok("cuStreamSynchronize", 0)
        assert used(slice64) == truth(slice64) == 0


def test_a_destroyed_pool_is_charged_until_nothing_of_it_is_in_use(slice64: Tenant):
    """The program may use it no more; what it still holds is the slice's."""
    with Shell(slice64).begin() as shell:
        pool = shell.ok("cuMemPoolCreate", OUT, DEVICE_MEMORY)
        shell.ok("cuDeviceSetMemPool", 0, pool)
        block = shell.ok("cuMemAllocAsync", OUT, MIB, 0)
        shell.ok("cuMemPoolDestroy", pool)
        assert used(slice64) == truth(slice64) == STEP
        assert shell.call("cuMemPoolDestroy", pool)[0] == INVALID_VALUE
        assert shell.call("cuMemAllocFromPoolAsync", OUT, MIB, pool, 0)[0] == INVALID_VALUE
        assert shell.ok("cuDeviceGetMemPool", OUT, 0) == shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
        shell.ok("cuMemFree_v2", block)
        assert used(slice64) == truth(slice64) == 0


def test_a_raised_limit_reaches_pools_that_are_there(slice64: Tenant):
    """What was refused fits at the next call."""
    uuid = slice64.machine.cards[0].uuid
    with Shell(slice64).begin() as shell:
        shell.ok("cuMemAllocAsync", OUT, LIMIT, 0)
        assert shell.call("cuMemAllocAsync", OUT, LIMIT, 0)[0] == OUT_OF_MEMORY
        update_control(slice64.control, Control("test/raised", (CardLimit(uuid, 2 * LIMIT),)))
        shell.ok("cuMemAllocAsync", OUT, LIMIT, 0)
        assert used(slice64) == truth(slice64) == 2 * LIMIT


@pytest.fixture
def both(tenant: TenantMaker, machine: SimMachine) -> Tenant:
    """A slice of 64 MiB of each of two cards."""
    return tenant(limits=[CardLimit(card.uuid, LIMIT) for card in machine.cards])


def test_what_a_pool_refuses_is_its_own_cards_refusal(both: Tenant):
    """Whatever the device of the stream that it is asked for."""
    with Shell(both).begin() as shell:
        pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 1)
        shell.ok("cuMemAllocFromPoolAsync", OUT, LIMIT, pool, 0)
        assert [card.memory_used_bytes for card in both.usage().cards[:2]] == [0, LIMIT]
        assert shell.call("cuMemAllocFromPoolAsync", OUT, 1, pool, 0)[0] == OUT_OF_MEMORY
        assert [card.allocations_denied for card in both.usage().cards[:2]] == [0, 1]


def test_an_older_driver_tells_the_device_of_a_stream_by_its_context(tmp_path: Path, tenant: TenantMaker):
    """Memory allocated in the order of another device's stream is that device's."""
    cards = [SimCard(memory_mib=1024), SimCard(memory_mib=1024)]
    older = SimMachine(tmp_path / "older", cards, missing=("cuStreamGetDevice", "cuStreamGetDevice_ptsz"))
    older.create()
    slices = tenant(limits=[CardLimit(card.uuid, LIMIT) for card in older.cards])
    own = Tenant(older, slices.directory)
    with Shell(own).begin(1) as shell:
        stream = shell.ok("cuStreamCreate", OUT, 1)
        shell.begin(0).ok("cuMemAllocAsync", OUT, LIMIT, stream)
        assert [card.memory_used_bytes for card in own.usage().cards[:2]] == [0, LIMIT]
        assert [older.memory_used(card.uuid) for card in older.cards] == [0, LIMIT]


STREAM_ORDER = f"""{SPINNING}
taking = sys.argv[3]
stream = check(cuda.cuStreamCreate(1))
for _ in range(3):
    memory = check(cuda.cuMemAlloc(size) if taking == "plain" else cuda.cuMemAllocAsync(size, stream))
    spin(stream)
    check(cuda.cuMemFreeAsync(memory, stream))
print("served", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("taking", ["plain", "async"])
def test_memory_freed_in_stream_order_is_the_cards_until_the_stream_gets_there(slice64: Tenant, taking: str):
    """While a kernel runs before the free nobody else gets the memory; who allocates waits for it."""
    watch_until_served(slice64, slice64.start(STREAM_ORDER, SPIN_PTX, LIMIT, taking))


HOST_MEMORY = "x" + struct.pack("<iiii72x", 1, 0, 2, 0).hex()


def test_a_pool_on_the_host_costs_nothing(slice64: Tenant):
    """None of it is on the card."""
    with Shell(slice64).begin() as shell:
        pool = shell.ok("cuMemPoolCreate", OUT, HOST_MEMORY)
        block = shell.ok("cuMemAllocFromPoolAsync", OUT, 2 * LIMIT, pool, 0)
        assert used(slice64) == truth(slice64) == 0
        shell.ok("cuMemFreeAsync", block, 0)
        shell.ok("cuMemPoolDestroy", pool)


FABRIC = 8
SHARED_MEMORY = "x" + struct.pack("<iiii72x", 1, FABRIC, 1, 0).hex()


def name_of(shell: Shell, entry: str, *arguments: object) -> str:
    """The 64 bytes that an entry writes to its first argument, as hex."""
    padding = [0] * (3 - len(arguments))
    status, *words = shell.call(entry, OUT, *arguments, *padding, *[OUT] * 7)
    assert status == SUCCESS
    return "x" + struct.pack("<8Q", *words).hex()


def test_an_imported_pool_costs_its_exporter_alone(slice64: Tenant):
    """Its pointers neither; freeing them is passed on, and gives nothing back."""
    with Shell(slice64).begin() as exporter, Shell(slice64).begin() as importer:
        pool = exporter.ok("cuMemPoolCreate", OUT, SHARED_MEMORY)
        memory = exporter.ok("cuMemAllocFromPoolAsync", OUT, LIMIT, pool, 0)
        shared = name_of(exporter, "cuMemPoolExportToShareableHandle", pool, FABRIC, 0)
        theirs = importer.ok("cuMemPoolImportFromShareableHandle", OUT, shared, FABRIC, 0)
        mapped = importer.ok(
            "cuMemPoolImportPointer", OUT, theirs, name_of(exporter, "cuMemPoolExportPointer", memory)
        )
        assert importer.call("cuMemAllocFromPoolAsync", OUT, 1, theirs, 0)[0] == INVALID_VALUE
        assert used(slice64) == truth(slice64) == LIMIT
        importer.ok("cuMemFreeAsync", mapped, 0)
        importer.ok("cuCtxSynchronize")
        importer.ok("cuMemPoolDestroy", theirs)
        assert used(slice64) == truth(slice64) == LIMIT
        assert importer.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        exporter.ok("cuMemFreeAsync", memory, 0)
        exporter.ok("cuCtxSynchronize")
        assert used(slice64) == truth(slice64) == 0


# ---- everything at once ----


def has_ended(storm: subprocess.Popen[str]) -> bool:
    """Whether the storm has given everything back; lets it go then, so that its slot is looked at no earlier."""
    assert storm.stdout is not None
    if not select.select([storm.stdout], [], [], 0)[0]:
        return False
    output, _ = storm.communicate(timeout=DEADLINE_S)
    assert output.endswith("all given back\n")
    return True


FAMILIES = {
    "plain": 1,
    "the device's pool": 2,
    "own pools": 4,
    "graphs": 8,
    "graphs and plain": 9,
    "graphs and own pools": 12,
    "pools and plain": 7,
    "all": 31,
}


@pytest.mark.slow
@pytest.mark.parametrize("families", FAMILIES)
def test_no_interleaving_ever_takes_more_than_the_slice(tenant: TenantMaker, families: str):
    """Two processes of six threads; the card is watched without a pause, and empty at the end."""
    limit = 96 * MIB
    slice_ = tenant(limit)
    card = slice_.machine.cards[0].uuid
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    storms = [
        subprocess.Popen(
            [program("pool_storm"), *map(str, (seed + index, 40, 6, 2000, FAMILIES[families]))],
            env=slice_.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    highest, talking = 0, set(storms)
    while talking:
        highest = max(highest, slice_.machine.memory_highest(card, 0.02))
        talking -= {storm for storm in talking if has_ended(storm)}
    assert [storm.wait(DEADLINE_S) for storm in storms] == [0, 0]
    assert 0 < highest <= limit
    assert used(slice_) == truth(slice_) == 0
