/* Green contexts: contexts that stand on the device's primary one and are promised a part of its multiprocessors. */
#include "green.h"

#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "stream.h"

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

struct resource {
    int type;
    unsigned char padding[92];
    union {
        struct {
            unsigned int count, least, alignment, flags;
        } sm;
        unsigned char bytes[40];
    };
    struct resource *next;
};
_Static_assert(sizeof(struct resource) == 144, "ABI");

struct green {
    CUgreenCtx handle;
    struct sim_context *context;
    struct resource resource;
};

enum { RESOURCE_SM = 1, MULTIPROCESSORS = 132, GROUP = 8, SMALLEST = 2, IGNORE_COSCHEDULING = 1 };

static struct resource sm_resource(unsigned int count)
{
    struct resource resource = {.type = RESOURCE_SM};
    resource.sm.count = count;
    resource.sm.least = resource.sm.alignment = GROUP;
    return resource;
}

static CUresult give(struct resource *out, int type, unsigned int count)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = sm_resource(count);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetDevResource(CUdevice ordinal, struct resource *out, int type)
{
    SIM_NEED_INIT();
    return sim_device(ordinal) == NULL ? CUDA_ERROR_INVALID_DEVICE : give(out, type, MULTIPROCESSORS);
}

/* ---- splitting ---- */

/* Groups of as many multiprocessors as asked for, rounded up; without a place for them only their number. */
SIM_API CUresult cuDevSmResourceSplitByCount(struct resource *out, unsigned int *groups, const struct resource *input,
                                             struct resource *rest, unsigned int flags, unsigned int least)
{
    SIM_NEED_INIT();
    if (groups == NULL || input == NULL || (out != NULL && *groups == 0) || least > input->sm.count)
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    unsigned int unit = (flags & IGNORE_COSCHEDULING) != 0 ? SMALLEST : GROUP;
    unsigned int size = least == 0 ? unit : (least + unit - 1) / unit * unit;
    unsigned int possible = input->sm.count / size;
    if (possible == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *groups = out == NULL || *groups > possible ? possible : *groups;
    for (unsigned int i = 0; out != NULL && i < *groups; i++)
        out[i] = sm_resource(size);
    if (rest != NULL)
        *rest = sm_resource(input->sm.count - *groups * size);
    return CUDA_SUCCESS;
}

struct group {
    unsigned int count, coscheduled, preferred, flags, locality, reserved[11];
};

SIM_API CUresult cuDevSmResourceSplit(struct resource *out, unsigned int groups, const struct resource *input,
                                      struct resource *rest, unsigned int flags, const struct group *params)
{
    SIM_NEED_INIT();
    if (groups == 0 || input == NULL || params == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    unsigned int left = input->sm.count;
    for (unsigned int i = 0; i < groups; i++) {
        if (params[i].count % SMALLEST != 0 || params[i].count == 0 || params[i].count > left)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        left -= params[i].count;
        if (out != NULL)
            out[i] = sm_resource(params[i].count);
    }
    if (rest != NULL)
        *rest = sm_resource(left);
    return CUDA_SUCCESS;
}

/* Descriptions are never given back: the interface has no entry for it. */
SIM_API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, const struct resource *resources, unsigned int count)
{
    SIM_NEED_INIT();
    if (out == NULL || resources == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct resource sum = sm_resource(0);
    for (unsigned int i = 0; i < count; i++) {
        if (resources[i].type != RESOURCE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        sum.sm.count += resources[i].sm.count;
    }
    struct resource *desc = malloc(sizeof *desc);
    if (desc != NULL)
        *desc = sum;
    *out = sim_handle_new(SIM_RESOURCES, desc);
    return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal);

static struct green *new_green(struct sim_device *device, const struct resource *resource)
{
    struct green *green = calloc(1, sizeof *green);
    if (green == NULL)
        return NULL;
    green->resource = *resource;
    green->context = sim_context_new_green(device);
    if (green->context != NULL)
        green->handle = sim_handle_new(SIM_GREEN, green);
    if (green->handle != NULL) {
        green->context->green = green->handle;
        return green;
    }
    free(green);
    return NULL;
}

/* It keeps the primary context alive. */
SIM_API CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice ordinal, unsigned int flags)
{
    enum { DEFAULT_STREAM = 1 };
    CUcontext primary;
    SIM_NEED_INIT();
    const struct resource *resource = sim_handle_get(desc, SIM_RESOURCES);
    if (out == NULL || resource == NULL || flags != DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    struct green *green = new_green(sim_device(ordinal), resource);
    if (green == NULL) {
        cuDevicePrimaryCtxRelease_v2(ordinal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = green->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
    SIM_NEED_INIT();
    struct green *green = sim_handle_end(handle, SIM_GREEN);
    if (green == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUdevice ordinal = green->context->device->ordinal;
    sim_context_end_green(green->context);
    free(green);
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

#define NEED_GREEN(handle, name)                              \
    SIM_NEED_INIT();                                          \
    const struct green *name = sim_handle_get(handle, SIM_GREEN); \
    if ((name) == NULL)                                       \
        return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx handle)
{
    NEED_GREEN(handle, green);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = green->context->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, struct resource *out, int type)
{
    NEED_GREEN(handle, green);
    return give(out, type, green->resource.sm.count);
}

SIM_API CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
    NEED_GREEN(handle, green);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = green->context->id;
    return CUDA_SUCCESS;
}

static CUresult give_of(const struct sim_context *context, struct resource *out, int type)
{
    const struct green *green = sim_handle_get(context->green, SIM_GREEN);
    return give(out, type, green == NULL ? MULTIPROCESSORS : green->resource.sm.count);
}

SIM_API CUresult cuCtxGetDevResource(CUcontext handle, struct resource *out, int type)
{
    SIM_NEED_INIT();
    const struct sim_context *context = handle == NULL ? sim_context_current() : sim_context_of(handle);
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : give_of(context, out, type);
}

/* ---- streams and events ---- */

CUresult cuCtxPushCurrent_v2(CUcontext handle);
CUresult cuCtxPopCurrent_v2(CUcontext *handle);
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

SIM_API CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned int flags, int priority)
{
    NEED_GREEN(handle, green);
    if (out == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuCtxPushCurrent_v2(green->context->handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuStreamCreateWithPriority(out, flags, priority);
    cuCtxPopCurrent_v2(NULL);
    return result;
}

SIM_API CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *out)
{
    SIM_NEED_STREAM(handle, stream);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = stream->context->green;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetDevResource(CUstream handle, struct resource *out, int type)
{
    SIM_NEED_STREAM(handle, stream);
    return give_of(stream->context, out, type);
}

/* The work of a context is one queue here, so its default stream speaks for all of it. */
static CUresult with_context(const struct sim_context *context, CUevent event, bool record)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = cuCtxPushCurrent_v2(context->handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = record ? cuEventRecord(event, NULL) : cuStreamWaitEvent(NULL, event, 0);
    cuCtxPopCurrent_v2(NULL);
    return result;
}

SIM_API CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event)
{
    NEED_GREEN(handle, green);
    return with_context(green->context, event, true);
}

SIM_API CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event)
{
    NEED_GREEN(handle, green);
    return with_context(green->context, event, false);
}

SIM_API CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    SIM_NEED_INIT();
    return with_context(handle == NULL ? sim_context_current() : sim_context_of(handle), event, true);
}

SIM_API CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    SIM_NEED_INIT();
    return with_context(handle == NULL ? sim_context_current() : sim_context_of(handle), event, false);
}
