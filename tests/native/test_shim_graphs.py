"""Graphs are charged by what they reserve, before they do; the judge is the card's own count."""

import struct
import subprocess
from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.pools import GLOBAL_CAPTURE, LIMIT, SPIN_PTX, SPINNING, keep_everything, watch_until_served
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.tenants import Tenant, truth, used

UPLOAD = 2


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


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


@pytest.mark.slow
def test_no_capture_is_spoilt_by_memory_that_ended_with_its_context(tenant: Callable[..., Tenant]):
    """A graph's memory may get the address of what a context left; who frees it then frees the graph's alone."""
    own = tenant(1 << 30)
    command = [program("capture_race"), "5"]
    done = subprocess.run(command, env=own.env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert used(own) == 0


RARE_CAPTURES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "cuStreamBeginRecaptureToGraph": lambda stream, graph: (stream, GLOBAL_CAPTURE, graph, 0, 0),
    "cuStreamBeginCaptureToCig": lambda stream, _: (stream, 0),
}
"""Which the simulated driver has not."""


@pytest.mark.parametrize("flavour", ["", "_ptsz"])
@pytest.mark.parametrize("entry", RARE_CAPTURES)
def test_a_capture_that_the_driver_cannot_begin_is_its_refusal(slice64: Tenant, entry: str, flavour: str):
    """Of a stream and a graph that there are; the stream is captured otherwise, and a graph's memory is held."""
    with Shell(slice64).begin() as shell, Shell(slice64, bare=True).begin() as bare:
        answers = []
        for one in (shell, bare):
            stream, graph = one.ok("cuStreamCreate", OUT, 1), one.ok("cuGraphCreate", OUT, 0)
            answers.append(one.call(entry + flavour, *RARE_CAPTURES[entry](stream, graph)))
            one.ok("cuStreamBeginCapture_v2", stream, GLOBAL_CAPTURE)
            one.ok("cuStreamEndCapture", stream, OUT)
        assert answers[0] == answers[1]
        run = shell.ok("cuGraphInstantiateWithFlags", OUT, captured(shell, LIMIT + 1), 0)
        assert shell.call("cuGraphLaunch", run, 0)[0] == OUT_OF_MEMORY
