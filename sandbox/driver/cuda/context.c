/* Contexts: primary ones, created ones, and the stack of current ones that every thread has. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "green.h"
#include "handle.h"
#include "memory.h"
#include "module.h"
#include "stream.h"

enum { STACK_DEPTH = 64, SCHED_FLAGS = 0x7f };

static _Thread_local struct sim_context *stack[STACK_DEPTH];
static _Thread_local int depth;
static _Atomic unsigned long long last_id, last_life;

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

const size_t sim_default_limits[CU_LIMIT_COUNT] = {1024, 7340032, 8388608, 2, 2048, 128, 0, 0, 0, 0, 0};

static bool charge_context(struct sim_context *context)
{
    const struct sim_card *card = context->device->card;
    uint64_t cost = context->parent != NULL ? card->green : card->context;
    if (!sim_device_attach(context->device) || (cost > 0 && !sim_device_charge(context->device, cost)))
        return false;
    context->charged = cost;
    return true;
}

/* Gives back what the context itself, its limits and its modules cost. */
static void discharge(struct sim_context *context)
{
    pthread_mutex_lock(&context->lock);
    sim_device_release(context->device, context->charged + context->modules);
    context->charged = context->modules = 0;
    context->life = atomic_fetch_add(&last_life, 1) + 1;
    memcpy(context->limits, sim_default_limits, sizeof context->limits);
    pthread_mutex_unlock(&context->lock);
}

static struct sim_context *new_context(struct sim_device *device, unsigned int flags, bool primary, struct sim_context *parent)
{
    struct sim_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    *context = (struct sim_context){.device = device, .flags = flags, .primary = primary, .parent = parent, .active = true};
    context->id = atomic_fetch_add(&last_id, 1) + 1;
    context->life = atomic_fetch_add(&last_life, 1) + 1;
    pthread_mutex_init(&context->lock, NULL);
    memcpy(context->limits, sim_default_limits, sizeof context->limits);
    if (charge_context(context))
        context->handle = sim_handle_new(SIM_CONTEXT, context);
    if (context->handle == NULL) {
        if (context->charged > 0)
            sim_device_release(device, context->charged);
        free(context);
        return NULL;
    }
    if (parent != NULL || sim_libraries_enter(context) == CUDA_SUCCESS)
        return context;
    sim_handle_end(context->handle, SIM_CONTEXT);
    discharge(context);
    atomic_store(&context->active, false);
    return NULL;
}

/* What lives in a context goes with it. The object itself stays: other threads may have it on their stacks. */
static void empty_context(struct sim_context *context)
{
    sim_streams_end(context);
    sim_memory_end(context);
    discharge(context);
}

static CUresult create(CUcontext *handle, unsigned int flags, CUdevice ordinal)
{
    SIM_NEED_INIT();
    struct sim_device *device = sim_device(ordinal);
    if (handle == NULL || (flags & ~0xffU) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_context *context = new_context(device, flags, false, NULL);
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
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_NEED_INIT();
    struct sim_context *context = sim_context_of(handle);
    if (context == NULL || context->primary || context->parent != NULL)
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

/* The old way to share a context: who attaches to it must detach from it, and the last one ends it. */
SIM_API CUresult cuCtxAttach(CUcontext *handle, unsigned int flags)
{
    struct sim_context *context;
    CUresult result = sim_context_need(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&context->attached, 1);
    *handle = context->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDetach(CUcontext handle)
{
    SIM_NEED_INIT();
    struct sim_context *context = sim_context_of(handle);
    if (context == NULL || context->primary || context != sim_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    return atomic_fetch_sub(&context->attached, 1) > 0 ? CUDA_SUCCESS : cuCtxDestroy_v2(handle);
}

struct sim_context *sim_context_new_green(struct sim_device *device)
{
    return new_context(device, 0, false, device->primary);
}

void sim_context_end_green(struct sim_context *context)
{
    sim_handle_end(context->handle, SIM_CONTEXT);
    empty_context(context);
    atomic_store(&context->active, false);
}

/* ---- primary contexts ---- */

/* Under the device's lock. The primary context is one object for good; it sleeps while nobody retains it. */
static CUresult wake_primary(struct sim_device *device)
{
    if (device->primary == NULL) {
        device->primary = new_context(device, device->primary_flags, true, NULL);
        return device->primary == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (atomic_load(&device->primary->active))
        return CUDA_SUCCESS;
    if (!charge_context(device->primary))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_libraries_enter(device->primary) != CUDA_SUCCESS) {
        discharge(device->primary);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
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
