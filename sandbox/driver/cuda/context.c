/* Contexts: primary ones, created ones, and the stack of current ones that every thread has. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "memory.h"
#include "stream.h"

enum { STACK_DEPTH = 64, SCHED_FLAGS = 0x7f };

static _Thread_local struct sim_context *stack[STACK_DEPTH];
static _Thread_local int depth;
static _Atomic unsigned long long last_id;

struct sim_context *sim_context_current(void)
{
    return depth == 0 ? NULL : stack[depth - 1];
}

CUresult sim_context_need(struct sim_context **out)
{
    SIM_NEED_INIT();
    if (sim_engine_calling())
        return CUDA_ERROR_NOT_PERMITTED;
    *out = sim_context_current();
    if (*out == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return atomic_load(&(*out)->active) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

struct sim_context *sim_context_of(CUcontext handle)
{
    return sim_handle_get(handle, SIM_CONTEXT);
}

/* ---- the stack ---- */

static CUresult push(struct sim_context *context)
{
    if (depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext handle)
{
    struct sim_context *context = sim_context_of(handle);
    if (handle != NULL && context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == NULL) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    depth -= depth > 0; /* the top is replaced */
    return push(context);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext handle)
{
    SIM_NEED_INIT();
    return set_current(handle);
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *handle)
{
    SIM_NEED_INIT();
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *context = sim_context_current();
    *handle = context == NULL ? NULL : context->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    SIM_NEED_INIT();
    struct sim_context *context = sim_context_of(handle);
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : push(context);
}

SIM_API CUresult cuCtxPushCurrent(CUcontext handle)
{
    return cuCtxPushCurrent_v2(handle);
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    SIM_NEED_INIT();
    struct sim_context *context = sim_context_current();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (handle != NULL)
        *handle = context->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxPopCurrent(CUcontext *handle)
{
    return cuCtxPopCurrent_v2(handle);
}

/* ---- making and ending ---- */

static void default_limits(size_t *limits)
{
    static const size_t defaults[CU_LIMIT_COUNT] = {1024, 7340032, 8388608, 2, 2048, 128, 0, 0, 0, 0, 0};
    memcpy(limits, defaults, sizeof defaults);
}

static bool charge_context(struct sim_context *context)
{
    uint64_t cost = context->device->card->context;
    if (!sim_device_attach(context->device) || (cost > 0 && !sim_device_charge(context->device, cost)))
        return false;
    context->charged = cost;
    return true;
}

static struct sim_context *new_context(struct sim_device *device, unsigned int flags, bool primary)
{
    struct sim_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    *context = (struct sim_context){.device = device, .flags = flags, .primary = primary, .active = true};
    context->id = atomic_fetch_add(&last_id, 1) + 1;
    pthread_mutex_init(&context->lock, NULL);
    default_limits(context->limits);
    if (charge_context(context))
        context->handle = sim_handle_new(SIM_CONTEXT, context);
    if (context->handle == NULL) {
        free(context);
        return NULL;
    }
    return context;
}

/* What lives in a context goes with it. The object itself stays: other threads may have it on their stacks. */
static void empty_context(struct sim_context *context)
{
    sim_streams_end(context);
    sim_memory_end(context);
    sim_device_release(context->device, context->charged);
    context->charged = 0;
    default_limits(context->limits);
}

static CUresult create(CUcontext *handle, unsigned int flags, CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (handle == NULL || (flags & ~0xffU) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = new_context(device, flags, false);
    if (context == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = context->handle;
    return push(context);
}

SIM_API CUresult cuCtxCreate(CUcontext *handle, unsigned int flags, CUdevice device)
{
    return create(handle, flags, device);
}

SIM_API CUresult cuCtxCreate_v2(CUcontext *handle, unsigned int flags, CUdevice device)
{
    return create(handle, flags, device);
}

/* Execution affinity (v3) asks for a number of multiprocessors, which only MPS grants. */
SIM_API CUresult cuCtxCreate_v3(CUcontext *handle, void *affinity, int count, unsigned int flags, CUdevice device)
{
    SIM_NEED_INIT();
    if (affinity != NULL && count > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(handle, flags, device);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext *handle, const void *const *params, unsigned int flags, CUdevice device)
{
    SIM_NEED_INIT();
    if (params != NULL && (params[0] != NULL || params[1] != NULL))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, flags, device);
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext handle)
{
    SIM_NEED_INIT();
    struct sim_context *context = sim_context_of(handle);
    if (context == NULL || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_handle_end(handle, SIM_CONTEXT) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    empty_context(context);
    atomic_store(&context->active, false);
    if (sim_context_current() == context)
        depth--;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDestroy(CUcontext handle)
{
    return cuCtxDestroy_v2(handle);
}

/* ---- primary contexts ---- */

/* Under the device's lock. The primary context is one object for good; it sleeps while nobody retains it. */
static CUresult wake_primary(struct sim_device *device)
{
    if (device->primary == NULL) {
        device->primary = new_context(device, device->primary_flags, true);
        return device->primary == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (atomic_load(&device->primary->active))
        return CUDA_SUCCESS;
    if (!charge_context(device->primary))
        return CUDA_ERROR_OUT_OF_MEMORY;
    device->primary->flags = device->primary_flags;
    atomic_store(&device->primary->active, true);
    return CUDA_SUCCESS;
}

static void sleep_primary(struct sim_device *device)
{
    empty_context(device->primary);
    device->primary->retained = 0;
    atomic_store(&device->primary->active, false);
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim_device_attach(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&device->primary_lock);
    CUresult result = wake_primary(device);
    if (result == CUDA_SUCCESS) {
        device->primary->retained++;
        *handle = device->primary->handle;
    }
    pthread_mutex_unlock(&device->primary_lock);
    return result;
}

static bool primary_active(const struct sim_device *device)
{
    return device->primary != NULL && atomic_load(&device->primary->active);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&device->primary_lock);
    CUresult result = primary_active(device) && device->primary->retained > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && --device->primary->retained == 0)
        sleep_primary(device);
    pthread_mutex_unlock(&device->primary_lock);
    return result;
}

SIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&device->primary_lock);
    if (primary_active(device))
        sleep_primary(device);
    pthread_mutex_unlock(&device->primary_lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~(unsigned int)SCHED_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&device->primary_lock);
    device->primary_flags = flags;
    if (primary_active(device))
        device->primary->flags = flags;
    pthread_mutex_unlock(&device->primary_lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&device->primary_lock);
    *flags = device->primary_flags;
    *active = primary_active(device);
    pthread_mutex_unlock(&device->primary_lock);
    return CUDA_SUCCESS;
}
