/* Hooks of fills, of elements of 8, 16 and 32 bits. None waits: the driver's own kernels fill the card's memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#define AREA(bits) ((uint64_t)width * height * (bits / 8))
#define SPAN(bits) ((uint64_t)count * (bits / 8))

#define FILL(bits, value_type)                                                                                             \
  AQ_COPY(cuMemsetD##bits, LEGACY, ASYNC, SET, SPAN(bits), aq_default_stream,                                              \
          (CUdeviceptr_v1 target, value_type value, unsigned int count), (target, value, count))                           \
  AQ_COPY_TWINS(cuMemsetD##bits##_v2, cuMemsetD##bits##_v2_ptds, ASYNC, SET, SPAN(bits), aq_default_stream,                \
                (CUdeviceptr target, value_type value, size_t count), (target, value, count))                              \
  AQ_COPY_TWINS(cuMemsetD##bits##Async, cuMemsetD##bits##Async_ptsz, ASYNC, SET, SPAN(bits), stream,                       \
                (CUdeviceptr target, value_type value, size_t count, CUstream stream), (target, value, count, stream))

#define FILL_BOX(bits, value_type)                                                                                         \
  AQ_COPY(cuMemsetD2D##bits, LEGACY, ASYNC, SET, AREA(bits), aq_default_stream,                                            \
          (CUdeviceptr_v1 target, unsigned int pitch, value_type value, unsigned int width, unsigned int height),          \
          (target, pitch, value, width, height))                                                                           \
  AQ_COPY_TWINS(cuMemsetD2D##bits##_v2, cuMemsetD2D##bits##_v2_ptds, ASYNC, SET, AREA(bits), aq_default_stream,            \
                (CUdeviceptr target, size_t pitch, value_type value, size_t width, size_t height),                         \
                (target, pitch, value, width, height))                                                                     \
  AQ_COPY_TWINS(cuMemsetD2D##bits##Async, cuMemsetD2D##bits##Async_ptsz, ASYNC, SET, AREA(bits), stream,                   \
                (CUdeviceptr target, size_t pitch, value_type value, size_t width, size_t height, CUstream stream),        \
                (target, pitch, value, width, height, stream))

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
FILL_BOX(8, unsigned char)
FILL_BOX(16, unsigned short)
FILL_BOX(32, unsigned int)
