/* What the hooks of all families of device memory have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_MEMORY_H
#define AQ_MEMORY_H

#include "blocks.h"
#include "cards.h"
#include "loader.h"
#include "pool.h"
#include "quota.h"

/* Takes memory for a call about to be made; when it does not fit, once more after our pools gave back what they hold
 * idle. False: the answer is CUDA_ERROR_OUT_OF_MEMORY, and it is counted. */
bool aq_memory_take(CUdevice device, uint64_t bytes, aq_charge *charge);

/* After the call: remembers what was charged for `key`, or gives it back when the driver refused. When it cannot be
 * remembered it is undone. Returns the program's answer. */
CUresult aq_memory_keep(CUresult result, const aq_block *block, void (*undo)(uint64_t key));

/* Around a call that frees `key`. */
typedef struct {
  aq_block block;
  bool known;
} aq_freeing;

aq_freeing aq_memory_freeing(aq_block_kind kind, uint64_t key);
CUresult aq_memory_freed(CUresult result, const aq_freeing *freeing);

/* The primary context of a device if it is active, else NULL. */
CUcontext aq_memory_primary(CUdevice device);

/* A context has ended, and with it the plain memory and arrays made in it; NULL is none. Pools and physical memory
 * outlive contexts. */
void aq_memory_context_ended(CUcontext context);

#endif
