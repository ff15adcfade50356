/* Memory pools: how they grow and shrink, and which ways of freeing are taken. */
#include <stdio.h>

#include "driver.h"

enum { THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

static void *pool;

static int take(pointer *p, size_t size)
{
    return ASK((pointer *, size_t, void *, void *), 11020, "cuMemAllocFromPoolAsync")(p, size, pool, NULL);
}

static int give_async(pointer p)
{
    return ASK((pointer, void *), 11020, "cuMemFreeAsync")(p, NULL);
}

static void synchronize(void)
{
    ASK((void *), 2000, "cuStreamSynchronize")(NULL);
}

static long long attribute(int number)
{
    uint64_t value = 0;
    int result = ASK((void *, int, void *), 11020, "cuMemPoolGetAttribute")(pool, number, &value);
    return result == 0 ? (long long)value : -result;
}

/* Reserved and used bytes, and what the card lost, under a name. */
static void state(const char *when, long long before)
{
    char name[64];
    snprintf(name, sizeof name, "pool.%s.reserved", when);
    say(name, attribute(RESERVED));
    snprintf(name, sizeof name, "pool.%s.used", when);
    say(name, attribute(USED));
    snprintf(name, sizeof name, "pool.%s.cost", when);
    say(name, before - free_bytes());
}

static void growth(void)
{
    pointer small = 0, half = 0, large = 0;
    long long before = free_bytes();
    state("empty", before);
    take(&small, 1);
    state("1_byte", before);
    take(&half, (size_t)16 << 20);
    state("16_MiB_more", before);
    take(&large, (size_t)40 << 20);
    state("40_MiB_more", before);
    give_async(large);
    say("pool.freed_before_sync.reserved", attribute(RESERVED)); /* what is used depends on how far the stream is */
    synchronize();
    state("freed_after_sync", before);
    give_async(half);
    give_async(small);
    synchronize();
    state("all_freed", before);
}

static void threshold(void)
{
    uint64_t keep = UINT64_MAX;
    pointer p = 0;
    long long before = free_bytes();
    say("pool.threshold.set", ASK((void *, int, void *), 11020, "cuMemPoolSetAttribute")(pool, THRESHOLD, &keep));
    take(&p, (size_t)40 << 20);
    give_async(p);
    synchronize();
    state("kept", before);
    say("pool.trim", ASK((void *, size_t), 11020, "cuMemPoolTrimTo")(pool, 0));
    state("trimmed", before);
}

static void codes(void)
{
    struct pool_props props = {.type = 0, .location = {1, 0}};
    pointer p = 0;
    void *default_pool = NULL;
    uint64_t value = 1;
    say("pool.create.type0", ASK((void **, const void *), 11020, "cuMemPoolCreate")(&default_pool, &props));
    say("pool.create.NULL", ASK((void **, const void *), 11020, "cuMemPoolCreate")(NULL, &props));
    say("pool.take.0", take(&p, 0));
    say("pool.take.huge", take(&p, (size_t)1 << 50));
    say("pool.set.used", ASK((void *, int, void *), 11020, "cuMemPoolSetAttribute")(pool, USED, &value));
    say("pool.set.used_high.1", ASK((void *, int, void *), 11020, "cuMemPoolSetAttribute")(pool, USED_HIGH, &value));
    say("pool.get.99", ASK((void *, int, void *), 11020, "cuMemPoolGetAttribute")(pool, 99, &value));
    say("pool.default", ASK((void **, int), 11020, "cuDeviceGetDefaultMemPool")(&default_pool, 0));
    say("pool.default.destroy", ASK((void *), 11020, "cuMemPoolDestroy")(default_pool));
}

static void routes(void)
{
    pointer p = 0;
    take(&p, 1000);
    say("pool.route.pool_to_cuMemFree", ASK((pointer), 3020, "cuMemFree")(p));
    ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, 1000);
    say("pool.route.plain_to_cuMemFreeAsync", give_async(p));
    say("pool.route.0", give_async(0));
    synchronize();
}

void probe_pool(void)
{
    struct pool_props props = {.type = 1, .location = {1, 0}};
    pointer p = 0;
    need_context();
    say("pool.create", ASK((void **, const void *), 11020, "cuMemPoolCreate")(&pool, &props));
    growth();
    threshold();
    codes();
    routes();
    long long before = free_bytes();
    take(&p, 1000);
    say("pool.destroy.in_use", ASK((void *), 11020, "cuMemPoolDestroy")(pool));
    say("pool.destroy.in_use.free", give_async(p));
    synchronize();
    say("pool.destroy.in_use.cost", before - free_bytes());
}
