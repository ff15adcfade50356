/* How much memory an array takes, by its descriptor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ARRAY_SIZE_H
#define AQ_ARRAY_SIZE_H

#include "cuda_abi.h"

/* The widest pitch known of any card: rows begin at multiples of it. */
#define AQ_PITCH 512

/* Sparse and deferred arrays take none of their own. What overflows fits nowhere: UINT64_MAX. */
uint64_t aq_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);

/* All levels: no less than 1 and no more than there can be. */
uint64_t aq_mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

#endif
