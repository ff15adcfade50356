"""Has the C library keep memory that is freed and soon asked for again, give back what was needed once, and waste none.

A call of filter has a body of some hundred kilobytes and looks at as large columns of numbers. By default such blocks
are given back to the kernel when they are freed, and come anew, page by page, each page zeroed, with the next call:
that takes longer than whatever is done with them.
"""

import ctypes
from typing import Final

KEPT_BLOCK_BYTES: Final = 1 << 20
"""Of larger blocks each goes back to the kernel by itself."""
KEPT_BYTES: Final = 4 << 20
"""Free memory that is kept, at most, where it can be given back."""
ARENAS: Final = 2
"""Heaps of a process that seldom has two threads ask for memory at a time; each has some free between what it holds."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""glibc's names of these, in malloc.h."""


def keep_freed_memory() -> bool:
    """Keep it from now on; False where the C library has no word for that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BLOCK_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def share_heaps() -> bool:
    """Have all threads share `ARENAS` heaps; False where the C library has no word for that.

    By default there are eight for each processor, so that nearly every thread gets one of its own. To be called before
    there are threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_ARENA_MAX, ARENAS))


def give_back_freed_memory() -> bool:
    """Give back to the kernel what is free now, wherever it lies; False where the C library has no word for that.

    After large things were read bit by bit: what is kept of them lies between what is not, and by itself the C library
    gives back only what is free at the end of its heap. It takes some milliseconds for a hundred megabytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
