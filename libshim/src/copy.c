/* Hooks of copies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* A box that is not there is the driver's to refuse. */
#define BOX_2D (box ? (uint64_t)box->WidthInBytes * box->Height : 0)
#define BOX_3D (box ? (uint64_t)box->WidthInBytes * box->Height * box->Depth : 0)

static uint64_t sum_of_sizes(const size_t *sizes, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; sizes && i < count; i++) sum += sizes[i];
  return sum;
}

/* Between arrays the width is in texels: the class of these is another, and what it costs is learnt all the same. */
static uint64_t sum_of_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; boxes && i < count; i++) sum += (uint64_t)boxes[i].width * boxes[i].height * boxes[i].depth;
  return sum;
}

static uint64_t sum_of_parts(const CUmemDecompressParams *parts, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; parts && i < count; i++) sum += parts[i].dstNumBytes;
  return sum;
}

/* ---- lines: of the first ABI with addresses and sizes of 32 bits, and of the second ---- */

#define STREAM , CUstream stream
#define NO_STREAM

#define LINE(name, how, kind, parameters, ...)                                                                              \
  AQ_COPY(name, LEGACY, how, kind, bytes, aq_default_stream, parameters(CUdeviceptr_v1, unsigned int, NO_STREAM), (__VA_ARGS__)) \
  AQ_COPY_TWINS(name##_v2, name##_v2_ptds, how, kind, bytes, aq_default_stream, parameters(CUdeviceptr, size_t, NO_STREAM), (__VA_ARGS__))

#define LINE_ASYNC(name, kind, parameters, ...)                                                                      \
  AQ_COPY(name, LEGACY, ASYNC, kind, bytes, stream, parameters(CUdeviceptr_v1, unsigned int, STREAM), (__VA_ARGS__, stream)) \
  AQ_COPY_TWINS(name##_v2, name##_v2_ptsz, ASYNC, kind, bytes, stream, parameters(CUdeviceptr, size_t, STREAM), (__VA_ARGS__, stream))

#define H_TO_D(address, size, rest) (address target, const void *source, size bytes rest)
#define D_TO_H(address, size, rest) (void *target, address source, size bytes rest)
#define D_TO_D(address, size, rest) (address target, address source, size bytes rest)
#define D_TO_A(address, size, rest) (CUarray target, size at, address source, size bytes rest)
#define A_TO_D(address, size, rest) (address target, CUarray source, size from, size bytes rest)
#define H_TO_A(address, size, rest) (CUarray target, size at, const void *source, size bytes rest)
#define A_TO_H(address, size, rest) (void *target, CUarray source, size from, size bytes rest)
#define A_TO_A(address, size, rest) (CUarray target, size at, CUarray source, size from, size bytes rest)

LINE(cuMemcpyHtoD, WAITS, TO_CARD, H_TO_D, target, source, bytes)
LINE(cuMemcpyDtoH, WAITS, FROM_CARD, D_TO_H, target, source, bytes)
LINE(cuMemcpyDtoD, ASYNC, WITHIN, D_TO_D, target, source, bytes)
LINE(cuMemcpyDtoA, ASYNC, WITHIN, D_TO_A, target, at, source, bytes)
LINE(cuMemcpyAtoD, ASYNC, WITHIN, A_TO_D, target, source, from, bytes)
LINE(cuMemcpyHtoA, WAITS, TO_CARD, H_TO_A, target, at, source, bytes)
LINE(cuMemcpyAtoH, WAITS, FROM_CARD, A_TO_H, target, source, from, bytes)
LINE(cuMemcpyAtoA, ASYNC, WITHIN, A_TO_A, target, at, source, from, bytes)
LINE_ASYNC(cuMemcpyHtoDAsync, TO_CARD, H_TO_D, target, source, bytes)
LINE_ASYNC(cuMemcpyDtoHAsync, FROM_CARD, D_TO_H, target, source, bytes)
LINE_ASYNC(cuMemcpyDtoDAsync, WITHIN, D_TO_D, target, source, bytes)
LINE_ASYNC(cuMemcpyHtoAAsync, TO_CARD, H_TO_A, target, at, source, bytes)
LINE_ASYNC(cuMemcpyAtoHAsync, FROM_CARD, A_TO_H, target, source, from, bytes)

#define UNIFIED CUdeviceptr target, CUdeviceptr source, size_t bytes
AQ_COPY_TWINS(cuMemcpy, cuMemcpy_ptds, WAITS, ANY, bytes, aq_default_stream, (UNIFIED), (target, source, bytes))
AQ_COPY_TWINS(cuMemcpyAsync, cuMemcpyAsync_ptsz, ASYNC, ANY, bytes, stream, (UNIFIED STREAM), (target, source, bytes, stream))
AQ_COPY_TWINS(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz, ASYNC, ANY, bytes, stream,
              (UNIFIED, void *attributes STREAM), (target, source, bytes, attributes, stream))

#define PEERS CUdeviceptr target, CUcontext to, CUdeviceptr source, CUcontext from, size_t bytes
AQ_COPY_TWINS(cuMemcpyPeer, cuMemcpyPeer_ptds, WAITS, PEER, bytes, aq_default_stream, (PEERS), (target, to, source, from, bytes))
AQ_COPY_TWINS(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz, ASYNC, PEER, bytes, stream, (PEERS STREAM),
              (target, to, source, from, bytes, stream))

/* ---- boxes ---- */

#define BOX(name, box_bytes, kind)                                                                                  \
  AQ_COPY(name, LEGACY, WAITS, ANY, box_bytes, aq_default_stream, (const kind##_v1 *box), (box))                     \
  AQ_COPY_TWINS(name##_v2, name##_v2_ptds, WAITS, ANY, box_bytes, aq_default_stream, (const kind *box), (box))
BOX(cuMemcpy2D, BOX_2D, CUDA_MEMCPY2D)
BOX(cuMemcpy2DUnaligned, BOX_2D, CUDA_MEMCPY2D)
BOX(cuMemcpy3D, BOX_3D, CUDA_MEMCPY3D)

#define BOX_ASYNC(name, box_bytes, kind)                                                                                 \
  AQ_COPY(name, LEGACY, ASYNC, ANY, box_bytes, stream, (const kind##_v1 *box STREAM), (box, stream))                      \
  AQ_COPY_TWINS(name##_v2, name##_v2_ptsz, ASYNC, ANY, box_bytes, stream, (const kind *box STREAM), (box, stream))
BOX_ASYNC(cuMemcpy2DAsync, BOX_2D, CUDA_MEMCPY2D)
BOX_ASYNC(cuMemcpy3DAsync, BOX_3D, CUDA_MEMCPY3D)

#define PEER_BOX const CUDA_MEMCPY3D_PEER *box
AQ_COPY_TWINS(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, WAITS, PEER, BOX_3D, aq_default_stream, (PEER_BOX), (box))
AQ_COPY_TWINS(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, ASYNC, PEER, BOX_3D, stream, (PEER_BOX STREAM), (box, stream))
AQ_COPY_TWINS(cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz, ASYNC, ANY, sum_of_boxes(box, 1), stream,
              (CUDA_MEMCPY3D_BATCH_OP * box, unsigned long long flags STREAM), (box, flags, stream))

/* ---- many at once ---- */

#define LINES CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, void *attributes, size_t *starts, size_t spans
AQ_COPY_TWINS(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz, ASYNC, ANY, sum_of_sizes(sizes, count), stream,
              (LINES, size_t *failed STREAM), (targets, sources, sizes, count, attributes, starts, spans, failed, stream))
AQ_COPY_TWINS(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz, ASYNC, ANY, sum_of_sizes(sizes, count), stream,
              (LINES STREAM), (targets, sources, sizes, count, attributes, starts, spans, stream))

#define BOXES size_t count, CUDA_MEMCPY3D_BATCH_OP *boxes
AQ_COPY_TWINS(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz, ASYNC, ANY, sum_of_boxes(boxes, count), stream,
              (BOXES, size_t *failed, unsigned long long flags STREAM), (count, boxes, failed, flags, stream))
AQ_COPY_TWINS(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz, ASYNC, ANY, sum_of_boxes(boxes, count), stream,
              (BOXES, unsigned long long flags STREAM), (count, boxes, flags, stream))

AQ_COPY_TWINS(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz, ASYNC, DECOMPRESS, sum_of_parts(parts, count), stream,
              (CUmemDecompressParams * parts, size_t count, unsigned int flags, size_t *failed STREAM),
              (parts, count, flags, failed, stream))
