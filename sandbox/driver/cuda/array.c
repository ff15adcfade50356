/* Arrays and mipmapped arrays. They are charged what they take: rows aligned to 512 bytes, in blocks of 2 MiB when large. */
#include "array.h"

#include <stdlib.h>

#include "capture.h"
#include "handle.h"
#include "memory.h"

enum {
    LAYERED = 0x1,
    CUBEMAP = 0x4,
    SPARSE = 0x40,
    DEFERRED = 0x80,
    ROW_ALIGNMENT = 512,
    MAX_LEVELS = 18,
};

struct mipmap {
    struct sim_allocation *memory; /* of all levels */
    struct sim_array *levels[MAX_LEVELS];
    unsigned int level_count;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint64_t bytes;
};

struct sim_array *sim_array_of(CUarray handle)
{
    return sim_handle_get(handle, SIM_ARRAY);
}

/* Bytes of a channel; 0 for formats this driver does not know. */
static size_t channel_size(int format)
{
    switch (format) {
    case 0x01:
    case 0x08:
        return 1;
    case 0x02:
    case 0x09:
    case 0x10:
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

static CUresult lay_out(struct sim_array *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    enum { WIDEST = 131072 };
    unsigned int channels = descriptor->channels;
    if (descriptor->width == 0 || channel_size(descriptor->format) == 0 || (channels != 1 && channels != 2 && channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    if (descriptor->width > WIDEST || descriptor->height > WIDEST || descriptor->depth > WIDEST)
        return CUDA_ERROR_INVALID_VALUE;
    array->descriptor = *descriptor;
    array->element = channel_size(descriptor->format) * channels;
    array->pitch = (descriptor->width * array->element + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
    array->rows = descriptor->height == 0 ? 1 : descriptor->height;
    array->slices = descriptor->depth == 0 ? 1 : descriptor->depth;
    return CUDA_SUCCESS;
}

static size_t bytes_of(const struct sim_array *array)
{
    return array->pitch * array->rows * array->slices;
}

static struct sim_allocation *take(struct sim_context *context, size_t size)
{
    struct sim_request request = {.size = size, .kind = SIM_MEMORY_ARRAY, .context = context};
    struct sim_heap *heap = sim_memory_heap(context->device, SIM_HEAP_DEVICE);
    return heap == NULL ? NULL : sim_heap_take(heap, &request);
}

/* Memory of sparse and deferred arrays is mapped later, by others. */
static bool has_memory(unsigned int flags)
{
    return (flags & (SPARSE | DEFERRED)) == 0;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || descriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct sim_array *array = calloc(1, sizeof *array);
    CUresult result = array == NULL ? CUDA_ERROR_OUT_OF_MEMORY : lay_out(array, descriptor);
    if (result == CUDA_SUCCESS && has_memory(descriptor->flags)) {
        array->memory = take(context, bytes_of(array));
        result = array->memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->handle = sim_handle_new(SIM_ARRAY, array);
    *out = array->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return create(out, descriptor);
}

SIM_API CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *flat)
{
    if (flat == NULL)
        return create(out, NULL);
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.width = flat->width, .height = flat->height, .format = flat->format,
                                          .channels = flat->channels};
    return create(out, &descriptor);
}

SIM_API CUresult cuArrayDestroy(CUarray handle)
{
    SIM_NEED_CONTEXT(context);
    struct sim_array *array = sim_array_of(handle);
    if (array == NULL || array->of_mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_end(handle, SIM_ARRAY) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_engine_drain(context->device);
    if (array->memory != NULL)
        sim_heap_give(array->memory);
    sim_tiles_end(array->tiles);
    free(array);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray handle)
{
    SIM_NEED_INIT();
    const struct sim_array *array = sim_array_of(handle);
    if (descriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *descriptor = array->descriptor;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *flat, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    CUresult result = cuArray3DGetDescriptor_v2(flat == NULL ? NULL : &descriptor, handle);
    if (result == CUDA_SUCCESS)
        *flat = (CUDA_ARRAY_DESCRIPTOR){descriptor.width, descriptor.height, descriptor.format, descriptor.channels};
    return result;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, size_t bytes)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = sim_blocks(bytes), .alignment = SIM_BLOCK};
    return CUDA_SUCCESS;
}

/* Only arrays that get their memory later tell how much it must be. */
static bool is_deferred(unsigned int flags)
{
    return (flags & DEFERRED) != 0;
}

SIM_API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray handle, CUdevice device)
{
    SIM_NEED_INIT();
    const struct sim_array *array = sim_array_of(handle);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return is_deferred(array->descriptor.flags) ? requirements(out, bytes_of(array)) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mipmapped arrays ---- */

static size_t half(size_t size)
{
    return size > 1 ? size / 2 : size;
}

/* Makes the levels, each half as large as the one before, and counts their bytes. */
static CUresult make_levels(struct mipmap *mipmap)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = mipmap->descriptor;
    for (unsigned int i = 0; i < mipmap->level_count; i++) {
        struct sim_array *level = calloc(1, sizeof *level);
        mipmap->levels[i] = level;
        CUresult result = level == NULL ? CUDA_ERROR_OUT_OF_MEMORY : lay_out(level, &descriptor);
        if (result != CUDA_SUCCESS)
            return result;
        level->of_mipmap = true;
        mipmap->bytes += bytes_of(level);
        descriptor.width = half(descriptor.width);
        descriptor.height = half(descriptor.height);
        descriptor.depth = (descriptor.flags & (LAYERED | CUBEMAP)) != 0 ? descriptor.depth : half(descriptor.depth);
    }
    return CUDA_SUCCESS;
}

static void free_mipmap(struct mipmap *mipmap)
{
    for (unsigned int i = 0; i < mipmap->level_count; i++) {
        if (mipmap->levels[i] != NULL && mipmap->levels[i]->handle != NULL)
            sim_handle_end(mipmap->levels[i]->handle, SIM_ARRAY);
        if (mipmap->levels[i] != NULL)
            sim_tiles_end(mipmap->levels[i]->tiles);
        free(mipmap->levels[i]);
    }
    if (mipmap->memory != NULL)
        sim_heap_give(mipmap->memory);
    free(mipmap);
}

SIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    SIM_NEED_CONTEXT(context);
    if (out == NULL || descriptor == NULL || levels == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct mipmap *mipmap = calloc(1, sizeof *mipmap);
    if (mipmap == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->descriptor = *descriptor;
    mipmap->level_count = levels < MAX_LEVELS ? levels : MAX_LEVELS;
    CUresult result = make_levels(mipmap);
    if (result == CUDA_SUCCESS && has_memory(descriptor->flags)) {
        mipmap->memory = take(context, mipmap->bytes);
        result = mipmap->memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        free_mipmap(mipmap);
        return result;
    }
    *out = sim_handle_new(SIM_MIPMAP, mipmap);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned int level)
{
    SIM_NEED_INIT();
    struct mipmap *mipmap = sim_handle_get(handle, SIM_MIPMAP);
    if (mipmap == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (out == NULL || level >= mipmap->level_count)
        return CUDA_ERROR_INVALID_VALUE;
    if (mipmap->levels[level]->handle == NULL)
        mipmap->levels[level]->handle = sim_handle_new(SIM_ARRAY, mipmap->levels[level]);
    *out = mipmap->levels[level]->handle;
    return CUDA_SUCCESS;
}

struct sim_array *sim_mipmap_level(CUmipmappedArray handle, unsigned int level)
{
    const struct mipmap *mipmap = sim_handle_get(handle, SIM_MIPMAP);
    return mipmap == NULL || level >= mipmap->level_count ? NULL : mipmap->levels[level];
}

SIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    SIM_NEED_CONTEXT(context);
    struct mipmap *mipmap = sim_handle_end(handle, SIM_MIPMAP);
    if (mipmap == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_engine_drain(context->device);
    free_mipmap(mipmap);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray handle,
                                                       CUdevice device)
{
    SIM_NEED_INIT();
    const struct mipmap *mipmap = sim_handle_get(handle, SIM_MIPMAP);
    if (mipmap == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return is_deferred(mipmap->descriptor.flags) ? requirements(out, mipmap->bytes) : CUDA_ERROR_INVALID_VALUE;
}
