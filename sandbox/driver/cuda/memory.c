/* Plain device memory: cuMemAlloc and its kin, cuMemFree, cuMemGetInfo. */
#include "memory.h"

#include <stdlib.h>

#include "capture.h"
#include "foreign.h"
#include "graph_memory.h"
#include "physical.h"

#define FREEABLE (1U << SIM_MEMORY_DEVICE | 1U << SIM_MEMORY_POOL | 1U << SIM_MEMORY_MANAGED)

struct sim_heap *sim_memory_heap(struct sim_device *device, enum sim_heap_name name)
{
    pthread_mutex_lock(&device->lock);
    if (device->heaps[name] == NULL) {
        struct sim_heap *heap = calloc(1, sizeof *heap);
        if (heap != NULL)
            *heap = (struct sim_heap){
                .device = device,
                .charged = name == SIM_HEAP_DEVICE || name == SIM_HEAP_LOW,
                .low = name == SIM_HEAP_LOW,
            };
        device->heaps[name] = heap;
    }
    struct sim_heap *heap = device->heaps[name];
    pthread_mutex_unlock(&device->lock);
    return heap;
}

void sim_memory_end(struct sim_context *context)
{
    sim_heap_end(context);
}

void sim_memory_give(struct sim_allocation *allocation)
{
    if (allocation->kind == SIM_MEMORY_POOL)
        sim_pool_give(allocation);
    else
        sim_heap_give(allocation);
}

static CUresult allocate(struct sim_context *context, struct sim_heap *heap, CUdeviceptr *out, size_t size)
{
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_DEVICE, .context = context};
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_physical_collect();
    struct sim_allocation *allocation = heap == NULL ? NULL : sim_heap_take(heap, &request);
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = allocation->base;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(context, sim_memory_heap(context->device, SIM_HEAP_DEVICE), out, size);
}

/* The entry of CUDA 2.0 has pointers of 32 bits. */
SIM_API CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned int size)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = 0;
    CUresult result = allocate(context, sim_memory_heap(context->device, SIM_HEAP_LOW), &address, size);
    *out = (CUdeviceptr_v1)address;
    return result;
}

static CUresult allocate_pitch(enum sim_heap_name name, CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                               unsigned int element)
{
    enum { PITCH = 512, LONGEST = 2147483647 };
    SIM_NEED_CONTEXT(context);
    if (out == NULL || pitch == NULL || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + PITCH - 1) / PITCH * PITCH;
    if (row < width || row > LONGEST || height > SIZE_MAX / row)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = allocate(context, sim_memory_heap(context->device, name), out, row * height);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    return allocate_pitch(SIM_HEAP_DEVICE, out, pitch, width, height, element);
}

SIM_API CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width, unsigned int height,
                                 unsigned int element)
{
    CUdeviceptr address = 0;
    size_t row = 0;
    CUresult result = allocate_pitch(SIM_HEAP_LOW, out == NULL ? NULL : &address, pitch == NULL ? NULL : &row, width, height,
                                     element);
    if (result == CUDA_SUCCESS) {
        *out = (CUdeviceptr_v1)address;
        *pitch = (unsigned int)row;
    }
    return result;
}

/* Managed memory lives on the host until a device uses it. */
SIM_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct sim_heap *heap = sim_memory_heap(context->device, SIM_HEAP_MANAGED);
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_MANAGED, .context = context, .flags = flags};
    struct sim_allocation *allocation = heap == NULL ? NULL : sim_heap_take(heap, &request);
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = allocation->base;
    return CUDA_SUCCESS;
}

/* Memory of graphs, imported from pools, or external. */
static CUresult free_other(CUdeviceptr address)
{
    const unsigned int kinds = 1U << SIM_FOREIGN_POOL | 1U << SIM_FOREIGN_EXTERNAL;
    return sim_foreign_close(address, kinds) ? CUDA_SUCCESS : sim_graph_memory_free(address, NULL);
}

/* Frees whatever route the memory came by, after the work that may use it. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr address)
{
    SIM_NEED_CONTEXT(context);
    if (address == 0)
        return CUDA_SUCCESS;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct sim_allocation *allocation = sim_heap_claim(address, FREEABLE);
    if (allocation == NULL)
        return free_other(address);
    sim_engine_drain(allocation->device);
    sim_memory_give(allocation);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemFree(CUdeviceptr_v1 address)
{
    return cuMemFree_v2(address);
}

SIM_API CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    if (unused != NULL)
        *unused = 0;
    if (total != NULL)
        *total = 0;
    SIM_NEED_CONTEXT(context);
    if (unused == NULL || total == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_physical_collect();
    sim_unit_collect(context->device->unit);
    uint64_t used = sim_memory_used(context->device->unit);
    *total = context->device->total;
    *unused = used > *total ? 0 : *total - used;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetInfo(unsigned int *unused, unsigned int *total)
{
    size_t wide_unused = 0, wide_total = 0;
    CUresult result = cuMemGetInfo_v2(&wide_unused, &wide_total);
    if (result == CUDA_SUCCESS && (unused == NULL || total == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (unused != NULL)
        *unused = wide_unused > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_unused;
    if (total != NULL)
        *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_total;
    return result;
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    struct sim_allocation found;
    if (!sim_heap_find(address, &found))
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = found.base;
    if (size != NULL)
        *size = found.size;
    return CUDA_SUCCESS;
}
