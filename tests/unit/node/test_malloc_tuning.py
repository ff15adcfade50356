"""Memory that is freed and asked for again stays with the process; what was needed once is given back."""

import platform
import subprocess
import sys

import pytest

from aliquot.node.malloc_tuning import ARENAS

PROGRAM = """
import resource
from aliquot.node.malloc_tuning import KEPT_BLOCK_BYTES, KEPT_BYTES, keep_freed_memory
{first}
count, faults = KEPT_BYTES // KEPT_BLOCK_BYTES - 1, []
for _ in range(40):
    blocks = [bytearray(KEPT_BLOCK_BYTES - 4096) for _ in range(count)]
    del blocks
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[9])
"""


def faults(first: str) -> int:
    """Pages that thirty rounds of asking and freeing had to get from the kernel."""
    argv = [sys.executable, "-c", PROGRAM.format(first=first)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_blocks_that_are_freed_are_not_had_anew_from_the_kernel():
    """Hundreds of pages a round without it, hardly any with it."""
    assert faults("") > 30 * 200
    assert faults("assert keep_freed_memory()") < 30 * 20


STORY = """
import mmap
from pathlib import Path
from aliquot.node.malloc_tuning import give_back_freed_memory

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE // 1024

kept, read = [], []
for _ in range(1000):  # of what is read a little is kept
    read.append(bytearray(60_000))
    kept.append(bytearray(600))
full = resident()
read.clear()
assert give_back_freed_memory()
print(full, resident(), len(kept))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_what_was_read_is_given_back_though_what_is_kept_lies_between():
    """In kilobytes: of 60 MB read, hardly anything stays."""
    told = subprocess.run([sys.executable, "-c", STORY], check=True, capture_output=True, text=True).stdout
    full, left, _ = map(int, told.split())
    assert full - left > 50_000


THREADS = """
import ctypes
import threading
from aliquot.node.malloc_tuning import ARENAS, share_heaps
{first}
libc, here = ctypes.CDLL(None), threading.Barrier(9)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = ctypes.c_int, ctypes.c_void_p

def ask() -> None:
    libc.malloc(ctypes.c_size_t(1000))
    here.wait()

for _ in range(8):
    threading.Thread(target=ask).start()
here.wait()
out = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_threads_share_heaps():
    """Two in all, where each of eight would have had one of its own on any machine with two processors."""

    def heaps(first: str) -> int:
        argv = [sys.executable, "-c", THREADS.format(first=first)]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.count("<heap nr=")

    assert heaps("") > ARENAS
    assert heaps("assert share_heaps()") == ARENAS
