/* The entries that copy boxes: two and three dimensions, between any of host, device and array memory. */
#include "array.h"
#include "host.h"
#include "transfer.h"

/* One end of a copy, before it is known where its bytes are. */
struct end {
    int type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, height; /* bytes, rows, slices */
};

struct place {
    char *base;
    size_t pitch, slice;
};

static CUresult place_array(const struct end *end, struct place *out)
{
    const struct sim_array *array = sim_array_of(end->array);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->memory == NULL)
        return CUDA_ERROR_NOT_SUPPORTED; /* levels of mipmaps and arrays without memory of their own */
    *out = (struct place){(char *)array->memory->base, array->pitch, array->pitch * array->rows};
    return CUDA_SUCCESS;
}

/* Where the box begins. Width, height and depth (bytes, rows, slices) must fit within. */
static CUresult find_place(const struct end *end, size_t width, size_t height, size_t depth, struct place *out)
{
    CUresult result = CUDA_SUCCESS;
    if (end->type == CU_MEMORYTYPE_ARRAY)
        result = place_array(end, out);
    else if (end->type == CU_MEMORYTYPE_HOST)
        *out = (struct place){(char *)(uintptr_t)end->host, end->pitch, end->pitch * end->height};
    else if (end->type == CU_MEMORYTYPE_DEVICE || end->type == CU_MEMORYTYPE_UNIFIED)
        *out = (struct place){(char *)end->device, end->pitch, end->pitch * end->height};
    else
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (out->base == NULL || (height > 1 && out->pitch < width))
        return CUDA_ERROR_INVALID_VALUE;
    out->base += end->z * out->slice + end->y * out->pitch + end->x;
    size_t span = (depth - 1) * out->slice + (height - 1) * out->pitch + width;
    if (end->type == CU_MEMORYTYPE_DEVICE && !sim_range_is_device((uintptr_t)out->base, span))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_box_make(const CUDA_MEMCPY3D *box, struct sim_copy *out)
{
    struct place source, target;
    if (box->width == 0 || box->height == 0 || box->depth == 0)
        return CUDA_SUCCESS;
    struct end from = {box->src_type, box->src_host, box->src_device, box->src_array, box->src_x, box->src_y, box->src_z,
                       box->src_pitch, box->src_height};
    struct end to = {box->dst_type, box->dst_host, box->dst_device, box->dst_array, box->dst_x, box->dst_y, box->dst_z,
                     box->dst_pitch, box->dst_height};
    CUresult result = find_place(&from, box->width, box->height, box->depth, &source);
    if (result == CUDA_SUCCESS)
        result = find_place(&to, box->width, box->height, box->depth, &target);
    if (result != CUDA_SUCCESS)
        return result;
    *out = (struct sim_copy){
        .source = source.base, .target = target.base, .source_pitch = source.pitch, .source_slice = source.slice,
        .target_pitch = target.pitch, .target_slice = target.slice, .width = box->width, .height = box->height,
        .depth = box->depth,
    };
    return CUDA_SUCCESS;
}

static CUresult copy_box(CUstream handle, const CUDA_MEMCPY3D *box, bool wait)
{
    struct sim_copy copy = {.width = 0};
    SIM_NEED_STREAM(handle, stream);
    CUresult result = sim_box_make(box, &copy);
    return result == CUDA_SUCCESS ? sim_transfer(stream, copy, wait) : result;
}

static CUDA_MEMCPY3D deepen(const CUDA_MEMCPY2D *flat)
{
    return (CUDA_MEMCPY3D){
        .src_x = flat->src_x, .src_y = flat->src_y, .src_type = flat->src_type, .src_host = flat->src_host,
        .src_device = flat->src_device, .src_array = flat->src_array, .src_pitch = flat->src_pitch,
        .src_height = flat->height, .dst_x = flat->dst_x, .dst_y = flat->dst_y, .dst_type = flat->dst_type,
        .dst_host = flat->dst_host, .dst_device = flat->dst_device, .dst_array = flat->dst_array,
        .dst_pitch = flat->dst_pitch, .dst_height = flat->height, .width = flat->width, .height = flat->height, .depth = 1,
    };
}

static CUresult copy_flat(CUstream stream, const CUDA_MEMCPY2D *flat, bool wait)
{
    SIM_NEED_INIT();
    if (flat == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = deepen(flat);
    return copy_box(stream, &box, wait);
}

static CUresult copy_deep(CUstream stream, const CUDA_MEMCPY3D *box, bool wait)
{
    SIM_NEED_INIT();
    return box == NULL ? CUDA_ERROR_INVALID_VALUE : copy_box(stream, box, wait);
}

/* Between contexts: the description has them where the plain one has reserved words. There is one address space. */
static CUresult copy_peer(CUstream handle, const CUDA_MEMCPY3D *box, bool wait)
{
    if (box == NULL)
        return copy_deep(handle, NULL, wait);
    CUDA_MEMCPY3D plain = *box;
    plain.reserved0 = plain.reserved1 = NULL;
    return copy_deep(handle, &plain, wait);
}

/* The entries of one shape: waiting or not, and their per-thread twins. */
#define BOX_FAMILY(now, later, type, copy)                                                  \
    SIM_API CUresult now(const type *box)                                                   \
    {                                                                                       \
        return copy(CU_STREAM_LEGACY, box, true);                                           \
    }                                                                                       \
    SIM_API CUresult now##_ptds(const type *box)                                            \
    {                                                                                       \
        return copy(CU_STREAM_PER_THREAD, box, true);                                       \
    }                                                                                       \
    SIM_API CUresult later(const type *box, CUstream stream)                                \
    {                                                                                       \
        return copy(stream, box, false);                                                    \
    }                                                                                       \
    SIM_API CUresult later##_ptsz(const type *box, CUstream stream)                         \
    {                                                                                       \
        return copy(stream == NULL ? CU_STREAM_PER_THREAD : stream, box, false);            \
    }

BOX_FAMILY(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_flat)
BOX_FAMILY(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_deep)
BOX_FAMILY(cuMemcpy3DPeer, cuMemcpy3DPeerAsync, CUDA_MEMCPY3D, copy_peer)

SIM_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *box)
{
    return copy_flat(CU_STREAM_LEGACY, box, true);
}

SIM_API CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *box)
{
    return copy_flat(CU_STREAM_PER_THREAD, box, true);
}
