/* The order of things that all families share: take, call, remember; forget, call, give back.
 *
 * A block is forgotten before the driver frees it, because another thread may be given the same address as soon as
 * the driver has; and taken before the driver allocates, so that no interleaving exceeds the slice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include "estimate.h"
#include "physical.h"
#include "stream.h"

static bool fits_with_what_is_idle(const aq_attempt *a) {
  return (aq_pools_trim() && a->fits(a->request)) || (aq_physical_settle() && a->fits(a->request));
}

static bool fits_now(const aq_attempt *a) { return a->fits(a->request) || fits_with_what_is_idle(a); }

bool aq_memory_insist(aq_attempt *attempt) {
  aq_grant_wait wait = {0};
  if (fits_with_what_is_idle(attempt)) return true;
  bool more;
  do { /* once more in any case: what was on its way may just have come */
    more = aq_returns_await(&attempt->patience);
    if (fits_now(attempt)) return true;
  } while (more);
  while (aq_quota_await(attempt->device, attempt->bytes, &wait))
    if (fits_now(attempt)) return true;
  while (aq_residents_yield(attempt->device, attempt->bytes))
    if (attempt->fits(attempt->request)) return true;
  for (unsigned tries = 0; aq_estimate_await(attempt->device, attempt->bytes, &tries);)
    if (fits_now(attempt)) return true;
  return false;
}

typedef struct {
  CUdevice device;
  uint64_t bytes;
  aq_charge *charge;
} request;

static bool take(void *data) {
  const request *r = data;
  return aq_quota_take(r->device, r->bytes, r->charge);
}

bool aq_memory_fits(CUdevice device, uint64_t bytes, aq_charge *charge) {
  request r = {device, bytes, charge};
  return take(&r) || aq_memory_insist(&(aq_attempt){.fits = take, .request = &r, .device = device, .bytes = bytes});
}

bool aq_memory_take(CUdevice device, uint64_t bytes, aq_charge *charge) {
  if (aq_memory_fits(device, bytes, charge)) return true;
  aq_quota_refused(device, bytes);
  return false;
}

/* Remembers a block together with the context that the driver has made it in. */
static bool put(aq_block *block) {
  CUcontext context = NULL;
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(&context);
  block->context = context;
  return aq_blocks_put(block);
}

CUresult aq_memory_keep(CUresult result, aq_block *block, void (*undo)(uint64_t key)) {
  if (block->charge.card == AQ_NO_CARD) return result;
  if (result == CUDA_SUCCESS && put(block)) return result;
  if (result == CUDA_SUCCESS) {
    undo(block->key);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  aq_quota_give(&block->charge);
  return result;
}

static bool is_pools(const aq_block *block) { return block->kind == AQ_BLOCK_MEMORY && block->detail; }

aq_freeing aq_memory_freeing(aq_block_kind kind, uint64_t key) {
  aq_freeing freeing;
  freeing.known = key && aq_tenant_mode() == AQ_GUARD && aq_blocks_take(kind, key, &freeing.block);
  bool may_be_resident = __atomic_load_n(&aq_residents_any, __ATOMIC_RELAXED) && freeing.known && kind == AQ_BLOCK_MEMORY;
  freeing.resident = may_be_resident ? aq_resident_take(key) : NULL;
  if (__atomic_load_n(&aq_exports_any, __ATOMIC_RELAXED) && freeing.known && kind == AQ_BLOCK_MEMORY) aq_export_ended(key);
  return freeing;
}

static CUresult freed_resident(CUresult result, const aq_freeing *freeing) {
  aq_charge charge = aq_resident_charge(freeing->resident);
  if (result != CUDA_SUCCESS) {
    aq_resident_keep(freeing->resident);
    aq_blocks_put(&freeing->block);
    return result;
  }
  aq_resident_end(freeing->resident);
  aq_quota_give(&charge);
  aq_managed_freed(freeing->block.key);
  return result;
}

CUresult aq_memory_freed(CUresult result, const aq_freeing *freeing) {
  if (!freeing->known) return result;
  if (freeing->resident) return freed_resident(result, freeing);
  if (result != CUDA_SUCCESS) aq_blocks_put(&freeing->block);
  else if (is_pools(&freeing->block)) aq_pool_return(freeing->block.detail, freeing->block.charge.bytes);
  else aq_quota_give(&freeing->block.charge);
  if (result == CUDA_SUCCESS && freeing->block.kind == AQ_BLOCK_MEMORY) aq_managed_freed(freeing->block.key);
  return result;
}

static void end_resident(uint64_t one, bool lives) {
  (void)lives;
  aq_resident_end((aq_resident *)(uintptr_t)one);
}

static aq_ending ending_of(aq_resident *one) {
  return (aq_ending){.call = one ? end_resident : NULL, .with = (uint64_t)(uintptr_t)one};
}

/* What a capture frees is a graph's. What we know by that address has ended with its context, which is just being forgotten, and
 * an event of ours would be captured: whoever asked about it would spoil the capture. */
CUresult aq_memory_freed_in_order(CUresult result, const aq_freeing *freeing, CUstream stream) {
  aq_charge charge = freeing->resident ? aq_resident_charge(freeing->resident) : freeing->block.charge;
  bool own = freeing->known && result == CUDA_SUCCESS && !is_pools(&freeing->block) && charge.card != AQ_NO_CARD;
  if (own) aq_managed_freed(freeing->block.key);
  bool later = own && !aq_stream_is_capturing(stream) && aq_return_later(&charge, ending_of(freeing->resident), stream);
  return later ? result : aq_memory_freed(result, freeing);
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
