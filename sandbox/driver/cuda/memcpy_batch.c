/* Copies by the batch, and copies with attributes, which say only what may be hurried. */
#include "capture.h"
#include "transfer.h"

static CUresult copy(struct sim_stream *stream, CUdeviceptr target, CUdeviceptr source, size_t size)
{
    if (size == 0 || target == 0 || source == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_transfer(stream, sim_copy_line((const void *)source, (void *)target, size), false);
}

static CUresult copy_all(const CUdeviceptr *targets, const CUdeviceptr *sources, const size_t *sizes, size_t count,
                         const size_t *starts, size_t attribute_count, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (targets == NULL || sources == NULL || sizes == NULL || count == 0 || starts == NULL || attribute_count == 0 ||
        attribute_count > count || starts[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE; /* the default stream takes no batches */
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = copy(stream, targets[i], sources[i], sizes[i]);
    return result;
}

SIM_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes,
                                       size_t *starts, size_t attribute_count, CUstream stream)
{
    if (attributes == NULL)
        return sim_ready() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    return copy_all(targets, sources, sizes, count, starts, attribute_count, stream);
}

/* The entry of CUDA 12.8 also told which copy was the first to fail; SIZE_MAX: none in particular. */
SIM_API CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes,
                                    size_t *starts, size_t attribute_count, size_t *failed, CUstream stream)
{
    if (failed != NULL)
        *failed = SIZE_MAX;
    return cuMemcpyBatchAsync_v2(targets, sources, sizes, count, attributes, starts, attribute_count, stream);
}

SIM_API CUresult cuMemcpyWithAttributesAsync(CUdeviceptr target, CUdeviceptr source, size_t size, const void *attributes,
                                             CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    return attributes == NULL ? CUDA_ERROR_INVALID_VALUE : copy(stream, target, source, size);
}

/* ---- boxes ---- */

enum { OPERAND_POINTER = 1, OPERAND_ARRAY = 2 };

struct operand {
    int type;
    union {
        struct {
            CUdeviceptr address;
            size_t row, layer; /* elements; 0: as wide, as high as the box */
            CUmemLocation hint;
        } pointer;
        struct {
            CUarray array;
            size_t offset[3];
        } array;
    };
};

struct box_op {
    struct operand source, target;
    size_t extent[3];
    int order;
    unsigned int flags;
};
_Static_assert(sizeof(struct box_op) == 112, "ABI");

static size_t or(size_t value, size_t otherwise)
{
    return value != 0 ? value : otherwise;
}

/* Elements of memory are bytes; those of arrays are not supported. */
static CUresult copy_box(struct sim_stream *stream, const struct box_op *op)
{
    if (op->source.type == OPERAND_ARRAY || op->target.type == OPERAND_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (op->source.type != OPERAND_POINTER || op->target.type != OPERAND_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    size_t width = op->extent[0], height = op->extent[1];
    size_t from = or(op->source.pointer.row, width), to = or(op->target.pointer.row, width);
    struct sim_copy copy = {
        .source = (const char *)op->source.pointer.address, .target = (char *)op->target.pointer.address,
        .source_pitch = from, .source_slice = from * or(op->source.pointer.layer, height),
        .target_pitch = to, .target_slice = to * or(op->target.pointer.layer, height),
        .width = width, .height = height, .depth = op->extent[2],
    };
    return sim_transfer(stream, copy, false);
}

SIM_API CUresult cuMemcpy3DBatchAsync_v2(size_t count, const struct box_op *ops, unsigned long long flags, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (count == 0 || ops == NULL || flags != 0 || handle == NULL || handle == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = copy_box(stream, &ops[i]);
    return result;
}

SIM_API CUresult cuMemcpy3DBatchAsync(size_t count, const struct box_op *ops, size_t *failed, unsigned long long flags,
                                      CUstream stream)
{
    if (failed != NULL)
        *failed = SIZE_MAX;
    return cuMemcpy3DBatchAsync_v2(count, ops, flags, stream);
}

SIM_API CUresult cuMemcpy3DWithAttributesAsync(const struct box_op *op, unsigned long long flags, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    return op == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : copy_box(stream, op);
}

/* ---- decompression: takes its time in the stream; the bytes are not looked at ---- */

struct decompress {
    size_t source_size, target_size;
    uint32_t *written;
    void *source, *target;
    int algorithm;
    unsigned char padding[20];
};

SIM_API CUresult cuMemBatchDecompressAsync(struct decompress *list, size_t count, unsigned int flags, size_t *failed,
                                           CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (list == NULL || count == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (list[i].source != NULL && list[i].target != NULL)
            continue;
        if (failed != NULL)
            *failed = i;
        return CUDA_ERROR_INVALID_VALUE;
    }
    return sim_stream_submit(stream, &(struct sim_op){.kind = SIM_OP_EMPTY});
}
