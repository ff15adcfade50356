/* The contexts in which work is measured, each with its events. Everything here is called under the lock of compute.c and
 * asks the driver nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CORE_CONTEXT_H
#define AQ_CORE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

struct aq_batch;

/* Where a context's events stand on the host's clock: host time = offset + time since a reference. No event is reached before it is
 * recorded, nor seen to be before it is reached. */
typedef struct {
  uint64_t least, most;
} aq_offset;

#define AQ_ANY_OFFSET ((aq_offset){.most = UINT64_MAX})

/* A context of the process. */
typedef struct {
  CUcontext handle; /* NULL: free */
  CUdevice device;
  int card;            /* below 0: none of ours */
  CUevent reference;
  bool referenced; /* the reference event was recorded */
  aq_offset offset, fresh_offset; /* since `reference`; the fresh one replaces the other with the reference */
  struct aq_batch *idle; /* batches with events of this context, the one that was used last first */
} aq_core_context;

/* The entry of a context; NULL when it has none. */
aq_core_context *aq_core_context_of(CUcontext handle);

/* Makes the entry as `wanted` says; NULL when there are too many. */
aq_core_context *aq_core_context_add(const aq_core_context *wanted);

/* All entries, free ones too. */
aq_core_context *aq_core_contexts(size_t *count);

/* In the child of a fork. */
void aq_core_contexts_forget(void);

#endif
