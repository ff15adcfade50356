/* What hooks of copies and fills have in common: what moves as much as AQ_COPY_LEAST is submitted as work (compute.h), for what
 * its kind and size took before; what is less goes to the driver as it is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_COPY_H
#define AQ_COPY_H

#include "lane.h"
#include "loader.h"

/* Over a bus of 25-50 GB/s this takes 20 to 40 µs, ten times what it takes to pass the gate and to record two events. */
#define AQ_COPY_LEAST (UINT64_C(1) << 20)

typedef enum { AQ_COPY_ANY, AQ_COPY_TO_CARD, AQ_COPY_FROM_CARD, AQ_COPY_WITHIN, AQ_COPY_PEER, AQ_COPY_DECOMPRESS, AQ_COPY_SET, AQ_COPY_KINDS } aq_copy_kind;

/* Stands for copies of this kind of about so many bytes, when their cost is learnt. */
const void *aq_copy_class(aq_copy_kind kind, uint64_t bytes);

/* Calls that wait for what is in the stream end it with an event first, as cuStreamSynchronize does. */
#define AQ_COPY_BEFORE_WAITS aq_submit_flush()
#define AQ_COPY_BEFORE_ASYNC (void)0

/* Defines the hook of `symbol`, whose default stream is of the flavour, and which WAITS or is ASYNC. */
#define AQ_COPY(symbol, flavour, how, kind, bytes, stream, parameters, arguments)                                   \
  CUresult symbol parameters {                                                                                      \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;                                                              \
    AQ_COPY_BEFORE_##how;                                                                                           \
    uint64_t moved = aq_gate_free() ? 0 : (bytes);                                                                  \
    if (moved < AQ_COPY_LEAST) return AQ_CUDA(symbol) arguments;                                                    \
    const void *what = aq_copy_class(AQ_COPY_##kind, moved);                                                        \
    if (aq_gate_pass(what, stream, AQ_STREAM_##flavour)) return AQ_CUDA(symbol) arguments;                          \
    aq_submission submission;                                                                                       \
    aq_submit_begin(&submission, what, stream, AQ_STREAM_##flavour);                                                \
    CUresult result = AQ_CUDA(symbol) arguments;                                                                    \
    aq_submit_end(&submission, result);                                                                             \
    return result;                                                                                                  \
  }

/* The same in both flavours. */
#define AQ_COPY_TWINS(legacy, per_thread, how, kind, bytes, stream, parameters, arguments) \
  AQ_COPY(legacy, LEGACY, how, kind, bytes, stream, parameters, arguments)                 \
  AQ_COPY(per_thread, PER_THREAD, how, kind, bytes, stream, parameters, arguments)

static const CUstream aq_default_stream;

#endif
