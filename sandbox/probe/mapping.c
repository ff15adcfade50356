/* Virtual memory management, and arrays. */
#include "driver.h"

#define MIB ((size_t)1 << 20)

static struct allocation_prop prop = {.type = 1, .location = {1, 0}};

static int create(uint64_t *handle, size_t size)
{
    return ASK((uint64_t *, size_t, const void *, uint64_t), 10020, "cuMemCreate")(handle, size, &prop, 0);
}

static int release(uint64_t handle)
{
    return ASK((uint64_t), 10020, "cuMemRelease")(handle);
}

static int reserve(pointer *p, size_t size)
{
    return ASK((pointer *, size_t, size_t, pointer, uint64_t), 10020, "cuMemAddressReserve")(p, size, 0, 0, 0);
}

static int map(pointer p, size_t size, size_t offset, uint64_t handle)
{
    return ASK((pointer, size_t, size_t, uint64_t, uint64_t), 10020, "cuMemMap")(p, size, offset, handle, 0);
}

static int unmap(pointer p, size_t size)
{
    return ASK((pointer, size_t), 10020, "cuMemUnmap")(p, size);
}

static void codes(void)
{
    uint64_t handle = 0;
    size_t size = 0;
    pointer p = 0;
    ASK((size_t *, const void *, int), 10020, "cuMemGetAllocationGranularity")(&size, &prop, 0);
    say("mapping.granularity.minimum", (long long)size);
    ASK((size_t *, const void *, int), 10020, "cuMemGetAllocationGranularity")(&size, &prop, 1);
    say("mapping.granularity.recommended", (long long)size);
    say("mapping.granularity.NULL", ASK((size_t *, const void *, int), 10020, "cuMemGetAllocationGranularity")(NULL, &prop, 0));
    say("mapping.create.0", create(&handle, 0));
    say("mapping.create.1", create(&handle, 1));
    say("mapping.create.huge", create(&handle, (size_t)1 << 50));
    say("mapping.create.NULL", create(NULL, 2 * MIB));
    say("mapping.reserve.0", reserve(&p, 0));
    say("mapping.reserve.1", reserve(&p, 1));
}

/* Memory lives until it is released and unmapped. */
static void lives(void)
{
    uint64_t handle = 0, again = 0;
    pointer p = 0;
    struct access access = {{1, 0}, 3};
    long long before = free_bytes();
    say("mapping.create", create(&handle, 4 * MIB));
    say("mapping.create.cost", before - free_bytes());
    say("mapping.reserve", reserve(&p, 8 * MIB));
    say("mapping.reserve.cost", before - free_bytes());
    say("mapping.map.outside", map(p + 6 * MIB, 4 * MIB, 0, handle));
    say("mapping.map.offset", map(p, 4 * MIB, 4 * MIB, handle));
    say("mapping.map", map(p, 4 * MIB, 0, handle));
    say("mapping.map.twice", map(p, 4 * MIB, 0, handle));
    say("mapping.access", ASK((pointer, size_t, const void *, size_t), 10020, "cuMemSetAccess")(p, 4 * MIB, &access, 1));
    say("mapping.address_free.mapped", ASK((pointer, size_t), 10020, "cuMemAddressFree")(p, 8 * MIB));
    say("mapping.cuMemFree", ASK((pointer), 3020, "cuMemFree")(p));
    say("mapping.release", release(handle));
    say("mapping.release.cost", before - free_bytes());
    say("mapping.retain", ASK((uint64_t *, void *), 11000, "cuMemRetainAllocationHandle")(&again, (void *)p));
    say("mapping.unmap.part", unmap(p, 2 * MIB));
    say("mapping.unmap", unmap(p, 4 * MIB));
    say("mapping.unmap.cost", before - free_bytes());
    say("mapping.release.last", release(again));
    say("mapping.release.last.cost", before - free_bytes());
    say("mapping.address_free", ASK((pointer, size_t), 10020, "cuMemAddressFree")(p, 8 * MIB));
}

void probe_mapping(void)
{
    need_context();
    codes();
    lives();
}

/* ---- arrays ---- */

static void array_cost(const char *name, const char *required, struct array3d shape)
{
    void *array = NULL;
    struct requirements needs = {0};
    long long before = free_bytes();
    int result = ASK((void **, const void *), 3020, "cuArray3DCreate")(&array, &shape);
    say(name, result == 0 ? before - free_bytes() : -result);
    if (result != 0)
        return;
    result = ASK((void *, void *, int), 11060, "cuArrayGetMemoryRequirements")(&needs, array, 0);
    say(required, result == 0 ? (long long)needs.size : -result);
    ASK((void *), 2000, "cuArrayDestroy")(array);
}

void probe_array(void)
{
    enum { UINT8 = 1, FLOAT = 0x20 };
    void *array = NULL;
    struct array3d none = {0, 0, 0, UINT8, 1, 0}, three = {16, 16, 0, UINT8, 3, 0}, mips = {1024, 1024, 0, FLOAT, 4, 0};
    need_context();
    say("array.create.0", ASK((void **, const void *), 3020, "cuArray3DCreate")(&array, &none));
    say("array.create.NULL", ASK((void **, const void *), 3020, "cuArray3DCreate")(&array, NULL));
    say("array.create.channels3", ASK((void **, const void *), 3020, "cuArray3DCreate")(&array, &three));
    array_cost("array.16x16.cost", "array.16x16.required", (struct array3d){16, 16, 0, UINT8, 1, 0});
    array_cost("array.1Mx1.cost", "array.1Mx1.required", (struct array3d){65536, 16, 0, UINT8, 1, 0});
    array_cost("array.4096x4096x16B.cost", "array.4096x4096x16B.required", (struct array3d){4096, 4096, 0, FLOAT, 4, 0});
    array_cost("array.128x128x128.cost", "array.128x128x128.required", (struct array3d){128, 128, 128, FLOAT, 1, 0});
    long long before = free_bytes();
    say("array.mipmapped", ASK((void **, const void *, unsigned), 5000, "cuMipmappedArrayCreate")(&array, &mips, 11));
    say("array.mipmapped.cost", before - free_bytes());
    say("array.mipmapped.destroy", ASK((void *), 5000, "cuMipmappedArrayDestroy")(array));
}
