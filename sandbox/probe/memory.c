/* Plain memory, managed and pinned memory: codes, sizes, how much of the card each costs. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

static int allocate(pointer *p, size_t size)
{
    return ASK((pointer *, size_t), 3020, "cuMemAlloc")(p, size);
}

static int give(pointer p)
{
    return ASK((pointer), 3020, "cuMemFree")(p);
}

/* How much the free memory falls when so many bytes are allocated so often, then freed. */
static void cost(size_t size, int count)
{
    static pointer blocks[4096];
    char name[64];
    long long before = free_bytes();
    for (int i = 0; i < count; i++)
        allocate(&blocks[i], size);
    snprintf(name, sizeof name, "memory.cost.%zux%d", size, count);
    say(name, before - free_bytes());
    for (int i = 0; i < count; i++)
        give(blocks[i]);
    snprintf(name, sizeof name, "memory.cost.%zux%d.freed", size, count);
    say(name, before - free_bytes());
}

static void codes(void)
{
    pointer p = 0, second = 0;
    say("memory.alloc.0", allocate(&p, 0));
    say("memory.alloc.NULL", allocate(NULL, 1));
    say("memory.alloc.huge", allocate(&p, (size_t)1 << 50));
    say("memory.alloc.max", allocate(&p, SIZE_MAX));
    say("memory.alloc", allocate(&p, 1000));
    say("memory.alloc.alignment", p % 512);
    say("memory.free.inside", give(p + 256));
    say("memory.free", give(p));
    say("memory.free.0", give(0));
    allocate(&second, 1000);
    say("memory.free.garbage", give(12345));
    say("memory.memset.beyond", ASK((pointer, unsigned char, size_t), 3020, "cuMemsetD8")(second, 1, (size_t)1 << 40));
    say("memory.memset.D32.unaligned", ASK((pointer, unsigned, size_t), 3020, "cuMemsetD32")(second + 1, 1, 4));
    give(second);
}

static void pitches(void)
{
    pointer p = 0;
    size_t pitch = 0;
    say("memory.pitch.0", ASK((pointer *, size_t *, size_t, size_t, unsigned), 3020, "cuMemAllocPitch")(&p, &pitch, 0, 1, 4));
    say("memory.pitch.element3", ASK((pointer *, size_t *, size_t, size_t, unsigned), 3020, "cuMemAllocPitch")(&p, &pitch, 1, 1, 3));
    say("memory.pitch.1", ASK((pointer *, size_t *, size_t, size_t, unsigned), 3020, "cuMemAllocPitch")(&p, &pitch, 1, 1, 4));
    say("memory.pitch.1.bytes", (long long)pitch);
    give(p);
    ASK((pointer *, size_t *, size_t, size_t, unsigned), 3020, "cuMemAllocPitch")(&p, &pitch, 513, 2, 4);
    say("memory.pitch.513.bytes", (long long)pitch);
    give(p);
}

static void host(void)
{
    pointer p = 0;
    void *memory = NULL;
    char own[64];
    say("memory.managed.flags0", ASK((pointer *, size_t, unsigned), 6000, "cuMemAllocManaged")(&p, 1, 0));
    say("memory.managed.0", ASK((pointer *, size_t, unsigned), 6000, "cuMemAllocManaged")(&p, 0, 1));
    long long before = free_bytes();
    say("memory.managed", ASK((pointer *, size_t, unsigned), 6000, "cuMemAllocManaged")(&p, 64 << 20, 1));
    say("memory.managed.cost", before - free_bytes());
    say("memory.managed.free", give(p));
    say("memory.host.0", ASK((void **, size_t, unsigned), 2020, "cuMemHostAlloc")(&memory, 0, 0));
    say("memory.host.NULL", ASK((void **, size_t, unsigned), 2020, "cuMemHostAlloc")(NULL, 1, 0));
    say("memory.host", ASK((void **, size_t, unsigned), 2020, "cuMemHostAlloc")(&memory, 4096, 0));
    say("memory.host.cuMemFree", give((pointer)memory));
    say("memory.host.free", ASK((void *), 2000, "cuMemFreeHost")(memory));
    say("memory.host.free.unknown", ASK((void *), 2000, "cuMemFreeHost")(own));
    say("memory.register.0", ASK((void *, size_t, unsigned), 6050, "cuMemHostRegister")(own, 0, 0));
    say("memory.unregister.unknown", ASK((void *), 4000, "cuMemHostUnregister")(own));
}

static void pointers(void)
{
    pointer p = 0, base = 0;
    size_t size = 0;
    int type = -1;
    allocate(&p, 1000);
    say("memory.range", ASK((pointer *, size_t *, pointer), 3020, "cuMemGetAddressRange")(&base, &size, p + 10));
    say("memory.range.base", base == p);
    say("memory.range.size", (long long)size);
    say("memory.range.unknown", ASK((pointer *, size_t *, pointer), 3020, "cuMemGetAddressRange")(&base, &size, 4096));
    say("memory.pointer.type", ASK((void *, int, pointer), 4000, "cuPointerGetAttribute")(&type, 2, p));
    say("memory.pointer.type.value", type);
    say("memory.pointer.unknown", ASK((void *, int, pointer), 4000, "cuPointerGetAttribute")(&type, 2, (pointer)&type));
    say("memory.pointer.attribute99", ASK((void *, int, pointer), 4000, "cuPointerGetAttribute")(&type, 99, p));
    give(p);
}

void probe_memory(void)
{
    need_context();
    codes();
    cost(1, 1);
    cost(1000, 100);
    cost((size_t)1 << 20, 1);
    cost((size_t)1 << 20, 3);
    cost(((size_t)1 << 20) + 1, 1);
    cost((size_t)2 << 20, 1);
    cost((size_t)3 << 20, 1);
    cost(((size_t)64 << 20) + 1, 1);
    pitches();
    host();
    pointers();
}
