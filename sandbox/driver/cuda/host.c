/* Pinned host memory: allocated here, or the user's own, registered. It costs no device memory. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "memory.h"

struct registered {
    struct sim_allocation allocation;
    struct registered *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered *all;

static bool find_registered(uintptr_t address, struct sim_allocation *out)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct registered *one = all; one != NULL && !found; one = one->next) {
        found = address - one->allocation.base < one->allocation.size;
        if (found)
            *out = one->allocation;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool sim_memory_find(uintptr_t address, struct sim_allocation *out)
{
    return sim_heap_find(address, out) || find_registered(address, out);
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
    enum { FLAGS = 7 };
    SIM_NEED_CONTEXT(context);
    if (out == NULL || size == 0 || (flags & ~(unsigned int)FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_HOST, .context = context, .flags = flags};
    struct sim_heap *heap = sim_memory_heap(context->device, SIM_HEAP_HOST);
    struct sim_allocation *allocation = heap == NULL ? NULL : sim_heap_take(heap, &request);
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (void *)allocation->base;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    return cuMemHostAlloc(out, size, 0);
}

SIM_API CUresult cuMemAllocHost(void **out, unsigned int size)
{
    return cuMemHostAlloc(out, size, 0);
}

SIM_API CUresult cuMemFreeHost(void *memory)
{
    SIM_NEED_CONTEXT(context);
    if (memory == NULL)
        return CUDA_SUCCESS;
    struct sim_allocation *allocation = sim_heap_claim((uintptr_t)memory, 1U << SIM_MEMORY_HOST);
    if (allocation == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_engine_drain(context->device);
    sim_heap_give(allocation);
    return CUDA_SUCCESS;
}

static bool overlaps(uintptr_t base, size_t size)
{
    for (const struct registered *one = all; one != NULL; one = one->next)
        if (one->allocation.base < base + size && base < one->allocation.base + one->allocation.size)
            return true;
    return false;
}

SIM_API CUresult cuMemHostRegister_v2(void *memory, size_t size, unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    if (memory == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct registered *one = calloc(1, sizeof *one);
    if (one == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->allocation = (struct sim_allocation){.base = (uintptr_t)memory, .size = size, .kind = SIM_MEMORY_REGISTERED,
                                              .device = context->device, .context = context, .flags = flags};
    pthread_mutex_lock(&lock);
    bool taken = overlaps((uintptr_t)memory, size);
    if (!taken) {
        one->next = all;
        all = one;
    }
    pthread_mutex_unlock(&lock);
    if (!taken)
        return CUDA_SUCCESS;
    free(one);
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

SIM_API CUresult cuMemHostRegister(void *memory, unsigned int size, unsigned int flags)
{
    return cuMemHostRegister_v2(memory, size, flags);
}

SIM_API CUresult cuMemHostUnregister(void *memory)
{
    SIM_NEED_CONTEXT(context);
    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_engine_drain(context->device);
    pthread_mutex_lock(&lock);
    struct registered **at = &all;
    while (*at != NULL && (*at)->allocation.base != (uintptr_t)memory)
        at = &(*at)->next;
    struct registered *one = *at;
    if (one != NULL)
        *at = one->next;
    pthread_mutex_unlock(&lock);
    free(one);
    return one == NULL ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS;
}

static bool is_host(const struct sim_allocation *allocation)
{
    return allocation->kind == SIM_MEMORY_HOST || allocation->kind == SIM_MEMORY_REGISTERED;
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory, unsigned int flags)
{
    struct sim_allocation found;
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (out == NULL || flags != 0 || !sim_memory_find((uintptr_t)memory, &found) || !is_host(&found))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)memory;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostGetFlags(unsigned int *flags, void *memory)
{
    struct sim_allocation found;
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (flags == NULL || !sim_memory_find((uintptr_t)memory, &found) || !is_host(&found))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = found.flags;
    return CUDA_SUCCESS;
}
