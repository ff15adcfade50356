"""Pools and graphs are charged by what they reserve, before they do; the judge is the card's own count."""

import random
import select
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from libshim.pages import CardLimit, Control, update_control
from sandbox.gpus import SimCard, SimMachine
from tests.native.shells import INVALID_VALUE, OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.tenants import Tenant, truth, used

MIB = 1 << 20
STEP = 32 * MIB
LIMIT = 64 * MIB
RELEASE_THRESHOLD = 4
EVERYTHING = "x" + "ff" * 8
DEVICE_MEMORY = "x" + struct.pack("<iiii72x", 1, 0, 1, 0).hex()
GLOBAL_CAPTURE = 0
UPLOAD = 2

SPIN_PTX = Path(__file__).resolve().parents[2] / "sandbox" / "kernels" / "spin.ptx"
DEADLINE_S = 60

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def keep_everything(shell: Shell) -> int:
    """Tells the device's pool to keep what is freed; returns the pool."""
    pool = shell.ok("cuDeviceGetDefaultMemPool", OUT, 0)
    shell.ok("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, EVERYTHING)
    return pool


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


SPINNING = """
import ctypes, sys, threading
from concurrent.futures import ThreadPoolExecutor
from cuda.bindings import driver as cuda

def check(answer):
    assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer[0]
    return None if len(answer) == 1 else answer[1] if len(answer) == 2 else answer[1:]

path, size = sys.argv[1], int(sys.argv[2])
cuda.cuInit(0)
context = check(cuda.cuDevicePrimaryCtxRetain(0))
check(cuda.cuCtxSetCurrent(context))
module = check(cuda.cuModuleLoadData(open(path, "rb").read() + b"\\0"))
kernel = check(cuda.cuModuleGetFunction(module, b"aliquot_spin"))

def spin(stream):
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, ((50_000_000,), (ctypes.c_uint64,)), 0))
"""

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


def watch_until_served(slice_: Tenant, process: subprocess.Popen[str]) -> None:
    """Looks at the card without a pause until the program has had all that it wanted."""
    assert process.stdout is not None
    highest = 0
    served = False
    while not served:
        served = bool(select.select([process.stdout], [], [], 0)[0])
        highest = max(highest, slice_.machine.memory_highest(slice_.machine.cards[0].uuid, 0.02))
    assert process.stdout.readline() == "served\n"
    process.communicate(timeout=DEADLINE_S)
    assert 0 < highest <= LIMIT


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


# ---- graphs ----


def captured(shell: Shell, *sizes: int, keep: bool = False) -> int:
    """A graph that allocates so many bytes, one allocation after the other, and frees each (or none)."""
    stream = shell.ok("cuStreamCreate", OUT, 1)
    shell.ok("cuStreamBeginCapture_v2", stream, GLOBAL_CAPTURE)
    for size in sizes:
        memory = shell.ok("cuMemAllocAsync", OUT, size, stream)
        if not keep:
            shell.ok("cuMemFreeAsync", memory, stream)
    return shell.ok("cuStreamEndCapture", stream, OUT)


def node(shell: Shell, entry: str, size: int) -> int:
    """A graph with one allocation node, made by hand."""
    graph = shell.ok("cuGraphCreate", OUT, 0)
    alloc = struct.pack("<iiii72xQQQQ", 1, 0, 1, 0, 0, 0, size, 0)
    params = struct.pack("<i12x", 10) + alloc + bytes(232 - len(alloc) + 8)
    if entry == "cuGraphAddMemAllocNode":
        shell.ok(entry, OUT, graph, 0, 0, "x" + alloc.hex())
    elif entry == "cuGraphAddNode":
        shell.ok(entry, OUT, graph, 0, 0, "x" + params.hex())
    else:
        shell.ok(entry, OUT, graph, 0, 0, 0, "x" + params.hex())
    return graph


GRAPHS = {
    "captured": captured,
    **{
        entry: lambda shell, size, entry=entry: node(shell, entry, size)
        for entry in ("cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphAddNode_v3")
    },
}


@pytest.mark.parametrize("making", GRAPHS)
def test_a_graphs_memory_is_charged_when_it_is_launched(slice64: Tenant, making: str):
    """Not before; it stays until it is trimmed, and a graph for which there is no room is refused by its launch."""
    with Shell(slice64).begin() as shell:
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, GRAPHS[making](shell, LIMIT), 0)
        assert used(slice64) == 0
        shell.ok("cuGraphLaunch", run, 0)
        shell.ok("cuStreamSynchronize", 0)
        assert used(slice64) == truth(slice64) == LIMIT
        assert shell.call("cuMemAllocAsync", OUT, 1, 0)[0] == (
            SUCCESS if making == "captured" else OUT_OF_MEMORY
        )
        shell.ok("cuCtxSynchronize")
        large = shell.ok("cuGraphInstantiateWithFlags", OUT, GRAPHS[making](shell, LIMIT + 1), 0)
        assert shell.call("cuGraphLaunch", large, 0)[0] == OUT_OF_MEMORY
        assert used(slice64) == truth(slice64)


@pytest.mark.parametrize(
    "launch", ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"]
)
@pytest.mark.parametrize(
    ("instantiate", "arguments"),
    [
        ("cuGraphInstantiate", (0, 0, 0)),
        ("cuGraphInstantiate_v2", (0, 0, 0)),
        ("cuGraphInstantiateWithFlags", (0,)),
        ("cuGraphInstantiateWithParams", ("x" + "00" * 32,)),
        ("cuGraphInstantiateWithParams_ptsz", ("x" + "00" * 32,)),
    ],
)
def test_what_does_not_fit_never_reaches_the_card(
    slice64: Tenant, launch: str, instantiate: str, arguments: tuple[object, ...]
):
    """By whatever entries a graph is made executable and launched; what fits is served."""
    with Shell(slice64).begin() as shell:
        large = shell.ok(instantiate, OUT, captured(shell, LIMIT + 1), *arguments)
        assert shell.call(launch, large, 0)[0] == OUT_OF_MEMORY
        assert truth(slice64) == used(slice64) == 0
        shell.ok(launch, shell.ok(instantiate, OUT, captured(shell, LIMIT), *arguments), 0)
        assert truth(slice64) == used(slice64) == LIMIT
        shell.ok("cuCtxSynchronize")
        shell.ok("cuDeviceGraphMemTrim", 0)
        assert truth(slice64) == used(slice64) == 0


def test_an_instantiation_that_uploads_is_held_to_the_slice(slice64: Tenant):
    """It is the call in which a full card would be noticed."""
    params = "x" + struct.pack("<QQQQ", UPLOAD, 0, 0, 0).hex()
    with Shell(slice64).begin() as shell:
        graph = captured(shell, LIMIT + 1)
        assert shell.call("cuGraphInstantiateWithParams", OUT, graph, params)[0] == OUT_OF_MEMORY
        assert truth(slice64) == used(slice64) == 0


def test_allocations_of_a_graph_that_follow_each_other_share_memory(slice64: Tenant):
    """A graph that takes and frees the slice ten times over can be launched, again and again."""
    with Shell(slice64).begin() as shell:
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, captured(shell, *[LIMIT] * 10), 0)
        for _ in range(5):
            shell.ok("cuGraphLaunch", run, 0)
        assert truth(slice64) == used(slice64) == LIMIT


def test_graphs_launched_into_one_stream_share_memory(slice64: Tenant):
    """Two graphs that need the slice each can take turns without waiting in between."""
    with Shell(slice64).begin() as shell:
        runs = [shell.ok("cuGraphInstantiateWithFlags", OUT, captured(shell, LIMIT), 0) for _ in range(2)]
        for _ in range(5):
            for run in runs:
                shell.ok("cuGraphLaunch", run, 0)
        assert truth(slice64) == used(slice64) == LIMIT


def test_idle_memory_of_graphs_makes_room_for_other_memory(slice64: Tenant):
    """And the other way round: what the pool keeps makes room for a graph."""
    with Shell(slice64).begin() as shell:
        keep_everything(shell)
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, captured(shell, LIMIT), 0)
        for _ in range(2):
            shell.ok("cuGraphLaunch", run, 0)
            shell.ok("cuCtxSynchronize")
            shell.ok("cuMemFreeAsync", shell.ok("cuMemAllocAsync", OUT, LIMIT, 0), 0)
            shell.ok("cuCtxSynchronize")
            assert truth(slice64) == used(slice64) == LIMIT


def test_memory_that_outlives_its_graph_is_charged_until_it_is_freed(slice64: Tenant):
    """By a call, in stream order or not; then it can be trimmed."""
    with Shell(slice64).begin() as shell:
        stream = shell.ok("cuStreamCreate", OUT, 1)
        shell.ok("cuStreamBeginCapture_v2", stream, GLOBAL_CAPTURE)
        memory = shell.ok("cuMemAllocAsync", OUT, LIMIT, stream)
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, shell.ok("cuStreamEndCapture", stream, OUT), 0)
        shell.ok("cuGraphLaunch", run, 0)
        shell.ok("cuCtxSynchronize")
        shell.ok("cuDeviceGraphMemTrim", 0)
        assert truth(slice64) == used(slice64) == LIMIT
        shell.ok("cuMemFreeAsync", memory, 0)
        shell.ok("cuCtxSynchronize")
        shell.ok("cuDeviceGraphMemTrim", 0)
        assert truth(slice64) == used(slice64) == 0


SPINNING_GRAPHS = f"""{SPINNING}
def graph():
    stream = check(cuda.cuStreamCreate(1))
    check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    memory = check(cuda.cuMemAllocAsync(size, stream))
    spin(stream)
    check(cuda.cuMemFreeAsync(memory, stream))
    return stream, check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(stream)), 0))
"""

SIDE_BY_SIDE = f"""{SPINNING_GRAPHS}
graphs = [graph(), graph()]
for _ in range(3):
    for stream, run in graphs:
        check(cuda.cuGraphLaunch(run, stream))
print("served", flush=True)
sys.stdin.read()
"""

OWN_STREAMS = f"""{SPINNING_GRAPHS}
def run(_):
    check(cuda.cuCtxSetCurrent(context))
    _, run = graph()
    together.wait()
    for _ in range(3):
        check(cuda.cuGraphLaunch(run, 0))

together = threading.Barrier(2)
with ThreadPoolExecutor(2) as threads:
    list(threads.map(run, range(2)))
print("served", flush=True)
sys.stdin.read()
"""

BEHIND_A_GRAPH = f"""{SPINNING_GRAPHS}
stream, run = graph()
for _ in range(3):
    check(cuda.cuGraphLaunch(run, stream))
    check(cuda.cuMemFree(check(cuda.cuMemAlloc(size))))
print("served", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("program", "flavour"),
    [(SIDE_BY_SIDE, {}), (OWN_STREAMS, {"CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": "1"})],
    ids=["streams", "threads' own default streams"],
)
def test_graphs_launched_into_several_streams_share_no_memory(
    slice64: Tenant, program: str, flavour: dict[str, str]
):
    """One after the other where the slice does not hold both: a launch waits for the memory of those under way."""
    watch_until_served(slice64, slice64.start(program, SPIN_PTX, 3 * LIMIT // 4, **flavour))


def test_what_graphs_under_way_have_is_waited_for(slice64: Tenant):
    """By who allocates; it is idle as soon as they have run."""
    watch_until_served(slice64, slice64.start(BEHIND_A_GRAPH, SPIN_PTX, 3 * LIMIT // 4))


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


@pytest.mark.parametrize("entry", ["cuGraphExecUpdate", "cuGraphExecUpdate_v2"])
def test_an_updated_graph_is_charged_by_what_it_needs_now(slice64: Tenant, entry: str):
    """Also where the graphs that it came of are gone; destroyed and trimmed, nothing is left of it."""
    with Shell(slice64).begin() as shell:
        graph = captured(shell, LIMIT)
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
        shell.ok(entry, run, graph, *([OUT, OUT] if entry == "cuGraphExecUpdate" else ["x" + "00" * 24]))
        shell.ok("cuGraphDestroy", graph)
        shell.ok("cuMemAlloc_v2", OUT, 1)
        assert shell.call("cuGraphLaunch", run, 0)[0] == OUT_OF_MEMORY
        shell.ok("cuGraphExecDestroy", run)
        assert used(slice64) == 1
