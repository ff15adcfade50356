/* What a context answers about itself: device, flags, limits, priorities, peers. */
#include "context.h"
#include "handle.h"

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

SIM_API CUresult cuCtxSetLimit(int limit, size_t value)
{
    SIM_NEED_CONTEXT(context);
    if (limit < 0 || limit >= CU_LIMIT_COUNT)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
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

/* Cards of this machine have no peer access to each other. */
SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_NEED_INIT();
    if (can == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(device) == NULL || sim_device(peer) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_context_of(peer) == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    return sim_context_of(peer) == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
