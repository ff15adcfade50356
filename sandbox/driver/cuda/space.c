/* Address space in multiples of 2 MiB. It is reserved with no promise of RAM, so that a card may be larger than the host. */
#include <sys/mman.h>

#include "heap.h"

#ifndef MAP_32BIT
#define MAP_32BIT 0
#endif

uintptr_t sim_space_take(size_t size, size_t alignment, bool low)
{
    size_t room = size + alignment;
    if (size == 0 || room < size)
        return 0;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (low ? MAP_32BIT : 0);
    void *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    uintptr_t start = (uintptr_t)memory, base = (start + alignment - 1) / alignment * alignment;
    if (base > start)
        munmap(memory, base - start);
    if (start + room > base + size)
        munmap((void *)(base + size), start + room - (base + size));
    return base;
}

void sim_space_give(uintptr_t base, size_t size)
{
    munmap((void *)base, size);
}
