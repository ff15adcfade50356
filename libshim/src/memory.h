/* What the hooks of all families of device memory have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_MEMORY_H
#define AQ_MEMORY_H

#include "blocks.h"
#include "cards.h"
#include "loader.h"
#include "pool.h"
#include "quota.h"
#include "resident.h"
#include "returning.h"

/* Takes memory for a call about to be made; when it does not fit, once more after our pools gave back what they hold
 * idle, and again when the agent has raised the grant, for which it waits. False: the answer is
 * CUDA_ERROR_OUT_OF_MEMORY, and it is counted. */
bool aq_memory_take(CUdevice device, uint64_t bytes, aq_charge *charge);

/* The same, but what does not fit is not counted as refused: something else may be done. */
bool aq_memory_fits(CUdevice device, uint64_t bytes, aq_charge *charge);

/* What was tried once and did not fit: what takes it, for a call on a device that needs about so many bytes and, where there is
 * a stream, follows what is in it. */
typedef struct {
  bool (*fits)(void *request);
  void *request;
  CUdevice device;
  uint64_t bytes;
  aq_patience patience;
} aq_attempt;

/* Tries again after our pools gave back what they hold idle, as long as memory is on its way back, and when the agent has raised
 * the grant. */
bool aq_memory_insist(aq_attempt *attempt);

/* After the call: remembers what was charged for `key`, in the current context, or gives it back when the driver refused. When
 * it cannot be remembered it is undone. Returns the program's answer. */
CUresult aq_memory_keep(CUresult result, aq_block *block, void (*undo)(uint64_t key));

/* Around a call that frees `key`. */
typedef struct {
  aq_block block; /* if known */
  bool known;
  aq_resident *resident; /* where it is managed memory that may be larger than the slice */
} aq_freeing;

aq_freeing aq_memory_freeing(aq_block_kind kind, uint64_t key);
CUresult aq_memory_freed(CUresult result, const aq_freeing *freeing);

/* The same where the driver frees it when the stream gets there. */
CUresult aq_memory_freed_in_order(CUresult result, const aq_freeing *freeing, CUstream stream);

/* Managed memory was freed: the same for the other cards that it was let to (memory_managed.c). */
void aq_managed_freed(CUdeviceptr base);

/* The primary context of a device if it is active, else NULL. */
CUcontext aq_memory_primary(CUdevice device);

/* Plain memory that was named for other processes is freed, with whatever stands for it (memory_import.c). */
extern bool aq_exports_any;
void aq_export_ended(uint64_t key);

/* In the child of a fork. */
void aq_imports_forget(void);

#endif
