"""Builds the reader and writer of the pages from the very header that the interceptor is compiled with."""

import re
from pathlib import Path

from cffi import FFI

INCLUDE = Path(__file__).resolve().parent / "include"


def declarations(header: Path) -> str:
    """Returns the part of the header between its cdef markers.

    Raises:
        ValueError: the markers are missing.
    """
    found = re.search(r"/\* cdef: begin \*/(.*?)/\* cdef: end \*/", header.read_text(), re.DOTALL)
    if found is None:
        message = f"{header}: no cdef markers"
        raise ValueError(message)
    return found.group(1)


ffibuilder = FFI()
ffibuilder.cdef(declarations(INCLUDE / "aliquot_pages.h"))
ffibuilder.cdef("""
static const uint64_t AQ_CONTROL_MAGIC;
static const uint64_t AQ_USAGE_MAGIC;
static const uint64_t AQ_MEMORY_MAX;
int aq_control_publish_in(int file, const aq_control_page *wanted);
int aq_control_snapshot(const aq_control_page *page, aq_control_page *out);
uint64_t aq_usage_in_use(const aq_usage_page *page, int card);
uint64_t aq_usage_used_by(const aq_usage_page *page, int slot, int card);
""")
SOURCE = """
#include <errno.h>
#include <sys/mman.h>

#include "aliquot_control.h"
#include "aliquot_usage.h"

/* Writes the limits of `wanted` into a page's file. 0, or an errno. Python's mmap closes a descriptor. */
static int aq_control_publish_in(int file, const aq_control_page *wanted) {
  aq_control_page *page = mmap(NULL, AQ_CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return errno;
  aq_control_publish(page, wanted);
  munmap(page, AQ_CONTROL_SIZE);
  return 0;
}
"""
ffibuilder.set_source("aliquot.libshim._pages", SOURCE, include_dirs=["libshim/include"])
