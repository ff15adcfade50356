"""Managed memory of so many bytes, filled by the card, asked for there in parts and filled again; then plain memory."""

import ctypes
import sys

BYTES, PART, PLAIN = int(sys.argv[1]), 1 << 30, 1 << 30
HERE, READ_MOSTLY, GLOBAL = 0, 1, 1

cuda = ctypes.CDLL("libcuda.so.1")
size, number = ctypes.c_size_t, ctypes.c_uint64


def check(status: int) -> None:
    """Ends the program with the driver's error."""
    if status:
        sys.exit(f"the driver says {status}")


def fill(value: int) -> None:
    """Has the card touch all of it."""
    check(cuda.cuMemsetD8_v2(memory, value, size(BYTES)))
    check(cuda.cuCtxSynchronize())


check(cuda.cuInit(0))
context, memory, plain = ctypes.c_void_p(), number(), number()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), HERE))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuMemAllocManaged(ctypes.byref(memory), size(BYTES), GLOBAL))
fill(1)
for start in range(0, BYTES, PART):
    check(cuda.cuMemPrefetchAsync(number(memory.value + start), size(min(PART, BYTES - start)), HERE, None))
fill(2)
check(cuda.cuMemAdvise(memory, size(BYTES), READ_MOSTLY, HERE))
check(cuda.cuMemAlloc_v2(ctypes.byref(plain), size(PLAIN)))
fill(3)
last = ctypes.c_ubyte()
check(cuda.cuMemcpyDtoH_v2(ctypes.byref(last), number(memory.value + BYTES - 1), size(1)))
print(last.value, flush=True)
