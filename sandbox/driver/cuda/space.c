/* Address space in multiples of 2 MiB. It is reserved with no promise of RAM, so that a card may be larger than the host. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

int sim_memory_file(void)
{
    return (int)syscall(SYS_memfd_create, "simgpu", MFD_CLOEXEC);
}

int sim_file_of(const void *bytes, size_t size)
{
    int fd = sim_memory_file();
    if (fd < 0 || pwrite(fd, bytes, size, 0) == (ssize_t)size)
        return fd;
    close(fd);
    return -1;
}

/* Writes the pages of a block that were ever touched: the rest reads as zeros either way. */
static bool copy_block(int fd, int pagemap, uintptr_t base, off_t at)
{
    enum { PAGE = 4096, PAGES = SIM_BLOCK / PAGE };
    static const uint64_t TOUCHED = 3ULL << 62; /* in memory, or swapped out */
    uint64_t pages[PAGES];
    if (pread(pagemap, pages, sizeof pages, (off_t)(base / PAGE * sizeof *pages)) != (ssize_t)sizeof pages)
        return false;
    for (int i = 0; i < PAGES; i++)
        if ((pages[i] & TOUCHED) != 0 && pwrite(fd, (const char *)base + i * PAGE, PAGE, at + i * PAGE) != PAGE)
            return false;
    return true;
}

static bool copy_touched(int fd, uintptr_t base, size_t size)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool good = pagemap >= 0;
    for (size_t at = 0; good && at < size; at += SIM_BLOCK)
        good = copy_block(fd, pagemap, base + at, (off_t)at);
    if (pagemap >= 0)
        close(pagemap);
    return good;
}

int sim_space_share(uintptr_t base, size_t size)
{
    int fd = sim_memory_file();
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) == 0 && copy_touched(fd, base, size) &&
        mmap((void *)base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED)
        return fd;
    close(fd);
    return -1;
}
