"""Works on the card until it is ended: 10 ms at a time, and says each second how much of the card's time it had.

To be watched with `aliquot top`, and resized while it goes on.
"""
# ruff: noqa: INP001, T201 -- a program to read and run, not a module

import contextlib
import ctypes
import time

from cuda.core import Device, LaunchConfig, ObjectCode, launch

KERNEL_NS = 10_000_000
MIB = 1 << 20

SPIN = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %more;
    .reg .b64  %now, %end, %length;
    ld.param.u64 %length, [nanoseconds];
    mov.u64      %now, %globaltimer;
    add.u64      %end, %now, %length;
again:
    mov.u64      %now, %globaltimer;
    setp.lt.u64  %more, %now, %end;
    @%more bra   again;
    ret;
}
"""

device = Device()
device.set_current()
stream = device.create_stream()
kernel = ObjectCode.from_ptx(SPIN).get_kernel("spin")
kept = device.allocate(512 * MIB, stream=stream)
print(f"512Mi taken of {device.name}; end it with Ctrl-C", flush=True)

with contextlib.suppress(KeyboardInterrupt):
    while True:
        began, kernels = time.monotonic(), 0
        while time.monotonic() < began + 1:
            launch(stream, LaunchConfig(grid=1, block=1), kernel, ctypes.c_uint64(KERNEL_NS))
            stream.sync()
            kernels += 1
        had = kernels * KERNEL_NS / 1e9 / (time.monotonic() - began)
        print(f"{kernels} kernels of 10 ms: {100 * had:.0f} % of the card's time", flush=True)
