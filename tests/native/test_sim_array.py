"""Arrays of the simulated driver that get their memory from elsewhere."""

from aliquot.sandbox.gpus import SimMachine
from tests.native.pairs import PROGRAM
from tests.native.sims import run_python

ARRAYS = """
SPARSE, DEFERRED = 0x40, 0x80
def array(flags):
    desc = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    desc.Width = desc.Height = 1024
    desc.Format, desc.NumChannels, desc.Flags = cuda.CUarray_format.CU_AD_FORMAT_FLOAT, 1, flags
    return check(cuda.cuArray3DCreate(desc))
def tile(array, operation, handle=None, y=0):
    info = cuda.CUarrayMapInfo()
    info.resourceType, info.resource.array = cuda.CUresourcetype.CU_RESOURCE_TYPE_ARRAY, array
    info.subresource.sparseLevel.offsetY = y
    info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = 64
    info.memOperationType = operation
    info.memHandleType = cuda.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC
    if handle is not None:
        info.memHandle.memHandle = handle
    return int(cuda.cuMemMapArrayAsync([info], 1, 0)[0])
MAP, UNMAP = cuda.CUmemOperationType(1), cuda.CUmemOperationType(2)
"""


def test_tiles_of_sparse_arrays_keep_their_memory_in_use(machine: SimMachine):
    """A sparse array costs nothing by itself; what is mapped to it lives until it is unmapped or the array ends."""
    program = """
sparse = array(SPARSE); print(used())
memory = create(2, Kind(0))
print(tile(array(0), MAP, memory), tile(sparse, MAP), tile(sparse, MAP, memory), tile(sparse, MAP, memory, 64))
check(cuda.cuMemRelease(memory)); print(used())
print(tile(sparse, UNMAP), used())
check(cuda.cuArrayDestroy(sparse)); print(used())
"""
    printed = run_python(machine, PROGRAM + ARRAYS + program).split()
    assert printed == ["0", "1", "1", "0", "0", "6", "0", "6", "4"]


def test_only_deferred_arrays_tell_what_memory_they_need(machine: SimMachine):
    """As the driver's documentation has it; only sparse ones have tiles."""
    program = """
for flags in (0, SPARSE, DEFERRED):
    made = array(flags)
    answer = cuda.cuArrayGetMemoryRequirements(made, 0)
    print(int(answer[0]), answer[1].size >> 20 if answer[1] else 0, int(cuda.cuArrayGetSparseProperties(made)[0]))
"""
    printed = run_python(machine, PROGRAM + ARRAYS + program).splitlines()
    assert printed == ["1 0 1", "1 0 0", "0 4 1"]
