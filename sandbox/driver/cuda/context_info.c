/* What a context answers about itself: device, flags, limits, priorities, peers. */
#include "engine.h"
#include "handle.h"
#include "heap.h"

SIM_API CUresult cuCtxGetDevice(CUdevice *ordinal)
{
    SIM_NEED_CONTEXT(context);
    if (ordinal == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *ordinal = context->device->ordinal;
    return CUDA_SUCCESS;
}

static CUresult context_or_current(CUcontext handle, struct sim_context **out)
{
    if (handle == NULL)
        return sim_context_need(out);
    SIM_NEED_INIT();
    *out = sim_context_of(handle);
    return *out == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice_v2(CUdevice *ordinal, CUcontext handle)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (ordinal == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *ordinal = context->device->ordinal;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_NEED_CONTEXT(context);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetFlags(unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    context->flags = flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    struct sim_context *context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetLimit(size_t *value, int limit)
{
    SIM_NEED_CONTEXT(context);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit < 0 || limit >= CU_LIMIT_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

/*
 * Device memory that a limit reserves, beyond what every context has for its defaults: a stack for every thread that the card
 * runs at once, the queue of printf, the heap of malloc.
 */
static uint64_t reserve_of(int limit, size_t value)
{
    enum { RESIDENT_THREADS = 132 * 2048 };
    const uint64_t each[] = {[CU_LIMIT_STACK_SIZE] = RESIDENT_THREADS, [CU_LIMIT_PRINTF_FIFO_SIZE] = 1,
                             [CU_LIMIT_MALLOC_HEAP_SIZE] = 1};
    if (limit > CU_LIMIT_MALLOC_HEAP_SIZE || value <= sim_default_limits[limit])
        return 0;
    uint64_t more = value - sim_default_limits[limit];
    return more > UINT64_MAX / 2 / each[limit] ? UINT64_MAX / 2 : sim_blocks(more * each[limit]);
}

/* Under the context's lock. */
static CUresult set_limit(struct sim_context *context, int limit, size_t value)
{
    uint64_t before = reserve_of(limit, context->limits[limit]), after = reserve_of(limit, value);
    if (after > before && !sim_device_charge(context->device, after - before))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (after < before)
        sim_device_release(context->device, before - after);
    context->charged += after - before;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetLimit(int limit, size_t value)
{
    SIM_NEED_CONTEXT(context);
    if (limit < 0 || limit >= CU_LIMIT_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_STACK_SIZE && value > CU_LARGEST_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    sim_engine_drain(context->device); /* what runs may use what changes */
    pthread_mutex_lock(&context->lock);
    CUresult result = set_limit(context, limit, value);
    pthread_mutex_unlock(&context->lock);
    return result;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCacheConfig(int *config)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = 0;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCacheConfig(int config)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuCtxResetPersistingL2Cache(void)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return CUDA_SUCCESS;
}

/* Whole cards reach each other; MIG instances reach nobody. */
static bool reach(const struct sim_device *from, const struct sim_device *to)
{
    return from != to && from->mig == NULL && to->mig == NULL && from->card != to->card;
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_NEED_INIT();
    if (can == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(device) == NULL || sim_device(peer) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = reach(sim_device(device), sim_device(peer));
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to)
{
    enum { PERFORMANCE_RANK = 1, ARRAY_ACCESS = 4 };
    SIM_NEED_INIT();
    if (value == NULL || attribute < PERFORMANCE_RANK || attribute > ARRAY_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(from) == NULL || sim_device(to) == NULL || from == to)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute != PERFORMANCE_RANK && reach(sim_device(from), sim_device(to));
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    const struct sim_context *peer = sim_context_of(handle);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer == NULL || peer == context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!reach(context->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint64_t bit = (uint64_t)1 << (peer->device->ordinal & 63);
    return (atomic_fetch_or(&context->peers, bit) & bit) != 0 ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    SIM_NEED_CONTEXT(context);
    const struct sim_context *peer = sim_context_of(handle);
    if (peer == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t bit = (uint64_t)1 << (peer->device->ordinal & 63);
    return (atomic_fetch_and(&context->peers, ~bit) & bit) == 0 ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_SUCCESS;
}
