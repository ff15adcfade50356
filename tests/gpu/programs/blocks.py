"""A context and so many blocks of so many bytes, held until stdin is closed."""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
count, size = map(int, sys.argv[1:3])
context, block = ctypes.c_void_p(), ctypes.c_uint64()
statuses = [
    driver.cuInit(0),
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    driver.cuCtxSetCurrent(context),
]
statuses += [driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) for _ in range(count)]
if any(statuses):
    sys.exit(f"CUDA says {statuses[:3]} and {max(statuses)}")
print("ready", flush=True)
sys.stdin.read()
