/* The entries that copy: between host and device memory, in one dimension, now or in stream order. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "host.h"
#include "transfer.h"

bool sim_range_is_device(uintptr_t address, size_t size)
{
    struct sim_allocation found;
    while (sim_memory_find(address, &found)) {
        size_t rest = found.base + found.size - address;
        if (rest >= size)
            return true;
        address += rest; /* neighbouring mappings of one reserved range */
        size -= rest;
    }
    return false;
}

static bool is_pageable(uintptr_t address)
{
    struct sim_allocation found;
    return !sim_memory_find(address, &found);
}

/* Copies pageable source memory aside, so that the caller may change it after the call. */
static CUresult stage(struct sim_copy *copy)
{
    if (copy->height != 1 || copy->depth != 1 || !is_pageable((uintptr_t)copy->source))
        return CUDA_SUCCESS;
    copy->staged = malloc(copy->width);
    if (copy->staged == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy->staged, copy->source, copy->width);
    copy->source = copy->staged;
    return CUDA_SUCCESS;
}

CUresult sim_transfer(struct sim_stream *stream, struct sim_copy copy, bool wait)
{
    if (copy.width == 0 || copy.height == 0 || copy.depth == 0)
        return CUDA_SUCCESS;
    bool capturing = sim_capture_active(stream);
    if (wait && (capturing || (stream->is_default && sim_capture_forbids(stream->context)))) {
        sim_capture_breaks(stream);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    bool to_pageable = !capturing && is_pageable((uintptr_t)copy.target);
    CUresult result = capturing || wait ? CUDA_SUCCESS : stage(&copy);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_op op = {.kind = SIM_OP_COPY, .copy = copy};
    result = sim_stream_submit(stream, &op);
    if (result != CUDA_SUCCESS)
        free(copy.staged);
    else if (wait || to_pageable)
        sim_engine_await(stream);
    return result;
}

struct sim_copy sim_copy_line(const void *source, void *target, size_t size)
{
    return (struct sim_copy){.source = source, .target = target, .width = size, .height = 1, .depth = 1};
}

/* Which ends must be device memory, and whether the caller waits. */
enum { FROM_DEVICE = 1, TO_DEVICE = 2, WAIT = 4 };

static CUresult copy_line(CUstream handle, uintptr_t target, uintptr_t source, size_t size, int how)
{
    SIM_NEED_STREAM(handle, stream);
    if (size == 0)
        return CUDA_SUCCESS;
    if (target == 0 || source == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((how & FROM_DEVICE) != 0 && !sim_range_is_device(source, size))
        return CUDA_ERROR_INVALID_VALUE;
    if ((how & TO_DEVICE) != 0 && !sim_range_is_device(target, size))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_transfer(stream, sim_copy_line((const void *)source, (void *)target, size), (how & WAIT) != 0);
}

/* Each of these has a twin that works on the calling thread's default stream. */
#define COPY_PAIR(name, target_type, source_type, how)                                                    \
    SIM_API CUresult name(target_type target, source_type source, size_t size)                            \
    {                                                                                                     \
        return copy_line(CU_STREAM_LEGACY, (uintptr_t)target, (uintptr_t)source, size, (how) | WAIT);     \
    }                                                                                                     \
    SIM_API CUresult name##_ptds(target_type target, source_type source, size_t size)                     \
    {                                                                                                     \
        return copy_line(CU_STREAM_PER_THREAD, (uintptr_t)target, (uintptr_t)source, size, (how) | WAIT); \
    }

#define COPY_ASYNC_PAIR(name, target_type, source_type, how)                                              \
    SIM_API CUresult name(target_type target, source_type source, size_t size, CUstream stream)           \
    {                                                                                                     \
        return copy_line(stream, (uintptr_t)target, (uintptr_t)source, size, how);                        \
    }                                                                                                     \
    SIM_API CUresult name##_ptsz(target_type target, source_type source, size_t size, CUstream stream)    \
    {                                                                                                     \
        stream = stream == NULL ? CU_STREAM_PER_THREAD : stream;                                          \
        return copy_line(stream, (uintptr_t)target, (uintptr_t)source, size, how);                        \
    }

COPY_PAIR(cuMemcpy, CUdeviceptr, CUdeviceptr, 0)
COPY_PAIR(cuMemcpyHtoD_v2, CUdeviceptr, const void *, TO_DEVICE)
COPY_PAIR(cuMemcpyDtoH_v2, void *, CUdeviceptr, FROM_DEVICE)
COPY_PAIR(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, FROM_DEVICE | TO_DEVICE)
COPY_ASYNC_PAIR(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, 0)
COPY_ASYNC_PAIR(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, TO_DEVICE)
COPY_ASYNC_PAIR(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, FROM_DEVICE)
COPY_ASYNC_PAIR(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, FROM_DEVICE | TO_DEVICE)

/* ---- fills ---- */

static CUresult fill(CUstream handle, struct sim_set set, bool wait)
{
    SIM_NEED_STREAM(handle, stream);
    if (set.width == 0 || set.height == 0)
        return CUDA_SUCCESS;
    size_t span = (set.height - 1) * set.pitch + set.width * set.element;
    if ((uintptr_t)set.target % set.element != 0 || !sim_range_is_device((uintptr_t)set.target, span))
        return CUDA_ERROR_INVALID_VALUE;
    if (set.height > 1 && set.pitch < set.width * set.element)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = SIM_OP_SET, .set = set};
    CUresult result = sim_stream_submit(stream, &op);
    if (result == CUDA_SUCCESS && wait && !sim_capture_active(stream))
        sim_engine_await(stream);
    return result;
}

#define SET_1D(size) ((struct sim_set){(char *)target, value, size, 0, count, 1})
#define SET_2D(size) ((struct sim_set){(char *)target, value, size, pitch, width, height})

/* The four entries of one element type and one dimension: with and without stream, and their per-thread twins. */
#define SET_FAMILY(name, version, set, ...)                                           \
    SIM_API CUresult name##version(CUdeviceptr target, __VA_ARGS__)                         \
    {                                                                                       \
        return fill(CU_STREAM_LEGACY, set, true);                                           \
    }                                                                                       \
    SIM_API CUresult name##version##_ptds(CUdeviceptr target, __VA_ARGS__)                  \
    {                                                                                       \
        return fill(CU_STREAM_PER_THREAD, set, true);                                       \
    }                                                                                       \
    SIM_API CUresult name##Async(CUdeviceptr target, __VA_ARGS__, CUstream stream)          \
    {                                                                                       \
        return fill(stream, set, false);                                                    \
    }                                                                                       \
    SIM_API CUresult name##Async_ptsz(CUdeviceptr target, __VA_ARGS__, CUstream stream)     \
    {                                                                                       \
        return fill(stream == NULL ? CU_STREAM_PER_THREAD : stream, set, false);            \
    }

SET_FAMILY(cuMemsetD8, _v2, SET_1D(1), unsigned char value, size_t count)
SET_FAMILY(cuMemsetD16, _v2, SET_1D(2), unsigned short value, size_t count)
SET_FAMILY(cuMemsetD32, _v2, SET_1D(4), unsigned int value, size_t count)
SET_FAMILY(cuMemsetD2D8, _v2, SET_2D(1), size_t pitch, unsigned char value, size_t width, size_t height)
SET_FAMILY(cuMemsetD2D16, _v2, SET_2D(2), size_t pitch, unsigned short value, size_t width, size_t height)
SET_FAMILY(cuMemsetD2D32, _v2, SET_2D(4), size_t pitch, unsigned int value, size_t width, size_t height)

/* ---- between contexts: one address space, so the contexts do not matter ---- */

SIM_API CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context, size_t size)
{
    (void)target_context, (void)source_context;
    return cuMemcpyDtoD_v2(target, source, size);
}

SIM_API CUresult cuMemcpyPeer_ptds(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                                   size_t size)
{
    (void)target_context, (void)source_context;
    return cuMemcpyDtoD_v2_ptds(target, source, size);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                                   size_t size, CUstream stream)
{
    (void)target_context, (void)source_context;
    return cuMemcpyDtoDAsync_v2(target, source, size, stream);
}
