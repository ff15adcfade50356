/* What programs say and ask about managed memory: advice, prefetching, discarding, attributes of ranges. */
#include <string.h>

#include "capture.h"
#include "managed.h"
#include "stream.h"

enum { ON_HOST = -1, NOWHERE = -2 };

enum {
    SET_READ_MOSTLY = 1,
    UNSET_READ_MOSTLY,
    SET_PREFERRED_LOCATION,
    UNSET_PREFERRED_LOCATION,
    SET_ACCESSED_BY,
    UNSET_ACCESSED_BY,
};

/* The older entries name a device, or -1 for the host. */
static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){device == ON_HOST ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                           device == ON_HOST ? 0 : device};
}

static CUresult check_location(CUmemLocation location)
{
    if (sim_location_is_host(location))
        return CUDA_SUCCESS;
    if (!sim_location_is_device(location))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_at(location) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* ---- advice ---- */

struct advice {
    int what;
    CUmemLocation location;
};

static void set_accessed(struct sim_managed_block *block, CUmemLocation location, bool accessed)
{
    uint64_t bit = (uint64_t)1 << (location.id & 63);
    if (sim_location_is_host(location))
        block->accessed_by_host = accessed;
    else
        block->accessed_by = accessed ? block->accessed_by | bit : block->accessed_by & ~bit;
}

static void take_advice(struct sim_managed_block *block, void *data)
{
    const struct advice *advice = data;
    switch (advice->what) {
    case SET_READ_MOSTLY:
    case UNSET_READ_MOSTLY:
        block->read_mostly = advice->what == SET_READ_MOSTLY;
        break;
    case SET_PREFERRED_LOCATION:
        block->preferred = advice->location;
        break;
    case UNSET_PREFERRED_LOCATION:
        block->preferred = (CUmemLocation){0};
        break;
    default:
        set_accessed(block, advice->location, advice->what == SET_ACCESSED_BY);
    }
}

/* Advice on reading, and against a preferred location, names no place. */
static bool names_place(int what)
{
    return what == SET_PREFERRED_LOCATION || what == SET_ACCESSED_BY || what == UNSET_ACCESSED_BY;
}

static CUresult advise(CUdeviceptr address, size_t size, struct advice advice)
{
    SIM_NEED_INIT();
    if (size == 0 || advice.what < SET_READ_MOSTLY || advice.what > UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = names_place(advice.what) ? check_location(advice.location) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (advice.what == UNSET_READ_MOSTLY)
        sim_managed_collapse(address, size);
    return sim_managed_each(address, size, take_advice, &advice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemAdvise(CUdeviceptr address, size_t size, int what, CUdevice device)
{
    return advise(address, size, (struct advice){what, location_of(device)});
}

SIM_API CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, int what, CUmemLocation location)
{
    return advise(address, size, (struct advice){what, location});
}

/* ---- prefetching ---- */

static void note_prefetch(struct sim_managed_block *block, void *data)
{
    block->prefetched = *(const CUmemLocation *)data;
}

static CUresult prefetch(CUdeviceptr address, size_t size, CUmemLocation location, struct sim_stream *stream)
{
    CUresult result = check_location(location);
    if (result != CUDA_SUCCESS || size == 0 || !sim_managed_has(address, size))
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_breaks(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_managed_each(address, size, note_prefetch, &location);
    return sim_stream_submit(stream, &(struct sim_op){.kind = SIM_OP_MOVE, .move = {address, size, location}});
}

SIM_API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    return prefetch(address, size, location_of(device), stream);
}

SIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                                       CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(address, size, location, stream);
}

/* Ranges, and from which of them on which place is meant: the first begins with the first range. */
struct batch {
    const CUdeviceptr *addresses;
    const size_t *sizes;
    size_t count;
    const CUmemLocation *locations;
    const size_t *starts;
    size_t location_count;
};

static CUresult check_ranges(const struct batch *batch, unsigned long long flags)
{
    if (flags != 0 || batch->count == 0 || batch->addresses == NULL || batch->sizes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->sizes[i] == 0 || !sim_managed_has(batch->addresses[i], batch->sizes[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check_places(const struct batch *batch)
{
    if (batch->locations == NULL || batch->starts == NULL || batch->location_count == 0 ||
        batch->location_count > batch->count || batch->starts[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < batch->location_count; i++) {
        CUresult result = check_location(batch->locations[i]);
        if (result != CUDA_SUCCESS)
            return result;
        if (batch->starts[i] >= batch->count || (i > 0 && batch->starts[i] <= batch->starts[i - 1]))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult prefetch_all(const struct batch *batch, unsigned long long flags, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    CUresult result = check_ranges(batch, flags);
    if (result == CUDA_SUCCESS)
        result = check_places(batch);
    for (size_t i = 0, place = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
        while (place + 1 < batch->location_count && batch->starts[place + 1] <= i)
            place++;
        result = prefetch(batch->addresses[i], batch->sizes[i], batch->locations[place], stream);
    }
    return result;
}

SIM_API CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations,
                                         size_t *starts, size_t location_count, unsigned long long flags, CUstream stream)
{
    struct batch batch = {addresses, sizes, count, locations, starts, location_count};
    return prefetch_all(&batch, flags, stream);
}

SIM_API CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                                   CUmemLocation *locations, size_t *starts, size_t location_count,
                                                   unsigned long long flags, CUstream stream)
{
    struct batch batch = {addresses, sizes, count, locations, starts, location_count};
    return prefetch_all(&batch, flags, stream);
}

/* What is discarded need not be copied when it is moved; where it is does not change by that. */
SIM_API CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags,
                                        CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    struct batch batch = {.addresses = addresses, .sizes = sizes, .count = count};
    CUresult result = check_ranges(&batch, flags);
    return result != CUDA_SUCCESS ? result : sim_stream_submit(stream, &(struct sim_op){.kind = SIM_OP_EMPTY});
}

/* ---- attributes of ranges ---- */

enum {
    RANGE_READ_MOSTLY = 1,
    RANGE_PREFERRED,
    RANGE_ACCESSED_BY,
    RANGE_LAST_PREFETCH,
    RANGE_PREFERRED_TYPE,
    RANGE_PREFERRED_ID,
    RANGE_LAST_PREFETCH_TYPE,
    RANGE_LAST_PREFETCH_ID,
};

/* As one number: a device, the host, or nowhere. */
static int place(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : sim_location_is_host(location) ? ON_HOST : NOWHERE;
}

static int number_of(const struct sim_managed_block *block, int attribute)
{
    switch (attribute) {
    case RANGE_READ_MOSTLY:
        return block->read_mostly;
    case RANGE_PREFERRED:
        return place(block->preferred);
    case RANGE_LAST_PREFETCH:
        return place(block->prefetched);
    case RANGE_PREFERRED_TYPE:
        return block->preferred.type;
    case RANGE_PREFERRED_ID:
        return block->preferred.id;
    case RANGE_LAST_PREFETCH_TYPE:
        return block->prefetched.type;
    default:
        return block->prefetched.id;
    }
}

/* What all blocks of a range agree on. */
struct summary {
    int attribute;
    bool begun, agreed, host;
    int number;
    uint64_t devices;
};

static void summarise(struct sim_managed_block *block, void *data)
{
    struct summary *all = data;
    int number = all->attribute == RANGE_ACCESSED_BY ? 0 : number_of(block, all->attribute);
    all->agreed = !all->begun || (all->agreed && number == all->number);
    all->devices = all->begun ? all->devices & block->accessed_by : block->accessed_by;
    all->host = all->begun ? all->host && block->accessed_by_host : block->accessed_by_host;
    all->number = number;
    all->begun = true;
}

static int disagreement(int attribute)
{
    return attribute == RANGE_READ_MOSTLY || attribute == RANGE_PREFERRED_TYPE || attribute == RANGE_LAST_PREFETCH_TYPE
               ? 0 : NOWHERE;
}

/* All that access the whole range, and NOWHERE behind them. */
static void list_accessors(const struct summary *all, int *out, size_t room)
{
    size_t count = 0;
    if (all->host && count < room)
        out[count++] = ON_HOST;
    for (int i = 0; i < 64; i++)
        if ((all->devices >> i & 1) != 0 && count < room)
            out[count++] = i;
    while (count < room)
        out[count++] = NOWHERE;
}

SIM_API CUresult cuMemRangeGetAttribute(void *out, size_t out_size, int attribute, CUdeviceptr address, size_t size)
{
    SIM_NEED_INIT();
    if (out == NULL || size == 0 || out_size == 0 || out_size % sizeof(int) != 0 || attribute < RANGE_READ_MOSTLY || attribute > RANGE_LAST_PREFETCH_ID)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute != RANGE_ACCESSED_BY && out_size != sizeof(int))
        return CUDA_ERROR_INVALID_VALUE;
    struct summary all = {.attribute = attribute};
    if (!sim_managed_each(address, size, summarise, &all))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == RANGE_ACCESSED_BY)
        list_accessors(&all, out, out_size / sizeof(int));
    else
        *(int *)out = all.agreed ? all.number : disagreement(attribute);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRangeGetAttributes(void **outs, size_t *out_sizes, int *attributes, size_t count, CUdeviceptr address,
                                         size_t size)
{
    SIM_NEED_INIT();
    if (outs == NULL || out_sizes == NULL || attributes == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuMemRangeGetAttribute(outs[i], out_sizes[i], attributes[i], address, size);
    return result;
}
