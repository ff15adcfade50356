/* Stream memory operations: a stream waits for a word of memory, or writes one. */
#include "memory_op.h"

#include <string.h>

#include "stream.h"
#include "transfer.h"

enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6, REDUCE = 8 };
enum { COMPARE = 3, GREATER_EQUAL = 0, EQUAL = 1, AND = 2 };
enum { MOST = 256 };

union memory_op {
    int operation;
    struct {
        int operation;
        CUdeviceptr address;
        uint64_t value;
        unsigned int flags;
        CUdeviceptr alias;
    } word;
    uint64_t words[6];
};

bool sim_memory_op_holds(const struct sim_word *word)
{
    uint64_t seen = 0;
    memcpy(&seen, (const void *)word->address, word->size);
    switch (word->flags & COMPARE) {
    case GREATER_EQUAL: /* in circles, as counters wrap */
        return word->size == sizeof(uint32_t) ? (int32_t)((uint32_t)seen - (uint32_t)word->value) >= 0
                                              : (int64_t)(seen - word->value) >= 0;
    case EQUAL:
        return seen == word->value;
    case AND:
        return (seen & word->value) != 0;
    default:
        return (seen | word->value) != (word->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX);
    }
}

void sim_memory_op_write(const struct sim_word *word)
{
    memcpy((void *)word->address, &word->value, word->size);
}

static CUresult submit(struct sim_stream *stream, CUdeviceptr address, uint64_t value, size_t size, unsigned int flags, bool wait)
{
    if (address == 0 || address % size != 0 || !sim_range_is_device(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = wait ? SIM_OP_WAIT_WORD : SIM_OP_WRITE_WORD, .word = {address, value, size, flags}};
    return sim_stream_submit(stream, &op);
}

static CUresult submit_any(struct sim_stream *stream, const union memory_op *op)
{
    switch (op->operation) {
    case WAIT_32:
    case WRITE_32:
        return submit(stream, op->word.address, (uint32_t)op->word.value, sizeof(uint32_t), op->word.flags,
                      op->operation == WAIT_32);
    case WAIT_64:
    case WRITE_64:
        return submit(stream, op->word.address, op->word.value, sizeof(uint64_t), op->word.flags, op->operation == WAIT_64);
    case FLUSH:
    case BARRIER:
        return sim_stream_submit(stream, &(struct sim_op){.kind = SIM_OP_EMPTY});
    default:
        return op->operation == REDUCE ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, const union memory_op *ops, unsigned int flags)
{
    SIM_NEED_STREAM(handle, stream);
    if (ops == NULL || count == 0 || count > MOST || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = submit_any(stream, &ops[i]);
    return result;
}

static CUresult one(CUstream handle, CUdeviceptr address, uint64_t value, size_t size, unsigned int flags, bool wait)
{
    SIM_NEED_STREAM(handle, stream);
    return submit(stream, address, value, size, flags, wait);
}

#define OWN(stream) ((stream) == NULL ? CU_STREAM_PER_THREAD : (stream))

/* Each operation's first and second version, with their per-thread twins, which all do the same. */
#define WORD_VERSION(name, suffix, type, wait, which)                                                              \
    SIM_API CUresult name##suffix(CUstream stream, CUdeviceptr address, type value, unsigned int flags)            \
    {                                                                                                              \
        return one(which, address, value, sizeof value, flags, wait);                                              \
    }
#define WORD_FAMILY(name, type, wait)                          \
    WORD_VERSION(name, , type, wait, stream)                   \
    WORD_VERSION(name, _v2, type, wait, stream)                \
    WORD_VERSION(name, _ptsz, type, wait, OWN(stream))         \
    WORD_VERSION(name, _v2_ptsz, type, wait, OWN(stream))

WORD_FAMILY(cuStreamWaitValue32, uint32_t, true)
WORD_FAMILY(cuStreamWaitValue64, uint64_t, true)
WORD_FAMILY(cuStreamWriteValue32, uint32_t, false)
WORD_FAMILY(cuStreamWriteValue64, uint64_t, false)

SIM_API CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, const union memory_op *ops, unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, ops, flags);
}

SIM_API CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, const union memory_op *ops, unsigned int flags)
{
    return cuStreamBatchMemOp_v2(OWN(stream), count, ops, flags);
}

SIM_API CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, const union memory_op *ops, unsigned int flags)
{
    return cuStreamBatchMemOp_v2(OWN(stream), count, ops, flags);
}
