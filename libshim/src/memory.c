/* The order of things that all families share: take, call, remember; forget, call, give back.
 *
 * A block is forgotten before the driver frees it, because another thread may be given the same address as soon as
 * the driver has; and taken before the driver allocates, so that no interleaving exceeds the slice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

bool aq_memory_take(CUdevice device, uint64_t bytes, aq_charge *charge) {
  if (aq_quota_take(device, bytes, charge)) return true;
  if (aq_pools_trim() && aq_quota_take(device, bytes, charge)) return true;
  aq_quota_refused(device);
  return false;
}

/* Remembers a block together with the context that the driver has made it in. */
static bool put(const aq_block *block) {
  CUcontext context = NULL;
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(&context);
  aq_block whole = *block;
  whole.context = context;
  return aq_blocks_put(&whole);
}

CUresult aq_memory_keep(CUresult result, const aq_block *block, void (*undo)(uint64_t key)) {
  if (block->charge.card == AQ_NO_CARD) return result;
  if (result == CUDA_SUCCESS && put(block)) return result;
  if (result == CUDA_SUCCESS) {
    undo(block->key);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_quota_give(&block->charge);
  return result;
}

aq_freeing aq_memory_freeing(aq_block_kind kind, uint64_t key) {
  aq_freeing freeing = {.known = false};
  if (key && aq_tenant_mode() == AQ_GUARD) freeing.known = aq_blocks_take(kind, key, &freeing.block);
  return freeing;
}

CUresult aq_memory_freed(CUresult result, const aq_freeing *freeing) {
  if (!freeing->known) return result;
  if (result != CUDA_SUCCESS) {
    aq_blocks_put(&freeing->block);
  } else if (freeing->block.kind == AQ_BLOCK_MEMORY && freeing->block.detail) {
    aq_pool_returned(freeing->block.detail, freeing->block.charge.bytes);
  } else {
    aq_quota_give(&freeing->block.charge);
  }
  return result;
}

CUcontext aq_memory_primary(CUdevice device) {
  CUcontext context = NULL;
  unsigned int flags;
  int active = 0;
  bool guarded = aq_tenant_mode() == AQ_GUARD && AQ_CUDA(cuDevicePrimaryCtxGetState);
  if (!guarded || AQ_CUDA(cuDevicePrimaryCtxGetState)(device, &flags, &active) || !active) return NULL;
  CUresult (*release)(CUdevice) = AQ_CUDA(cuDevicePrimaryCtxRelease_v2);
  if (!release) release = AQ_CUDA(cuDevicePrimaryCtxRelease);
  if (!release || AQ_CUDA(cuDevicePrimaryCtxRetain)(&context, device)) return NULL;
  release(device);
  return context;
}

void aq_memory_context_ended(CUcontext context) { aq_blocks_end_context(context); }
