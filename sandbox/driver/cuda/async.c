/* Memory in stream order: cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync. */
#include "capture.h"
#include "foreign.h"
#include "graph_memory.h"
#include "handle.h"
#include "memory.h"
#include "pool.h"

/* A captured allocation is the graph's: an address, behind which launches put memory. */
static CUresult allocate_captured(CUdeviceptr *out, size_t size, struct sim_stream *stream)
{
    struct sim_graph_memory *memory = sim_graph_memory_new(stream->context->device, size);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = memory->allocation->base;
    return sim_capture_memory(stream, memory);
}

/* Memory is there at once; work that uses it comes after this in the queue anyway. */
static CUresult allocate(CUdeviceptr *out, size_t size, struct sim_pool *pool, struct sim_stream *stream)
{
    if (sim_capture_active(stream))
        return allocate_captured(out, size, stream);
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_POOL, .pool = pool};
    struct sim_allocation *allocation = pool == NULL ? NULL : sim_pool_take(pool, &request);
    if (allocation == NULL && pool != NULL) { /* what is freed in the queue may make room */
        sim_engine_drain(pool->device);
        allocation = sim_pool_take(pool, &request);
    }
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = allocation->base;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (out == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, size, sim_pool_current(stream->context->device), stream);
}

SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool_handle, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    struct sim_pool *pool = sim_handle_get(pool_handle, SIM_POOL);
    if (out == NULL || size == 0 || pool == NULL || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(out, size, pool, stream);
}

static void give(void *allocation)
{
    sim_memory_give(allocation);
}

static CUresult free_other(CUdeviceptr address, struct sim_stream *stream)
{
    return sim_foreign_close(address, 1U << SIM_FOREIGN_POOL) ? CUDA_SUCCESS : sim_graph_memory_free(address, stream);
}

/* Accepts memory of every kind of allocation, not the pools' alone. */
SIM_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    const unsigned int kinds = 1U << SIM_MEMORY_POOL | 1U << SIM_MEMORY_DEVICE | 1U << SIM_MEMORY_MANAGED;
    SIM_NEED_STREAM(handle, stream);
    if (address == 0)
        return CUDA_SUCCESS;
    if (sim_capture_active(stream))
        return sim_capture_free(stream, address);
    struct sim_allocation *allocation = sim_heap_claim(address, kinds);
    if (allocation == NULL)
        return free_other(address, stream);
    struct sim_op op = {.kind = SIM_OP_CALL, .call = {give, allocation}};
    CUresult result = sim_stream_submit(stream, &op);
    if (result != CUDA_SUCCESS)
        sim_memory_give(allocation);
    return CUDA_SUCCESS;
}
