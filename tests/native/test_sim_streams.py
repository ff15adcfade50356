"""Green contexts, memory operations of streams, batches of copies and the like on the simulated driver."""

from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.sims import run_python

PROGRAM = """
import ctypes, time
start()
MIB = 1 << 20
SM = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
stream, other = (check(cuda.cuStreamCreate(1)) for _ in range(2))
def used():
    free, total = check(cuda.cuMemGetInfo())
    return (total - free) >> 20
def filled(size, value):
    address = check(cuda.cuMemAlloc(size))
    check(cuda.cuMemsetD8(address, value, size))
    return address
def text(address, size=4):
    out = bytearray(size)
    check(cuda.cuMemcpyDtoH(out, address, size))
    return list(out)
"""


def test_green_contexts_stand_on_the_primary_one(tmp_path: Path):
    """A green context costs little, keeps the primary context alive, and has its own streams."""
    machine = SimMachine(tmp_path / "green", [SimCard(context_mib=300, green_mib=4, module_mib=20)])
    machine.create()
    program = """
PTX = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry none()\\n{\\nret;\\n}\\n\\0"
function = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(PTX)), b"none"))
print(used())
whole = check(cuda.cuDeviceGetDevResource(0, SM))
groups, count, rest = check(cuda.cuDevSmResourceSplitByCount(2, whole, 0, 60))
print(whole.sm.smCount, count, groups[0].sm.smCount, rest.sm.smCount)
desc = check(cuda.cuDevResourceGenerateDesc([groups[0]], 1))
green = check(cuda.cuGreenCtxCreate(desc, 0, 1))
print(used(), check(cuda.cuGreenCtxGetDevResource(green, SM)).sm.smCount)
own = check(cuda.cuGreenCtxStreamCreate(green, 1, 0))
check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, own, 0, 0))
check(cuda.cuStreamSynchronize(own))
check(cuda.cuDevicePrimaryCtxRelease(0))
check(cuda.cuCtxSetCurrent(check(cuda.cuCtxFromGreenCtx(green))))
print(used())
check(cuda.cuGreenCtxDestroy(green))
"""
    printed = run_python(machine, PROGRAM + program).split()
    assert printed == ["320", "132", "2", "64", "4", "324", "64", "324"]
    assert machine.memory_used(machine.cards[0].uuid) == 0


@pytest.mark.parametrize("size", [32, 64])
def test_a_stream_waits_for_a_word_that_the_host_writes(machine: SimMachine, size: int):
    """What is behind the wait runs when the value is there, and not before."""
    program = f"""
memory = int(check(cuda.cuMemHostAlloc(8, 0)))
word = ctypes.c_uint{size}.from_address(memory); word.value = 1
check(cuda.cuStreamWaitValue{size}(stream, memory, 5, 0))
check(cuda.cuStreamWriteValue{size}(stream, memory, 9, 0))
print(int(cuda.cuStreamQuery(stream)[0]))
word.value = 5
check(cuda.cuStreamSynchronize(stream))
print(word.value, int(cuda.cuStreamWaitValue{size}(stream, memory + 1, 5, 0)[0]))
"""
    assert run_python(machine, PROGRAM + program).split() == ["600", "9", "1"]


def test_a_wait_for_another_stream_s_write_ends(machine: SimMachine):
    """Streams that wait for each other's words do not stop the machine."""
    program = """
word = filled(8, 0)
check(cuda.cuStreamWaitValue32(stream, word, 1, 0))
check(cuda.cuStreamWriteValue32(other, word, 1, 0))
check(cuda.cuCtxSynchronize())
print(text(word))
"""
    assert run_python(machine, PROGRAM + program).strip() == "[1, 0, 0, 0]"


BATCHES = {
    "lines": """
attributes = cuda.CUmemcpyAttributes()
attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder(1)
ends = [cuda.CUdeviceptr(int(a)) for a in (first, second, source)]
check(cuda.cuMemcpyBatchAsync(ends[:2], [ends[2]] * 2, [4, 4], 2, [attributes], [0], 1, stream))
""",
    "attributes": """
attributes = cuda.CUmemcpyAttributes()
attributes.srcAccessOrder = cuda.CUmemcpySrcAccessOrder(1)
for target in (first, second):
    check(cuda.cuMemcpyWithAttributesAsync(target, source, 4, attributes, stream))
""",
}


@pytest.mark.parametrize("how", BATCHES)
def test_batches_of_copies_move_bytes(machine: SimMachine, how: str):
    """As many copies as there are, in stream order."""
    program = f"""
source, first, second = filled(8, 7), filled(8, 0), filled(8, 0)
{BATCHES[how]}
check(cuda.cuStreamSynchronize(stream))
print(text(first), text(second))
"""
    assert run_python(machine, PROGRAM + program).strip() == "[7, 7, 7, 7] [7, 7, 7, 7]"


def test_a_capture_goes_on_in_a_graph(machine: SimMachine):
    """What is captured is added to the caller's graph, behind the nodes named."""
    program = """
memory = filled(8, 0)
graph = check(cuda.cuGraphCreate(0))
node = check(cuda.cuGraphAddEmptyNode(graph, [], 0))
check(cuda.cuStreamBeginCaptureToGraph(stream, graph, [node], None, 1, cuda.CUstreamCaptureMode(0)))
check(cuda.cuMemsetD8Async(memory, 3, 4, stream))
same = check(cuda.cuStreamEndCapture(stream))
print(int(same) == int(graph), check(cuda.cuGraphGetNodes(graph))[1], check(cuda.cuGraphGetEdges(graph))[-1])
check(cuda.cuGraphLaunch(check(cuda.cuGraphInstantiate(graph, 0)), stream))
check(cuda.cuStreamSynchronize(stream))
print(text(memory))
"""
    assert run_python(machine, PROGRAM + program).splitlines() == ["True 2 1", "[3, 3, 3, 3]"]


def test_surfaces_are_handles_that_remember(machine: SimMachine):
    """They are ended once."""
    program = """
desc = cuda.CUDA_RESOURCE_DESC()
desc.resType = cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
desc.res.linear.devPtr = filled(64, 0)
surface = check(cuda.cuSurfObjectCreate(desc))
texture = check(cuda.cuTexObjectCreate(desc, cuda.CUDA_TEXTURE_DESC(), None))
print(int(check(cuda.cuSurfObjectGetResourceDesc(surface)).res.linear.devPtr) == int(desc.res.linear.devPtr))
print(*[int(answer[0]) for answer in (
    cuda.cuSurfObjectDestroy(surface), cuda.cuSurfObjectDestroy(surface),
    cuda.cuTexObjectDestroy(texture), cuda.cuTexObjectDestroy(texture),
)])
"""
    assert run_python(machine, PROGRAM + program).split() == ["True", "0", "1", "0", "1"]
