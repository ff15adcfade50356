/* Memory that a burst tenant asks for beyond its grant, where the agent lets it overflow to the host: managed memory that
 * stays there, and that the card reaches over the bus. The program takes it for what it asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_OVERFLOW_H
#define AQ_OVERFLOW_H

#include <stdbool.h>

#include "blocks.h"
#include "cuda_abi.h"

/* Allocates what the grant does not hold, for a device, and remembers it. The program's answer: CUDA_ERROR_OUT_OF_MEMORY,
 * counted, where it may not overflow or not so far. */
CUresult aq_overflow_allocate(CUdevice device, uint64_t bytes, CUdeviceptr *dptr);

/* Whether a block is such memory. */
static inline bool aq_overflow_is(const aq_block *block) {
  return block->kind == AQ_BLOCK_MEMORY && block->charge.card >= AQ_OVERFLOW_CARDS;
}

/* Whether an address lies in such memory. */
bool aq_overflow_has(CUdeviceptr address);

/* Frees a block, taken out of the table: now, or when the stream gets there. */
CUresult aq_overflow_free(const aq_block *block);
CUresult aq_overflow_free_in_order(const aq_block *block, CUstream stream);

#endif
