"""Memory of graphs on the simulated driver: when device memory stands behind an allocation node's address."""

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.sims import run_python

PROGRAM = """
import ctypes
start()
MIB = 1 << 20
FLAGS = cuda.CUgraphInstantiate_flags
stream, other = (check(cuda.cuStreamCreate(1)) for _ in range(2))
PTX = (b".version 7.0\\n.target sm_70\\n.address_size 64\\n"
       b".visible .entry spin(.param .u64 ns)\\n{\\nret;\\n}\\n\\0")
function = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(PTX)), b"spin"))
seen = []
def attribute(number):
    return int(check(cuda.cuDeviceGetGraphMemAttribute(0, cuda.CUgraphMem_attribute(number)))) >> 20
def look():
    free, total = check(cuda.cuMemGetInfo())
    seen.append((total - free) >> 20)
    assert attribute(2) == seen[-1]
def alloc(graph, size, needs=()):
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = size
    node = check(cuda.cuGraphAddMemAllocNode(graph, list(needs), len(needs), params))
    return node, params.dptr
def give(graph, address, *needs):
    return check(cuda.cuGraphAddMemFreeNode(graph, list(needs), len(needs), address))
def graph_of(*steps, flags=0):
    "Builds and instantiates: sizes in MiB are allocated, None frees what was allocated last."
    graph, needs, held = check(cuda.cuGraphCreate(0)), [], []
    for step in steps:
        if step is None:
            needs = [give(graph, held.pop(), *needs)]
        else:
            node, address = alloc(graph, step * MIB, needs)
            needs = [node]
            held.append(address)
    return check(cuda.cuGraphInstantiate(graph, flags)), held, graph
def launch(exec, to=stream):
    check(cuda.cuGraphLaunch(exec, to))
    check(cuda.cuStreamSynchronize(to))
def trim():
    check(cuda.cuDeviceGraphMemTrim(0))
"""


def seen(machine: SimMachine, program: str) -> list[int]:
    """The MiB that a program saw taken by the pool of graphs, on the card and by the pool's own word."""
    printed = run_python(machine, PROGRAM + program + "\nprint(*seen)")
    return [int(word) for word in printed.split()]


def test_memory_is_taken_by_the_first_launch_and_kept_until_trimmed(machine: SimMachine):
    """Neither nodes nor instantiation cost anything; a launch does, and what it needed stays for the next."""
    program = """
exec, _, graph = graph_of(64, None); look()
launch(exec); look()
launch(exec); look()
check(cuda.cuGraphExecDestroy(exec)); check(cuda.cuGraphDestroy(graph)); look()
trim(); look()
"""
    assert seen(machine, program) == [0, 64, 64, 64, 0]


@pytest.mark.parametrize(
    ("steps", "mib"),
    [("64, None, 64, None", 64), ("64, 32, None, None", 96), ("64, 32, None, 16, None, None", 96)],
)
def test_lifetimes_that_do_not_overlap_share_memory(machine: SimMachine, steps: str, mib: int):
    """A graph takes what its allocations need at most at any time."""
    assert seen(machine, f"exec, _, _ = graph_of({steps}); launch(exec); look()") == [mib]


def test_graphs_in_one_stream_share_memory_and_graphs_in_two_do_not(machine: SimMachine):
    """Graphs that may run at the same time need memory of their own."""
    program = """
first, _, _ = graph_of(64, None)
second, _, _ = graph_of(96, None)
for each in (stream, other):
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, each, ((300_000_000,), (ctypes.c_uint64,)), 0))
check(cuda.cuGraphLaunch(first, stream)); look()
check(cuda.cuGraphLaunch(second, stream)); look()
check(cuda.cuGraphLaunch(first, other)); look()
trim(); look()
check(cuda.cuCtxSynchronize()); look()
trim(); look()
"""
    assert seen(machine, program) == [64, 96, 160, 160, 160, 0]


def test_upload_takes_the_memory_beforehand(machine: SimMachine):
    """The launch after it costs no more; a trim in between takes it away, and the launch takes it again."""
    program = """
exec, _, _ = graph_of(64, None)
check(cuda.cuGraphUpload(exec, stream)); look()
trim(); look()
launch(exec); look()
params = cuda.CUDA_GRAPH_INSTANTIATE_PARAMS()
params.flags, params.hUploadStream = FLAGS.CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, stream
other, _, graph = graph_of(128, None)
check(cuda.cuGraphExecDestroy(other)); look()
check(cuda.cuGraphInstantiateWithParams(graph, params)); look()
"""
    assert seen(machine, program) == [64, 0, 64, 64, 128]


@pytest.mark.parametrize("free", ["cuda.cuMemFree(address)", "cuda.cuMemFreeAsync(address, stream)"])
def test_what_a_graph_does_not_free_stays_until_a_call_does(machine: SimMachine, free: str):
    """Destroying the graph frees nothing; a second launch is an error until the first one's memory is freed."""
    program = f"""
exec, (address,), graph = graph_of(64)
launch(exec); trim(); look()
assert cuda.cuGraphLaunch(exec, stream)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
check({free}); check(cuda.cuStreamSynchronize(stream)); launch(exec); look()
check(cuda.cuGraphExecDestroy(exec)); check(cuda.cuGraphDestroy(graph)); trim(); look()
check({free}); check(cuda.cuStreamSynchronize(stream)); trim(); look()
assert ({free})[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
"""
    assert seen(machine, program) == [64, 64, 64, 0]


def test_another_graph_may_free_it(machine: SimMachine):
    """A free node of another graph ends the allocation, and is an error when there is none."""
    program = """
exec, (address,), _ = graph_of(64)
freeing = check(cuda.cuGraphCreate(0)); give(freeing, address)
freer = check(cuda.cuGraphInstantiate(freeing, 0))
assert cuda.cuGraphLaunch(freer, stream)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
for _ in range(2):
    launch(exec); launch(freer)
look(); trim(); look()
"""
    assert seen(machine, program) == [64, 0]


def test_a_graph_that_frees_by_itself_is_launched_again(machine: SimMachine):
    """AUTO_FREE_ON_LAUNCH: the next launch has the memory of the one before."""
    program = """
exec, _, _ = graph_of(64, flags=FLAGS.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
launch(exec); launch(exec); look(); trim(); look()
"""
    assert seen(machine, program) == [64, 64]


def test_captured_allocations_are_nodes(machine: SimMachine):
    """Neither cuMemAllocAsync nor cuMemFreeAsync in a capture takes anything until the graph is launched."""
    program = """
check(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(0)))
address = check(cuda.cuMemAllocAsync(64 * MIB, stream))
check(cuda.cuMemsetD8Async(address, 7, 64 * MIB, stream))
check(cuda.cuMemFreeAsync(address, stream))
assert cuda.cuMemFreeAsync(address, stream)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
exec = check(cuda.cuGraphInstantiate(check(cuda.cuStreamEndCapture(stream)), 0)); look()
launch(exec); look()
"""
    assert seen(machine, program) == [0, 64]


@pytest.mark.parametrize(
    "call",
    [
        "cuda.cuGraphInstantiate(graph, 0)",
        "cuda.cuGraphClone(graph)",
        "cuda.cuGraphAddChildGraphNode(check(cuda.cuGraphCreate(0)), [], 0, graph)",
        "cuda.cuGraphDestroyNode(check(cuda.cuGraphGetNodes(graph, 1))[0][0])",
    ],
)
def test_graphs_with_memory_are_not_for_every_use(machine: SimMachine, call: str):
    """One instantiation at a time; no clones, children or removal of nodes."""
    program = f"exec, _, graph = graph_of(64, None); assert ({call})[0].name == 'CUDA_ERROR_NOT_SUPPORTED'"
    assert seen(machine, program) == []


def test_a_launch_that_does_not_fit_changes_nothing(machine: SimMachine):
    """OUT_OF_MEMORY from the launch; with room made it runs."""
    program = """
exec, _, _ = graph_of(64, 64, None, None)
rest = check(cuda.cuMemAlloc(check(cuda.cuMemGetInfo())[0] - 64 * MIB))
assert cuda.cuGraphLaunch(exec, stream)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
assert attribute(0) == attribute(2) == 0
check(cuda.cuMemFree(rest)); launch(exec); look()
"""
    assert seen(machine, program) == [128]
